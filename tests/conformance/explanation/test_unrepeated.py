"""A failure that depends on state of earlier runs is reported as such, and is not shrunk below what it needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit_conformance.explanation.unrepeated import CHANGES_ITS_MIND
from lpkit_conformance.instruments.module_state import ModuleState
from lpkit_conformance.programs.generate import Arrive, Program, Step
from lpkit_conformance.results import Failed, Finding
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.testing import compute_check
from lpkit_conformance.verify import survive
from zoo.correct.v1 import V1Base
from zoo.lp108 import RowsOfTheClass
from zoo.lp202 import StaleOnDecline


def survived(cls: Any, program: Program) -> Finding:
    """Results for a class that raises."""
    subject = Subject.of("x", cls, "v1", Case.parse(cls.CASE), modules=ModuleState(cls))
    with pytest.raises(Failed) as failure:
        survive(subject, program)
    return failure.value.finding


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
    finding = survived(RaisesAtTheFortieth, Program("many", (Arrive("a", 0), Step(30), Arrive("b", 0), Step(30)), 8))
    assert finding.operations == ("a arrives", "step x40")
    assert finding.scenario is not None and "repeats" not in finding.scenario


class RaisesOnce(V1Base):
    """As what looks at a clock might."""

    CASE = {"extra_args": {"bias": 0.5}}
    left: tuple[list[int], ...] = ([1],)  # in a tuple: what it holds is not put back

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.left[0]:
            self.left[0].pop()
            raise RuntimeError("at times")
        return logits


def test_what_does_not_fail_twice_is_not_blamed_on_shared_state() -> None:
    finding = survived(RaisesOnce, Program("short", (Arrive("a", 0), Step(2)), 8))
    assert finding.cause == CHANGES_ITS_MIND
    assert finding.scenario is not None and finding.scenario["repeats"] is False


def test_module_state_notices_a_change_and_puts_it_back() -> None:
    state = ModuleState(RowsOfTheClass)
    assert state.unchanged()
    RowsOfTheClass.rows[3] = 1.0
    assert not state.unchanged()
    state.restore()
    assert state.unchanged()
    assert RowsOfTheClass.rows == {}


def test_the_usual_failure_is_one_that_repeats() -> None:
    finding = compute_check("LP202", StaleOnDecline, case=StaleOnDecline.CASE).finding
    assert finding is not None and finding.scenario is not None
    assert "repeats" not in finding.scenario
