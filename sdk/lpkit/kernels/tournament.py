"""Tournaments between the tokens of whole vocabularies, as watermarks hold them."""

from __future__ import annotations

import torch

from lpkit.kernels.fused import fused_for
from lpkit.kernels.memory import blocks


def tournament_(
    logits: torch.Tensor, temperature: torch.Tensor, bits: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Give each token the probability to win a tournament that the tokens enter as often as they are drawn.

    Those that won a round meet in pairs in the next one: of a token with the bit 1 and one with 0 the former wins, of
    equals either. With any number of entries a round multiplies a token's probability by 1 + its bit - the probability
    of the bit 1 (SynthID-text; Dathathri et al., Nature 634, 2024).

    Args:
        logits: float32 ``[n, vocab]``, edited in place.
        temperature: float32 ``[n, 1]``, above 0; probabilities are those of ``logits / temperature``.
        bits: float32 ``[length]``, 0 or 1.
        starts: int64 ``[n, rounds]``, 0 to ``length - vocab``: in that round token t of the row has
            ``bits[start + t]``. A round in which all have 0 changes nothing.

    Returns:
        ``logits``; NaN in a row that is masked altogether.
    """
    if (fused := fused_for(logits)) is not None:
        return fused.tournament_(logits, temperature, bits, starts)  # type: ignore[no-any-return]
    windows = bits.unfold(0, logits.shape[1], 1)
    for block, divisor, start in blocks(logits, temperature, starts):
        shares = (block / divisor).softmax(1)
        gain = torch.ones_like(shares)
        for of_round in (windows[each] for each in start.unbind(1)):
            factor = of_round - (of_round * shares).sum(1, keepdim=True) + 1.0
            shares = shares * factor
            gain = gain * factor
        block.add_(divisor * gain.clamp(min=torch.finfo(gain.dtype).tiny).log())
    return logits
