"""What a step must take by the memory that its kernels move, at the speed that the floors were measured with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lpkit.kernels.traffic import LOGIT, PASSES, traffic

from lpkit_conformance.bench.results import CandidateResult, Prediction

ELSEWHERE = 0.25
"""Passes over the logits by other operations, from which on the kernels do not tell what is moved."""


def with_predictions(
    sides: Sequence[CandidateResult], rows: int, vocab: int, cache: int
) -> tuple[CandidateResult, ...]:
    """The candidates of one size, each with the prediction for its kernels, where these do all that takes memory.

    Args:
        sides: what was measured, one read and one read and write of the logits among it.
        rows: of the batch.
        vocab: logits of a row.
        cache: bytes of the GPU's L2 cache.
    """
    floors = [side.gpu.median for side in sides if side.kind == "floor" and side.gpu]
    if len(floors) != 2:
        return tuple(sides)
    read, both = floors
    size = rows * vocab * LOGIT
    speed = read / size, max(both - read, 0.0) / size

    def predicted(side: CandidateResult) -> Prediction | None:
        kernels = side.kernels or {}
        if side.kind != "target" or kernels.keys() - PASSES.keys() or (side.passes or 0.0) >= ELSEWHERE:
            return None
        passes = [PASSES[name] for name, times in kernels.items() for _ in range(times)]
        least, most = (traffic(passes, rows, vocab, cache, near) for near in (0.0, 1.0))
        if not most.read + most.written:
            return None
        shares = round(least.read / size, 3), round(most.read / size, 3), round(most.written / size, 3)
        return Prediction(*shares, least.seconds(*speed), most.seconds(*speed))

    return tuple(replace(side, predicted=predicted(side)) for side in sides)
