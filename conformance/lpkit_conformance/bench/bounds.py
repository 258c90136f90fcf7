"""Says what a step's time goes into: waits, bookkeeping, launches, new memory or passes over the logits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch

from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.bench.results import Bound, CandidateResult

LITTLE = 4.0
"""Times an operation that has nothing to do, up to which the average one is mostly launched."""

MOST = 0.5
"""Share of the time from which on passes over the logits are what binds it."""

NEAR = 1.25
"""Times one read and write of the logits, up to which a processor is as fast as the memory."""

LARGE = 0.9
"""New memory in sizes of the logits, from which on taking it is dear."""

AHEAD = 1.5
"""Times the GPU's work, from which on the host that asks for it binds a step."""

_SAMPLES = 5
_OPERATIONS = 6
"""That one sample times."""


def seconds_per_operation(source: torch.Tensor, work: torch.Tensor) -> float:
    """What an operation costs that has next to nothing to do: its dispatch, and on a GPU its launch.

    Measured as a step is: after a copy of the logits, which leaves little else in the caches.
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

    found = []
    for _ in range(_SAMPLES):
        work.copy_(source)
        found.append(clock.time(operations)[0] / _OPERATIONS)
    return statistics.median(found)


def bound(sides: Sequence[CandidateResult], logits_bytes: int, per_operation: float) -> tuple[CandidateResult, ...]:
    """The candidates of one size, each processor with what binds it.

    Args:
        sides: what was measured.
        logits_bytes: size of the logits.
        per_operation: as :func:`seconds_per_operation` found in the same run.
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
        return Bound("waiting", why, "keep the values on the device: torch.where and masks instead of Python's if")
    if books > whole:
        why = f"bookkeeping of a step in which requests come and go takes {books / whole:.1f} times as long as apply"
        return Bound("host", why, "do once per request, not per step or row; work out in admit what apply needs")
    if side.gpu and side.launch and side.launch.median > AHEAD * side.gpu.median:
        why = (
            f"the GPU works {side.gpu.median * 1e6:.0f} us on what the host takes {side.launch.median * 1e6:.0f} us to "
            "ask for"
        )
        return Bound("launches", why, "fewer operations: combine them, or write one kernel (lpkit.kernels)")
    if floor <= NEAR:
        return Bound("", f"it takes {floor:.2f} times as long as one read and write of the logits", "")
    if each <= LITTLE * per_operation and passes < MOST * floor:
        why = (
            f"its {side.operations} operations take {each * 1e6:.0f} us each on average; one that has nothing to do "
            f"takes up to {per_operation * 1e6:.0f} us"
        )
        return Bound("launches", why, "fewer operations: combine them, or write one kernel (lpkit.kernels)")
    if taken >= LARGE:
        why = (
            f"it takes new memory of {taken:.1f} times the logits, and as long as {floor:.1f} reads and writes of them"
        )
        return Bound("allocation", why, "write in place, or block by block (lpkit.kernels.blocks)")
    if passes >= MOST * floor:
        why = f"its operations go over all logits {passes:.1f} times, and take as long as {floor:.1f} reads and writes"
        return Bound("memory", why, "fewer passes, or only the tokens concerned (edit, SparseLogits)")
    why = (
        f"its {side.operations} operations go over as many elements as {passes:.1f} times the logits have, and take as "
        f"long as {floor:.1f} reads and writes of these"
    )
    return Bound(
        "computation", why, "see which of them takes long (torch.profiler): a window of the history, one kernel"
    )
