"""Recomputes, differentiably, the distribution that a rollout sampled from: a whole response in one call.

::

    logprobs = lpkit.train.processed_logprobs(
        Penalties, {"repetition": 1.3}, prompts, responses, logits, sampling={"temperature": 0.8}
    )

The names load their modules on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpkit.train.check import Comparison, Difference, check_rollout
    from lpkit.train.forbidden import ForbiddenToken, ForbiddenTokensError
    from lpkit.train.scores import Masked, processed_logits, processed_logprobs, unpadded

_HOME = {
    "Comparison": "check",
    "Difference": "check",
    "ForbiddenToken": "forbidden",
    "ForbiddenTokensError": "forbidden",
    "Masked": "scores",
    "check_rollout": "check",
    "processed_logits": "scores",
    "processed_logprobs": "scores",
    "unpadded": "scores",
}

__all__ = [
    "Comparison",
    "Difference",
    "ForbiddenToken",
    "ForbiddenTokensError",
    "Masked",
    "check_rollout",
    "processed_logits",
    "processed_logprobs",
    "unpadded",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'lpkit.train' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"lpkit.train.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
