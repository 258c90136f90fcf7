"""Finds the reason why a step takes its time: waits, bookkeeping, launches, new memory, passes over the logits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch

from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.bench.results import Bound, CandidateResult

LITTLE = 4.0
"""An average operation that takes at most this multiple of an empty operation is mostly its launch."""

MOST = 0.5
"""Passes over the logits bind a step if they take at least this share of its time."""

NEAR = 1.25
"""Up to this multiple of one read and write of the logits, a processor is as fast as the memory."""

LARGE = 0.9
"""New memory is expensive from this many sizes of the logits on."""

AHEAD = 1.5
"""The host binds a step if its part takes at least this many times the GPU's work."""

_SAMPLES = 5
_OPERATIONS = 6
"""Number of operations in a sample."""


def seconds_per_operation(source: torch.Tensor, work: torch.Tensor) -> float:
    """Time an operation on a few numbers: its dispatch, and on a GPU its launch.

    It runs after a copy of the logits, as a step does, so the caches hold little else.
    """
    device = source.device
    ids = torch.zeros(8, 8, dtype=torch.int64, device=device)
    few = torch.zeros(8, 8, device=device)
    clock = Clock(device)

    def operations() -> None:
        few.add_(1.0)
        few.gather(1, ids)
        torch.where(ids > 0, few, 1.0)
        few.index_select(0, ids[0])
        few.sum(1)

    samples = []
    for _ in range(_SAMPLES):
        work.copy_(source)
        samples.append(clock.time(operations)[0] / _OPERATIONS)
    return statistics.median(samples)


def bound(sides: Sequence[CandidateResult], logits_bytes: int, per_operation: float) -> tuple[CandidateResult, ...]:
    """Return the candidates of one size, each processor with the reason for its time.

    ``per_operation`` is the result of :func:`seconds_per_operation` in the same run.
    """
    floors = [side.gpu.median for side in sides if side.kind == "floor" and side.gpu]
    return tuple(
        replace(side, bound=_bound(side, logits_bytes, per_operation, floors)) if side.host and side.apply else side
        for side in sides
    )


def _bound(side: CandidateResult, logits_bytes: int, per_operation: float, floors: Sequence[float]) -> Bound:
    assert side.apply is not None
    whole, floor, passes = side.apply.median, side.versus_floor or 0.0, side.passes or 0.0
    if side.gpu and floors:
        floor = side.gpu.median / floors[-1]
    each = whole / (side.operations or 1)
    books = side.churn.median if side.churn else 0.0
    taken = (side.peak or 0) / logits_bytes
    if side.syncs:
        calls = ", ".join(f"{name} {times}x" for name, times in side.syncs.items())
        why = f"it makes the host wait for the device: {calls}"
        return Bound("waiting", why, "keep the values on the device: use torch.where and masks instead of Python's if")
    if books > whole:
        why = f"bookkeeping of a step in which requests come and go takes {books / whole:.1f} times as long as apply"
        return Bound("host", why, "do it once per request, not per step or row: compute in admit what apply needs")
    if side.gpu and side.launch and side.launch.median > AHEAD * side.gpu.median:
        why = (
            f"the host needs {side.launch.median * 1e6:.0f} us to launch what the GPU computes in "
            f"{side.gpu.median * 1e6:.0f} us"
        )
        return Bound("launches", why, "use fewer operations: combine them, or write one kernel (lpkit.kernels)")
    if floor <= NEAR:
        return Bound("", f"it takes {floor:.2f} times as long as one read and write of the logits", "")
    if each <= LITTLE * per_operation and passes < MOST * floor:
        why = (
            f"its {side.operations} operations take {each * 1e6:.0f} us each on average; an empty one takes up to "
            f"{per_operation * 1e6:.0f} us"
        )
        return Bound("launches", why, "use fewer operations: combine them, or write one kernel (lpkit.kernels)")
    if taken >= LARGE:
        why = (
            f"it allocates {taken:.1f} times the size of the logits, and takes as long as {floor:.1f} reads and writes"
        )
        return Bound("allocation", why, "write in place, or go block by block (lpkit.kernels.blocks)")
    if passes >= MOST * floor:
        why = f"its operations go over all logits {passes:.1f} times, and take as long as {floor:.1f} reads and writes"
        return Bound("memory", why, "make fewer passes, or touch only the tokens that change (edit, SparseLogits)")
    why = (
        f"its {side.operations} operations process {passes:.1f} times as many elements as the logits have, and take as "
        f"long as {floor:.1f} reads and writes of the logits"
    )
    return Bound(
        "computation", why, "find the slow operation (torch.profiler), then use a window of the history or one kernel"
    )
