"""How undecided a model is: the entropy of whole vocabularies."""

from __future__ import annotations

import math

import torch

from lpkit.kernels.fused import differentiated
from lpkit.kernels.memory import blocks

_LOG2_E = math.log2(math.e)
_FAR = -1e30
"""Below the top by so many powers of two a token has no share, and no product is NaN, as it is with -inf."""


def log_sum_exp_and_entropy(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    scratch: torch.Tensor | None = None,
    other: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The logarithm of the sum of ``exp(logits / temperature)``, and the entropy of their softmax.

    Dynamic temperature, eta and typical sampling ask for the entropy: what ``-log p`` is on average.

    Args:
        logits: float32 ``[n, vocab]``, not edited; -inf has no share.
        temperature: float32 ``[n, 1]``, above 0.
        scratch: float32 memory like ``logits``, inside a block.
        other: a second one.

    Returns:
        float32 ``[n, 1]`` each, in natural units; NaN for a row that is masked altogether.
    """
    if differentiated(logits):
        highest = logits.detach().amax(dim=1, keepdim=True)  # it cancels, so it has no gradient
        below = ((logits - highest) * (_LOG2_E / temperature)).clamp(min=_FAR)
        shares = below.exp2()
        weighed = shares * below
    elif scratch is None or other is None:
        found = [log_sum_exp_and_entropy(*some) for some in blocks(logits, temperature, scratch=(torch.float32,) * 2)]
        return torch.cat([total for total, _ in found]), torch.cat([entropy for _, entropy in found])
    else:
        highest = logits.amax(dim=1, keepdim=True)
        below = torch.sub(logits, highest, out=scratch).mul_(_LOG2_E / temperature).clamp_(min=_FAR)
        shares = torch.exp2(below, out=other)
        weighed = below.mul_(shares)
    total = shares.sum(dim=1, keepdim=True)
    entropy = total.log() - weighed.sum(dim=1, keepdim=True) / (total * _LOG2_E)
    return highest / temperature + total.log(), entropy
