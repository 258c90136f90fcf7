"""Finds vLLM's own interface modules, so that the SDK's names *are* vLLM's wherever vLLM works."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final

GROUP: Final = "vllm.logits_processors"
"""The entry-point group from which vLLM loads every installed processor, whatever its interface."""

V1_MODULE = "vllm.v1.sample.logits_processor"
V2_MODULE = "vllm.v1.worker.gpu.sample.logits_processor"
SAMPLING_PARAMS_MODULE = "vllm.sampling_params"


@dataclass(frozen=True)
class Lookup:
    """Outcome of looking for one of vLLM's modules.

    ``module`` is None when it cannot be used; ``reason`` then says why: ``"absent"`` when no vLLM (or no such
    module in this vLLM) is installed, else the error that importing it raised.
    """

    module: ModuleType | None
    reason: str | None = None


_without = False


def do_without() -> None:
    """From now on vLLM counts as absent in this process: another one uses it, or it is known to be broken.

    To be called before :mod:`lpkit.v1`, ``v2`` and ``sampling_params`` are imported.
    """
    global _without
    _without = True
    find.cache_clear()


def left_out() -> bool:
    """Whether vLLM is installed and not used in this process."""
    return _without and importlib.util.find_spec("vllm") is not None


@cache
def find(name: str) -> Lookup:
    """Import vLLM's module ``name`` once; never raises, because a broken vLLM must not break the SDK."""
    standin = getattr(sys.modules.get("vllm"), "__lpkit_standin__", False)
    if standin or _without:
        return Lookup(None, "absent")
    try:
        if importlib.util.find_spec("vllm") is None:
            return Lookup(None, "absent")
        return Lookup(importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            return Lookup(None, "absent")  # a vLLM from before this interface existed
        return Lookup(None, f"{type(error).__name__}: {error}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Lookup(None, f"{type(error).__name__}: {error}")
