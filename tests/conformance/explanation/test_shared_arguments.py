"""Findings distinguish state shared by requests with equal arguments from a mix-up between any two requests."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.explanation.shared_arguments import same_arguments
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.testing import compute_check
from zoo.lp201 import CallablePerAmount, EntryPerToken, LastAdmitted, RowsByRank


@pytest.mark.parametrize(
    ("cls", "argument", "made_in"),
    [
        (CallablePerAmount, "`ad_amount`", "new_req_logits_processor"),
        (EntryPerToken, "`token`", "update_state"),
    ],
)
def test_what_is_shared_by_argument_is_told_with_the_argument(cls: Any, argument: str, made_in: str) -> None:
    finding = compute_check("LP201", cls, host="v1", case=cls.CASE).finding
    assert finding is not None
    assert f"beside one with the same {argument}" in finding.cause
    assert "cached mask or callable" in finding.fix
    assert finding.location == method_location(cls, made_in)


@pytest.mark.parametrize("cls", [LastAdmitted, RowsByRank])
def test_a_row_that_gets_the_arguments_of_any_neighbour_is_not_blamed_on_sharing(cls: Any) -> None:
    finding = compute_check("LP201", cls, host="v1", case=cls.CASE).finding
    assert finding is not None
    assert "the same" not in finding.cause


@pytest.mark.parametrize(
    ("ops", "wrong"),
    [
        ([Arrive("a", 0), Arrive("b", 0), Step()], "beside equal arguments"),
        ([Arrive("a", 0), Arrive("b", None), Step()], ""),
        ([Arrive("a", 0), Arrive("b", 0), Arrive("c", 0), Step()], ""),
        ([Arrive("a", 0), Arrive("b", 0), Finish("b"), Step()], ""),
        ([Arrive("a", 0), Arrive("b", 0, twin_of="a"), Step()], ""),
    ],
)
def test_nothing_is_said_unless_two_requests_arrive_and_that_is_all(ops: list[Op], wrong: str) -> None:
    cls = EntryPerToken
    subject = Subject.of("x", cls, "v1", Case.parse(cls.CASE))
    assert bool(same_arguments(subject, ops, "a", lambda _: True)) == bool(wrong)
    assert not same_arguments(subject, ops, "a", lambda _: False)
