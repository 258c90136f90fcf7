"""Tournaments between the tokens of whole vocabularies, for watermarks."""

from __future__ import annotations

import torch

from lpkit.kernels.fused import differentiated, fused_for
from lpkit.kernels.memory import blocks

_TINY = torch.finfo(torch.float32).tiny
_MEMORY = (torch.float32,) * 4


def tournament_(
    logits: torch.Tensor, temperature: torch.Tensor, bits: torch.Tensor, seeds: torch.Tensor, shifts: torch.Tensor
) -> torch.Tensor:
    """Give each token its probability to win a tournament whose entries are drawn from the tokens.

    Winners of a round meet in pairs in the next. A token with bit 1 beats a token with bit 0; equal bits decide at
    random. For any number of entries, a round multiplies a token's probability by 1 + its bit - the probability of bit
    1 (SynthID-text; Dathathri et al., Nature 634, 2024).

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        temperature: float32 ``[n, 1]``, above 0; probabilities are those of ``logits / temperature``.
        bits: float32 ``[period + 2 * vocab]``, 0 or 1; the last ``vocab`` are 0, with which nothing changes.
        seeds: int64 ``[n, 1]``, below ``period``; -1: no round is held.
        shifts: int64 ``[n, rounds]``, below ``period``: in this round, token t of the row has
            ``bits[(seed + shift) % period + t]``. -1: the round is not held.

    Returns:
        ``logits``; NaN in a fully masked row.
    """
    if (fused := fused_for(logits)) is not None:
        return fused.tournament_(logits, temperature, bits, seeds, shifts)  # type: ignore[no-any-return]
    windows = bits.unfold(0, logits.shape[1], 1)
    unheld = len(bits) - logits.shape[1]
    starts = ((seeds + shifts) % (unheld - logits.shape[1])).masked_fill_((seeds < 0) | (shifts < 0), unheld)
    for block, divisor, some, *memory in blocks(logits, temperature, starts, scratch=_MEMORY):
        # Under autograd each result needs memory of its own.
        to_shares, to_gain, to_factor, to_won = [None] * 4 if differentiated(logits) else memory
        shares = torch.softmax(torch.div(block, divisor, out=to_shares), 1, out=to_shares)
        gain = torch.ones_like(shares) if to_gain is None else to_gain.fill_(1.0)
        for start in some.unbind(1):
            bit = torch.index_select(windows, 0, start, out=to_factor)
            won = torch.mul(bit, shares, out=to_won).sum(1, keepdim=True)
            factor = torch.sub(bit, won, out=to_factor).add_(1.0)
            shares, gain = torch.mul(shares, factor, out=to_shares), torch.mul(gain, factor, out=to_gain)
        block.add_(gain.clamp_(min=_TINY).log_().mul_(divisor))
    return logits
