"""What a step should take is told from its kernels and the floors, and only where that is all that takes memory."""

from __future__ import annotations

import io
from dataclasses import asdict

import pytest
from lpkit_conformance.bench.prediction import with_predictions
from lpkit_conformance.bench.results import (
    Bench,
    CandidateResult,
    Point,
    Prediction,
    TargetBench,
    Times,
    point_from_json,
)
from lpkit_conformance.report.bench import show

ROWS, VOCAB = 64, 1_000


def side(kernels: dict[str, int] | None, passes: float = 0.0, kind: str = "target") -> CandidateResult:
    times = Times(200e-6, 200e-6, 3)
    return CandidateResult("a on V2", kind, "v2", apply=times, gpu=times, operations=1, kernels=kernels, passes=passes)


def floor(median: float) -> CandidateResult:
    return CandidateResult("floor", "floor", apply=Times(1.0, 1.0, 3), gpu=Times(median, median, 3))


FLOORS = (floor(40e-6), floor(100e-6))
"""A read takes 40 us, a write 60."""


def predicted(given: CandidateResult, cache: int = 64_000) -> Prediction | None:
    return with_predictions([given, *FLOORS], ROWS, VOCAB, cache)[0].predicted


def test_it_is_the_time_of_the_floors_for_as_many_reads_and_writes() -> None:
    found = predicted(side({"tops": 1, "mask_below_top": 1, "history": 1}))
    assert found is not None
    assert (found.least_read, found.most_read, found.written) == (1.0, 1.75, 1.0)
    assert (found.least, found.most) == (pytest.approx(100e-6), pytest.approx(130e-6))


@pytest.mark.parametrize(
    "given",
    [
        side(None),
        side({}),
        side({"read": 1, "write": 1}),
        side({"mask": 1, "kernel_of_the_plugin": 1}),
        side({"mask": 1}, passes=1.0),
        side({"mask": 1}, kind="alternative"),
    ],
    ids=["not counted", "no kernels", "a few logits", "another kernel", "torch goes over them too", "not the target"],
)
def test_nothing_is_predicted_where_the_kernels_do_not_tell(given: CandidateResult) -> None:
    assert predicted(given) is None


def test_nothing_is_predicted_without_floors() -> None:
    assert with_predictions([side({"mask": 1})], ROWS, VOCAB, 64_000)[0].predicted is None


def test_the_report_shows_it_next_to_what_was_measured_and_json_keeps_it() -> None:
    sides = with_predictions([side({"tops": 1, "mask_below_top": 1}), *FLOORS], ROWS, VOCAB, 64_000)
    point = Point(ROWS, VOCAB, ROWS * VOCAB * 4, sides)
    assert point_from_json(asdict(point)) == point
    file = io.StringIO()
    show(Bench((TargetBench("a", points=(point,)),), {}, {}), file)
    text = " ".join(file.getvalue().split())
    assert "V2: the memory that its kernels move takes the GPU 100 us to 130 us at 64 x 1,000" in text
    assert "it worked 200 us." in text
