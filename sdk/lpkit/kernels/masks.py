"""Masking of whole vocabularies at the speed of memory.

A processor that reads every logit is bound by memory, and pays for each pass and each temporary tensor. On a CPU, three
things matter. Rows taken a few at a time stay in the cache between two passes (:func:`blocks`). Reused memory need not
be mapped again. And torch's kernels for ``masked_fill_`` and ``where`` take one element at a time, where arithmetic
takes sixteen. So the functions below mask by arithmetic there. :mod:`lpkit.kernels` documents their guarantees.
"""

from __future__ import annotations

import math

import torch

from lpkit.kernels.fused import differentiated, few_for, fused_for, plain
from lpkit.kernels.hashes import mix32_
from lpkit.kernels.memory import blocks

_LOG2_E = math.log2(math.e)
_LARGEST = torch.finfo(torch.float32).max
_TWO = torch.tensor(2.0)


def mask_below_(logits: torch.Tensor, lowest: torch.Tensor, scratch: torch.Tensor | None = None) -> torch.Tensor:
    """Mask logits below a limit.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        lowest: float32 ``[n, 1]``; -inf and NaN mask nothing, +inf all finite logits.
        scratch: float32 memory like ``logits``, inside a block.

    Returns:
        ``logits``. A row may have nothing left; choose ``lowest`` at most as high as the row's highest logit.
    """
    if plain(logits):
        return logits.masked_fill_(logits < lowest, -math.inf)
    if scratch is not None:
        torch.lt(logits, lowest, out=scratch)
        # Twice the largest number is infinity, twice zero is zero: kept logits keep every bit. A logit of +inf is never
        # below a limit, so inf - inf does not occur.
        return logits.addcmul_(scratch, _TWO, value=-_LARGEST)
    for block, limit, memory in blocks(logits, lowest, scratch=(torch.float32,)):
        mask_below_(block, limit, memory)
    return logits


def mask_far_below_top_(
    logits: torch.Tensor, distance: torch.Tensor, temperature: torch.Tensor | None = None
) -> torch.Tensor:
    """Mask logits more than a distance below their row's highest logit, as min-p does.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        distance: float32 ``[n, 1]``, not negative; +inf masks nothing.
        temperature: float32 ``[n, 1]``, above 0, for a distance between log-probabilities, which are smaller than
            logits by this factor. None: 1.

    Returns:
        ``logits``. The highest logit of a row always remains; a row with a NaN stays unchanged.
    """
    if (fused := fused_for(logits)) is not None:
        return fused.mask_far_below_top_(logits, distance, temperature)  # type: ignore[no-any-return]
    if temperature is not None:
        distance = distance * temperature
    for block, far, memory in blocks(logits, distance, scratch=(torch.float32,)):
        mask_below_(block, block.amax(dim=-1, keepdim=True) - far, memory)
    return logits


def mask_deviations_below_top_(logits: torch.Tensor, deviations: torch.Tensor) -> torch.Tensor:
    """Mask logits more than some standard deviations below their row's highest logit, as top-n-sigma does.

    Args:
        logits: float32 ``[n, vocab]``, edited in place; -inf is a masked token, left out of the deviation.
        deviations: float64 ``[n, 1]``, not negative: number of deviations.

    Returns:
        ``logits``. The highest logit of a row always remains; a row with a NaN stays unchanged.
    """
    if (fused := fused_for(logits)) is not None:
        return fused.mask_deviations_below_top_(logits, deviations)  # type: ignore[no-any-return]
    for block, number, memory in blocks(logits, deviations, scratch=(torch.float32,)):
        highest, deviation = _top_and_deviation(block.detach(), memory)
        mask_below_(block, highest - (number * deviation).to(block.dtype), memory)
    return logits


def exclude_top_choices_(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    log_threshold: torch.Tensor,
    keep: torch.Tensor,
    where: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mask all tokens with at least a threshold probability, except the least likely of them, as XTC does.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        temperature: float32 ``[n, 1]``, above 0; probabilities are those of ``logits / temperature``.
        log_threshold: float32 ``[n, 1]``, the logarithm of the threshold.
        keep: int64 ``[n, k]``, all below ``vocab``, -1 for no token. A row stays unchanged if a token in ``keep`` would
            be masked.
        where: bool ``[n, 1]``, the rows to edit; None: all.

    Returns:
        ``logits``. Tokens that tie with the least likely stay. A row with a NaN stays unchanged.
    """
    if keep.dtype == torch.int64 and (fused := fused_for(logits)) is not None:
        return fused.exclude_top_choices_(logits, temperature, log_threshold, keep, where)  # type: ignore[no-any-return]
    edited = torch.ones_like(temperature, dtype=torch.bool) if where is None else where
    memory = (torch.float32, torch.float32)
    for block, divisor, threshold, some, mine, scratch, other in blocks(
        logits, temperature, log_threshold, keep, edited, scratch=memory
    ):
        seen = block.detach()  # where a mask begins has no gradient
        likely = divisor * (_log_sum_exp(seen, divisor, scratch) + threshold)
        least = _least_from(seen, likely, scratch, other)  # inf: no token is likely
        spared = ((seen.gather(1, some.clamp(min=0)) > least) & (some >= 0)).any(dim=1, keepdim=True)
        _mask_above_(block, torch.where(mine & ~spared, least, math.inf), scratch)
    return logits


def add_where_hashed_(
    logits: torch.Tensor, seeds: torch.Tensor, limit: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Add a bias to tokens selected by a hash, ``rng.mix32_(seed ^ token) < limit``, as watermarks do.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        seeds: int32 ``[n, 1]``.
        limit: int32 ``[n, 1]``; ``s * 2**32 - 2**31`` selects a share s of all tokens, ``-2**31`` none.
        bias: float32 ``[n, 1]``, in units of logits.

    Returns:
        ``logits``. Every device selects the same tokens.
    """
    if (fused := fused_for(logits)) is not None:
        return fused.add_where_hashed_(logits, seeds, limit, bias)  # type: ignore[no-any-return]
    ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    memory = (torch.int32, torch.int32, torch.float32)
    for block, some, below, amount, hashed, spare, chosen in blocks(logits, seeds, limit, bias, scratch=memory):
        torch.bitwise_xor(some, ids, out=hashed)
        torch.lt(mix32_(hashed, spare), below, out=chosen)
        block.addcmul_(chosen, amount)
    return logits


def keep_ids_(logits: torch.Tensor, ids: torch.Tensor, where: torch.Tensor | None = None) -> torch.Tensor:
    """Mask all tokens except a few.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        ids: int64 ``[n, k]``, k at least 1, all below ``vocab``. -1 stands for no token. If the first id of a row is
            -1, the row stays unchanged.
        where: bool ``[n, 1]``, the rows to edit; None: all.

    Returns:
        ``logits``. A row whose ``ids`` are all masked stays unchanged, because a token that a grammar allows must
        remain. A NaN among the tokens to mask may stay on a CPU, where a search for it would double the cost; the
        kernels mask it without reading.
    """
    if ids.dtype == torch.int64 and (fused := fused_for(logits)) is not None:
        return fused.keep_ids_(logits, ids, where)  # type: ignore[no-any-return]
    first = ids[:, :1]
    ids = torch.where(ids >= 0, ids, first).clamp(min=0)
    kept = logits.gather(1, ids)
    meant = (first >= 0) & (kept.amax(dim=1, keepdim=True) > -math.inf)
    meant = meant if where is None else meant & where
    if differentiated(logits):  # a token that is written twice would get its gradient twice
        others = torch.ones_like(logits, dtype=torch.bool).scatter_(1, ids, False)
        return logits.masked_fill_(others & meant, -math.inf)
    cap = torch.where(meant, -math.inf, math.inf)
    return torch.minimum(logits, cap, out=logits).scatter_(1, ids, kept)


def mask_ids_(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Mask a few tokens.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        ids: int64 ``[n, k]``, k at least 1, all below ``vocab``; -1, at any position, stands for no token.

    Returns:
        ``logits``. A row stays unchanged if no token would be left.
    """
    if (few := few_for(logits)) is not None and logits.dtype == torch.float32 and ids.dtype == torch.int64:
        return few.mask_ids_(logits, ids)  # type: ignore[no-any-return]
    some = ids.amax(dim=1, keepdim=True)  # -1: no token in this row, and its token 0 keeps its value
    ids = torch.where(ids >= 0, ids, some).clamp(min=0)
    if differentiated(logits):  # a token that is written twice would get its gradient twice
        named = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, ids, True)
        left = (~named & (logits > -math.inf)).any(dim=1, keepdim=True)
        return logits.masked_fill_(named & left & (some >= 0), -math.inf)
    held = logits.gather(1, ids)
    logits.scatter_(1, ids, torch.where(some >= 0, -math.inf, held))
    left = logits.amax(dim=1, keepdim=True) > -math.inf
    return logits.scatter_(1, ids, torch.where(left & (some >= 0), -math.inf, held))


def keep_members_(logits: torch.Tensor, outside: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """Mask every token outside a set, inside a block of :func:`blocks`.

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        outside: float32 ``[n, vocab]``, 1 for tokens to mask and 0 for others; overwritten.
        scratch: float32 ``[n, vocab]``; overwritten.

    Returns:
        ``logits``. A row stays unchanged if no token would be left.
    """
    if differentiated(logits):
        others = outside > 0
        left = (~others & (logits > -math.inf)).any(dim=1, keepdim=True)
        return logits.masked_fill_(others & left, -math.inf)
    cap = _cap_(outside)
    left = torch.minimum(logits, cap, out=scratch).amax(dim=1, keepdim=True) > -math.inf
    cap = torch.maximum(cap, torch.where(left, -math.inf, math.inf), out=cap)
    return torch.minimum(logits, cap, out=logits)


# Steps of the functions above, inside a block. ``scratch`` is memory like the logits.


def _mask_above_(logits: torch.Tensor, highest: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """Mask logits above ``highest``, ``[n, 1]``; +inf and NaN mask nothing."""
    if plain(logits):
        return logits.masked_fill_(logits > highest, -math.inf)
    torch.gt(logits, highest, out=scratch)
    return torch.minimum(logits, _cap_(scratch), out=logits)


def _least_from(logits: torch.Tensor, lowest: torch.Tensor, scratch: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the least logit of each row that is not below ``lowest``, ``[n, 1]``; +inf if all are below."""
    if plain(logits):
        return torch.where(logits < lowest, math.inf, logits).amin(dim=1, keepdim=True)
    cap = torch.lt(logits, lowest, out=scratch).sub_(0.5).mul_(math.inf)  # +inf for logits below
    return torch.maximum(logits, cap, out=other).amin(dim=1, keepdim=True)


def _log_sum_exp(logits: torch.Tensor, temperature: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """Compute the logarithm of the sum of ``exp(logits / temperature)``, ``[n, 1]``; NaN for a fully masked row."""
    highest = logits.amax(dim=1, keepdim=True)
    # Powers of two: twice as fast as powers of e.
    shares = torch.sub(logits, highest, out=scratch).mul_(_LOG2_E / temperature).exp2_()
    return highest / temperature + shares.sum(dim=1, keepdim=True).log()


def _top_and_deviation(logits: torch.Tensor, scratch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the highest logit, and the standard deviation (float64, divided by the count) of the unmasked logits,
    ``[n, 1]`` each; the deviation of a fully masked row is NaN."""
    highest = logits.amax(dim=1, keepdim=True)
    count = torch.gt(logits, -math.inf, out=scratch).sum(dim=1, keepdim=True).double()
    # Distances from the top: masked tokens add 0 to the sums.
    below = torch.sub(highest, logits, out=scratch).nan_to_num_(nan=0.0, posinf=0.0)
    mean = below.sum(dim=1, keepdim=True).double() / count
    squares = below.square_().sum(dim=1, keepdim=True).double()
    return highest, (squares / count - mean.square()).clamp(min=0.0).sqrt()


def _cap_(mask: torch.Tensor) -> torch.Tensor:
    """Turn 1 and 0 into upper bounds of a masked and a kept logit: -inf and +inf."""
    return mask.sub_(0.5).mul_(-math.inf)
