"""Shrinking and printing programs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.findings import ALONE, CAUSES, cause_of
from lpkit_conformance.instruments.clocks import jumping_clock
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Resume, Step, program, soak
from lpkit_conformance.programs.shrink import shrink
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.verify import verify
from zoo.correct.v1 import Bias, OutOfPlace
from zoo.lp202 import StaleOnDecline
from zoo.lp219 import ThreeAtOnce
from zoo.registry import Case


def subject(cls: Any, case: dict[str, Any] | None = None) -> Subject:
    return Subject.of("x", cls, "v1", Case.parse(case or cls.CASE))


@pytest.mark.parametrize("seed", range(20))
def test_shrinking_keeps_exactly_what_a_failure_needs(seed: int) -> None:
    rng = random.Random(seed)
    ops = [Step(n) for n in range(1, rng.randint(30, 300))]
    needed = set(rng.sample(ops, rng.randint(1, 5)))
    kept, outcome = shrink(list(ops), "first", lambda found: len(found) if needed <= set(found) else None)
    assert set(kept) == needed
    assert kept == sorted(kept, key=lambda op: op.count)
    assert outcome == len(kept)


def test_shrinking_stops_when_its_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpkit_conformance.programs.shrink.BUDGET", 120_000)
    ops: list[Op] = [Step(n) for n in range(1, 401)]
    needed = set(ops[::4])
    tried = []

    def fails(candidate: Sequence[Op]) -> bool | None:
        tried.append(len(candidate))
        return needed <= set(candidate) or None

    kept, _ = shrink(list(ops), True, fails)
    assert needed < set(kept) < set(ops)
    assert 120_000 <= sum(tried) < 120_000 + len(ops)


def test_the_same_failure_shrinks_to_the_same_program_on_a_slow_machine() -> None:
    ops: list[Op] = [Step(n) for n in range(1, 101)]

    def fails(candidate: Sequence[Op]) -> bool | None:
        return set(ops[::7]) <= set(candidate) or None

    with jumping_clock(Bias):
        slowly = shrink(list(ops), True, fails)
    assert slowly == shrink(list(ops), True, fails) == (ops[::7], True)


def test_what_cannot_shrink_stays() -> None:
    ops: list[Op] = [Step(), Finish("a")]
    assert shrink(list(ops), "outcome", lambda found: None) == (ops, "outcome")


def test_equal_neighbours_are_counted_and_others_kept_apart() -> None:
    ops: list[Op] = [Step(), Step(), Step(), Finish("a"), Step()]
    assert collapse(ops) == ("step (3 times)", "a finishes", "step")
    assert collapse([]) == ()


def test_a_failure_of_many_operations_is_shown_with_few() -> None:
    whole = soak(0)
    with pytest.raises(Failed) as caught:
        verify(subject(StaleOnDecline), [whole])
    finding = caught.value.finding
    assert len(whole.ops) > 100
    assert len(finding.operations) <= 6
    assert {"request", "row", "step", "token id", "program"} <= finding.where.keys()
    assert "an earlier request" in finding.cause


def test_a_shrunk_program_still_fails() -> None:
    with pytest.raises(Failed) as caught:
        verify(subject(ThreeAtOnce), [soak(3)])
    assert 3 <= len(caught.value.finding.operations) <= 20


def test_the_first_failing_program_is_the_one_reported() -> None:
    harmless = program("harmless", Arrive("a", 0), Step())
    guilty = program("guilty", Arrive("a", 0), Step(), Finish("a"), Arrive("b", None), Step())
    with pytest.raises(Failed) as caught:
        verify(subject(StaleOnDecline), [harmless, guilty, soak(0)])
    assert caught.value.finding.where["program"] == "guilty"


def test_programs_without_action_prove_nothing() -> None:
    with pytest.raises(Skipped, match="never active"):
        verify(subject(Bias, {"extra_args": {"unrelated": 1}}), [program("p", Arrive("a", 0), Step())])


def test_passing_programs_say_how_many_rows_were_judged() -> None:
    assert verify(subject(OutOfPlace), [program("p", Arrive("a", 0), Arrive("b", None), Step(3))]) == "6 rows"


@pytest.mark.parametrize(
    ("kind", "ops", "cause"),
    [
        ("stale", [Arrive("a", 0), Arrive("b", 1), Step(), Preempt("a"), Resume("a"), Step(2)], CAUSES["out of step"]),
        ("stale", [Arrive("b", 0), Step(), Finish("b"), Arrive("a", None), Step()], CAUSES["stale"]),
        ("stale", [Arrive("b", 0), Arrive("a", None), Step()], CAUSES["stray"]),
        ("wrong", [Arrive("b", 0), Arrive("a", 1), Step()], CAUSES["wrong"]),
        ("stale", [Arrive("a", 0), Step(), Preempt("a"), Resume("a"), Step(2)], ALONE["out of step"]),
        ("wrong", [Arrive("a", 0), Step(2)], ALONE["wrong"]),
        ("lost", [Arrive("a", 0), Step(), Preempt("a"), Resume("a"), Step()], ALONE["lost"]),
    ],
)
def test_the_cause_is_one_that_the_operations_allow(kind: str, ops: list[Op], cause: str) -> None:
    assert cause_of(Mismatch(1, 0, "a", 5, 7, 0.0, 1.0, {}, kind), ops) == cause


def test_a_lone_request_is_never_told_of_others() -> None:
    assert not [text for text in ALONE.values() if "belongs to another" in text or "state of another" in text]
