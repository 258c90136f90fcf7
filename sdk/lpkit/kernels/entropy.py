"""Entropy of whole vocabularies, and a temperature and a mask that follow it."""

from __future__ import annotations

import math

import torch

from lpkit.kernels.fused import differentiated, fused_for
from lpkit.kernels.masks import mask_below_
from lpkit.kernels.memory import blocks

_LOG2_E = math.log2(math.e)
_FAR = -1e30
"""Powers of two below the top at which a token has no share. Unlike -inf, it gives no NaN in a product."""

_NEVER = -1e9  # distance below the top at which a token is never chosen; its cube is still finite


def log_sum_exp_and_entropy(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    scratch: torch.Tensor | None = None,
    other: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the logarithm of the sum of ``exp(logits / temperature)``, and the entropy of their softmax.

    The entropy is the mean of ``-log p``. Dynamic temperature, eta and typical sampling use it.

    Args:
        logits: float32 ``[n, vocab]``, not edited; -inf has no share.
        temperature: float32 ``[n, 1]``, above 0.
        scratch: float32 memory like ``logits``, inside a block.
        other: second scratch memory.

    Returns:
        float32 ``[n, 1]`` each, in natural units; NaN for a fully masked row.
    """
    if differentiated(logits):
        scratch = other = None  # each result needs memory of its own
    elif scratch is None or other is None:
        parts = [log_sum_exp_and_entropy(*some) for some in blocks(logits, temperature, scratch=(torch.float32,) * 2)]
        return torch.cat([total for total, _ in parts]), torch.cat([entropy for _, entropy in parts])
    highest = logits.detach().amax(dim=1, keepdim=True)  # it cancels, so it has no gradient
    below = torch.sub(logits, highest, out=scratch).mul_(_LOG2_E / temperature).clamp_(min=_FAR)
    shares = torch.exp2(below, out=other)
    weighed = torch.mul(below, shares, out=scratch)
    total = shares.sum(dim=1, keepdim=True)
    entropy = total.log() - weighed.sum(dim=1, keepdim=True) / (total * _LOG2_E)
    return highest / temperature + total.log(), entropy


def dynamic_temperature_(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    exponent: torch.Tensor,
    smoothing: torch.Tensor,
    curve: torch.Tensor,
    *,
    by_entropy: bool = True,
    smoothed: bool = True,
) -> torch.Tensor:
    """Divide by a temperature that depends on the entropy, and smooth the result (kalomaze; koboldcpp).

    The temperature is ``low + (high - low) * (H / ln(count)) ** exponent``, with the entropy H and the number of
    unmasked tokens. Smoothing then replaces each logit's distance d <= 0 from the highest, in units of ``temperature``,
    by ``-smoothing * (k * d**2 - s * d**3)`` with ``k = (3 - curve) / 2`` and ``s = (curve - 1) / 2``.

    Args:
        logits: float32 ``[n, vocab]``, edited in place; the highest of a row becomes 0.
        temperature: float32 ``[n, 1]``, above 0, the engine's later divisor. H is the entropy after it.
        low: float32 ``[n, 1]``, above 0.
        high: float32 ``[n, 1]``, at least ``low``.
        exponent: float32 ``[n, 1]``, above 0.
        smoothing: float32 ``[n, 1]``; 0 smooths nothing.
        curve: float32 ``[n, 1]``, 1 to 3.
        by_entropy: False if ``low`` and ``high`` are equal in every row.
        smoothed: False if ``smoothing`` is 0 in every row. Skipped work saves time.

    Returns:
        ``logits``. Masked tokens stay masked.
    """
    per_row = (temperature, low, high, exponent, smoothing, curve)
    if (fused := fused_for(logits)) is not None:
        return fused.dynamic_temperature_(logits, *per_row)  # type: ignore[no-any-return]
    memory = (torch.float32, torch.float32)
    for block, to_come, least, most, power, factor, bow, scratch, other in blocks(logits, *per_row, scratch=memory):
        followed, by = differentiated(logits), least
        if followed:
            scratch = other = None
        if by_entropy:
            entropy = log_sum_exp_and_entropy(block, to_come, scratch, other)[1]
            even = torch.gt(block, -math.inf, out=scratch).sum(1, keepdim=True).log().clamp(min=1e-10)
            share = (entropy / even).nan_to_num(0.0).clamp(1e-10, 1.0)  # of one token the entropy is 0
            # In float64: a float32 power depends on where in the batch its row stands.
            by = least + (most - least) * (share.double() ** power).float()
        top = block.detach().amax(1, keepdim=True).clamp(min=_NEVER)  # it cancels in the softmax
        below = torch.sub(block, top, out=scratch).clamp_(min=_NEVER).div_(to_come * by)
        if smoothed:
            bent = torch.mul(below, bow - 1, out=other).sub_(3 - bow).mul_(below).mul_(below).mul_(factor / 2)
            below = torch.mul(below, factor == 0, out=scratch).add_(bent)
        if followed:
            block.copy_(torch.where(block > -math.inf, below * to_come, -math.inf))
            continue
        there = torch.gt(block, -math.inf, out=other)
        torch.div(below.mul_(to_come), there, out=block)  # masked logits are below 0 here: divided by 0 they are -inf
    return logits


def mask_unlikely_(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    log_least: torch.Tensor,
    by_top: torch.Tensor,
    by_entropy: torch.Tensor,
) -> torch.Tensor:
    """Mask tokens below a limit that may follow the likeliest token, and below a limit that follows the entropy.

    A token stays if its log-probability is at least ``log_least + by_top * log(p_max)``, or at least ``by_entropy - H``
    with the entropy H. Epsilon and eta sampling (Hewitt, Manning and Liang, arXiv 2210.15191) and top-a are such rules.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        temperature: float32 ``[n, 1]``, above 0; probabilities are those of ``logits / temperature``.
        log_least: float32 ``[n, 1]``; -inf masks nothing.
        by_top: float32 ``[n, 1]``.
        by_entropy: float32 ``[n, 1]``; +inf for rows without a limit by the entropy.

    Returns:
        ``logits``. The likeliest token of a row always remains; a row with a NaN stays unchanged.
    """
    per_row = (temperature, log_least, by_top, by_entropy)
    if (fused := fused_for(logits)) is not None:
        return fused.mask_unlikely_(logits, *per_row)  # type: ignore[no-any-return]
    memory = (torch.float32, torch.float32)
    for block, divisor, least, of_top, of_entropy, scratch, other in blocks(logits, *per_row, scratch=memory):
        seen = block.detach()  # where a mask begins has no gradient
        total, entropy = log_sum_exp_and_entropy(seen, divisor, scratch, other)
        top = seen.amax(dim=1, keepdim=True)
        lowest = torch.minimum(least + of_top * (top / divisor - total), of_entropy - entropy)
        mask_below_(block, (divisor * (total + lowest)).minimum(top), scratch)
    return logits
