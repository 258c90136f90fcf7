"""Programs are held against solo runs; a failing one is made small, and its finding allows no other cause."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.advice import cause as cause_by_key
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.explanation.culprit import find_raising
from lpkit_conformance.explanation.findings import cause_of
from lpkit_conformance.explanation.verify import survive, verify
from lpkit_conformance.hosts import default_host
from lpkit_conformance.instruments.clocks import jumping_clock
from lpkit_conformance.instruments.module_state import ModuleState, owners
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Program, Resume, Step, program, soak
from lpkit_conformance.programs.shrink import shrink
from lpkit_conformance.results import Failed, Finding, Skipped
from lpkit_conformance.subject.subject import Subject
from zoo.correct.v1 import Bias, OutOfPlace, V1Base
from zoo.lp108 import RowsOfTheClass
from zoo.lp202 import StaleOnDecline
from zoo.registry import Case


def subject(cls: Any, case: dict[str, Any] | None = None) -> Subject:
    made = Subject.of("x", cls, "v1", Case.parse(case or cls.CASE))
    return replace(made, plugin=replace(made.plugin, modules=ModuleState(cls)))


def failed(cls: Any, *programs: Program) -> Finding:
    with pytest.raises(Failed) as caught:
        verify(subject(cls), programs)
    return caught.value.finding


def survived(cls: Any, *ops: Op) -> Finding:
    """The finding for a class that raises."""
    with pytest.raises(Failed) as caught:
        survive(subject(cls), program("p", *ops))
    return caught.value.finding


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


def test_a_failure_of_many_operations_is_shown_with_few() -> None:
    whole = soak(0)
    finding = failed(StaleOnDecline, whole)
    assert len(whole.ops) > 100
    assert len(finding.operations) <= 6
    assert {"request", "row", "step", "token id", "program"} <= finding.where.keys()
    assert finding.cause.endswith(
        "; r21 was served with r17's `self.rows[0]`, (10, 1.675), which is still there: without it, the row is right;"
        " line 86 last wrote it in step 1, for r17, and nothing has written it for r21 since"
    )
    assert finding.scenario is not None and "repeats" not in finding.scenario


def test_the_first_failing_program_is_the_one_reported() -> None:
    harmless = program("harmless", Arrive("a", 0), Step())
    guilty = program("guilty", Arrive("a", 0), Step(), Finish("a"), Arrive("b", None), Step())
    assert failed(StaleOnDecline, harmless, guilty, soak(0)).where["program"] == "guilty"


def test_programs_without_action_prove_nothing() -> None:
    with pytest.raises(Skipped, match="never active"):
        verify(subject(Bias, {"extra_args": {"unrelated": 1}}), [program("p", Arrive("a", 0), Step())])


def test_passing_programs_say_how_many_rows_were_judged() -> None:
    assert verify(subject(OutOfPlace), [program("p", Arrive("a", 0), Arrive("b", None), Step(3))]) == "6 rows"


@pytest.mark.parametrize(
    ("kind", "ops", "afresh", "key", "group"),
    [
        (
            "stale",
            [Arrive("a", 0), Arrive("b", 1), Step(), Preempt("a"), Resume("a"), Step(2)],
            False,
            "out of step",
            "any",
        ),
        ("stale", [Arrive("b", 0), Step(), Finish("b"), Arrive("a", None), Step()], False, "stale", "any"),
        ("stale", [Arrive("b", 0), Step(), Finish("b"), Arrive("a", None), Step()], True, "stray", "any"),
        ("stale", [Arrive("b", 0), Arrive("a", None), Step()], False, "stray", "any"),
        ("wrong", [Arrive("b", 0), Arrive("a", 1), Step()], False, "wrong", "any"),
        ("stale", [Arrive("a", 0), Step(), Preempt("a"), Resume("a"), Step(2)], False, "out of step", "alone"),
        ("wrong", [Arrive("a", 0), Step(2)], False, "wrong", "alone"),
        ("lost", [Arrive("a", 0), Step(), Preempt("a"), Resume("a"), Step()], False, "lost", "alone"),
    ],
)
def test_the_cause_is_one_that_the_operations_allow(
    kind: str, ops: list[Op], afresh: bool, key: str, group: str
) -> None:
    assert cause_of(Mismatch(1, 0, "a", 5, 7, 0.0, 1.0, {}, kind), ops, afresh) == cause_by_key(key, group)


# -- exceptions --------------------------------------------------------------------------------------------------


class NeedsTwoTokens(V1Base):
    """Assumes two tokens before the next token."""

    CASE = {"extra_args": {"bias": 0.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else (prompt or [], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (prompt, outputs) in self.rows.items():
            logits[row, (*prompt, *outputs)[-2]] += 0.5
        return logits


def test_a_prompt_that_has_to_be_short_is_reported_with_its_length() -> None:
    finding = survived(NeedsTwoTokens, Arrive("a", 0), Arrive("b", 0, 1), Step(2))
    assert finding.where == {"method": "apply", "prompt of b": "1 token"}


class RaisesAtTheFortieth(V1Base):
    """Counts the calls of all instances."""

    CASE = {"extra_args": {"bias": 0.5}}
    calls = 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        if self.calls >= 40:
            raise RuntimeError("worn out")
        return logits


def test_a_program_that_fails_in_a_new_process_too_is_shrunk_to_one_that_does() -> None:
    finding = survived(RaisesAtTheFortieth, Arrive("a", 0), Step(30), Arrive("b", 0), Step(30))
    assert finding.operations == ("a arrives", "step x40")
    assert finding.scenario is not None and "repeats" not in finding.scenario


class RaisesOnce(V1Base):
    """As a class might that reads a clock."""

    CASE = {"extra_args": {"bias": 0.5}}
    left: tuple[list[int], ...] = ([1],)  # in a tuple: what it holds is not put back

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.left[0]:
            self.left[0].pop()
            raise RuntimeError("at times")
        return logits


def test_a_program_that_does_not_fail_each_time_is_reported_as_such() -> None:
    finding = survived(RaisesOnce, Arrive("a", 0), Step(2))
    assert (finding.cause, finding.fix) == (cause_by_key("unrepeated"), fix("unrepeated"))
    assert finding.scenario is not None and finding.scenario["repeats"] is False


class CannotBeMade(V1Base):
    """As a class might that raises in its second constructor only."""

    CASE = {"extra_args": {"bias": 0.5}}

    def __init__(self, *args: Any) -> None:
        raise RuntimeError("made twice")


def test_an_instance_that_cannot_be_made_again_has_no_state_to_blame() -> None:
    assert find_raising(subject(CannotBeMade), [Arrive("a", 0), Step()], 2, default_host) is None


def test_module_state_notices_a_change_and_puts_it_back() -> None:
    state = ModuleState(RowsOfTheClass)
    assert state.unchanged()
    RowsOfTheClass.rows[3] = 1.0
    assert not state.unchanged()
    state.restore()
    assert state.unchanged()
    assert RowsOfTheClass.rows == {}


def test_a_run_as_imported_puts_back_what_was_there_before() -> None:
    there = subject(RowsOfTheClass)
    RowsOfTheClass.rows[3] = 1.0
    with there.as_imported():
        assert RowsOfTheClass.rows == {}
        RowsOfTheClass.rows[4] = 2.0
    assert RowsOfTheClass.rows == {3: 1.0}
    RowsOfTheClass.rows.clear()


def test_state_is_looked_for_in_the_modules_that_the_plugins_own_module_leads_to(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    sources = {"__init__": "", "elsewhere": "", "tables": "KEPT = {}\ndef look(): ...\nclass Table: ...\n"}
    sources["plugin"] = "from large.tables import look\nclass Plugin: ...\n"
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in sources:
        importlib.import_module(f"large.{name}")
    plugin = sys.modules["large.plugin"]
    assert {owner.__name__ for owner in owners(plugin.Plugin)} == {"large.plugin", "Plugin", "large.tables", "Table"}
