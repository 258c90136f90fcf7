"""A bench against an older bench: regressions are reported, differences between machines are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lpkit_conformance.bench.budget import OlderBench
from lpkit_conformance.bench.results import Bench, CandidateResult, Point, TargetBench, Times
from lpkit_conformance.errors import UsageError

SETTINGS = {
    "batches": [8],
    "vocabs": [1000],
    "device": "cpu",
    "threads": 1,
    "context": 256,
    "share": 1.0,
}
SIDE = CandidateResult(
    "mine on V1", "target", "v1", apply=Times(1e-3, 1e-3, 5), operations=10, launches=3, peak=100, versus_floor=2.0
)


def bench(side: CandidateResult = SIDE, case: str = "{}", **settings: object) -> Bench:
    point = Point(8, 1000, 32_000, (side,))
    return Bench((TargetBench("mine", "v1", case, points=(point,)),), {}, {**SETTINGS, **settings})


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "budget.json"
    file.write_text(json.dumps(bench().to_json()), encoding="utf-8")
    return file


def test_a_machine_that_is_slower_as_a_whole_is_not_worse(recorded: Path) -> None:
    assert OlderBench(recorded).compare(bench(replace(SIDE, apply=Times(1.0, 1.0, 5), versus_floor=2.4))) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versus_floor": 2.6}, "apply takes 2.60 times one read and write of the logits; it took 2.00"),
        ({"operations": 11}, "11 operations; there were 10"),
        ({"launches": 4}, "4 launches on a GPU; there were 3"),
        ({"peak": 2000}, "2,000 bytes of new memory at the same time; there were 100"),
        ({"syncs": {"item": 1}}, "1 more waits for the device"),
    ],
)
def test_what_got_worse_is_reported_with_both_numbers(recorded: Path, changes: dict[str, object], said: str) -> None:
    found = replace(bench(replace(SIDE, **changes)), worse=())  # type: ignore[arg-type]
    assert OlderBench(recorded).compare(found) == (f"mine on V1, 8 x 1,000: {said}",)
    assert replace(found, worse=("",)).exit_code == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (bench(context=16), "measured with context 256, this is measured with 16"),
        (bench(case='{"n": 1}'), "measured with the case {}"),
        (bench(replace(SIDE, name="another on V1")), "none of the sizes and targets"),
    ],
)
def test_what_was_measured_differently_is_not_compared(recorded: Path, other: Bench, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        OlderBench(recorded).compare(other)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "lpkit-check/1"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "budget.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="budget"):
        OlderBench(file)
    with pytest.raises(UsageError, match="No such file"):
        OlderBench(tmp_path / "none.json")
