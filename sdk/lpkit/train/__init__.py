"""Recomputes, differentiably, the distribution that a rollout sampled from: a whole response in one call.

::

    logprobs = lpkit.train.processed_logprobs(
        Penalties, {"repetition": 1.3}, prompts, responses, logits, sampling={"temperature": 0.8}
    )
"""

from lpkit.train.check import Comparison, Difference, check_rollout
from lpkit.train.forbidden import ForbiddenToken, ForbiddenTokensError
from lpkit.train.scores import Masked, processed_logits, processed_logprobs, unpadded

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
