"""Experiments on programs and traces that no planted defect's own check makes."""

from __future__ import annotations

import pytest
from lpkit_conformance.explanation.advice import fix
from lpkit_conformance.explanation.changes import with_apart
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.programs.generate import Arrive, Op, Step, Swap
from planted import finding_of
from zoo.lp804 import CountsDrafts

A, B, C = Arrive("a", 0), Arrive("b", 1), Arrive("c", 2)


def test_a_callable_that_declares_too_little_is_told_so_where_the_claim_is_judged() -> None:
    found = finding_of("adapter-ReadsMoreThanLengths", "LP403").fix
    assert found.startswith(fix("placeholders", "LP403", "adapter").partition("{")[0])


def test_a_trace_with_drafts_leads_to_the_callable() -> None:
    finding = finding_of("adapter-CountsDrafts", "LP220", "v2", trace=("v2_drafts", "mixed"))
    assert finding.fix == fix("drafts", "adapter")
    assert finding.location and finding.location != method_location(CountsDrafts, "new_req_logits_processor")


CHAINED: list[Op] = [Swap(0, 1), Swap(1, 2), Step()]


@pytest.mark.parametrize(
    ("ops", "apart"),
    [
        ([A, B, Swap(0, 1), Step()], [A, B, Step(), Swap(0, 1), Step()]),
        ([A, B, C, *CHAINED], [A, B, C, Step(), *CHAINED]),
        ([A, B, C, Step(), *CHAINED], []),
        ([A, B, Step(), Swap(0, 1), Step()], []),
        ([A, Step()], []),
    ],
)
def test_swaps_are_put_into_updates_of_their_own(ops: list[Op], apart: list[Op]) -> None:
    assert with_apart(ops, Swap) == apart
