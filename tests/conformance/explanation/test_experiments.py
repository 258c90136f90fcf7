"""Reruns with one condition changed: objects that are kept, buffers with other contents, short prompts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit_conformance.explanation.experiments import (
    ADDRESS_FIX,
    BY_ADDRESS,
    EARLY_FIX,
    PREFILL,
    PREFILL_FIX,
    TOO_EARLY,
    reads_too_early,
)
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.programs.generate import Arrive, Program, Step
from lpkit_conformance.results import Failed
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.testing import compute_check
from lpkit_conformance.verify import survive
from zoo.correct.v1 import V1Base
from zoo.lp202 import BehindItsText, ByAddressOfList, ByAddressOfParams, ReadsBeforeTheFlush, StaleOnDecline
from zoo.lp211 import CountsFromPrefill, TakesPrefillForPrompt


@pytest.mark.parametrize("cls", [ByAddressOfList, ByAddressOfParams])
def test_what_goes_right_while_objects_are_kept_is_known_by_their_addresses(cls: Any) -> None:
    finding = compute_check("LP202", cls, case=cls.CASE).finding
    assert finding is not None
    assert (finding.cause, finding.fix) == (BY_ADDRESS, ADDRESS_FIX)


def test_state_that_stays_is_not_blamed_on_addresses() -> None:
    finding = compute_check("LP202", StaleOnDecline, case=StaleOnDecline.CASE).finding
    assert finding is not None
    assert finding.cause != BY_ADDRESS


def test_token_ids_that_add_request_reads_are_those_of_an_earlier_request() -> None:
    cls = ReadsBeforeTheFlush
    finding = compute_check("LP202", cls, case=cls.CASE).finding
    assert finding is not None
    assert (finding.cause, finding.fix) == (TOO_EARLY, EARLY_FIX)
    assert finding.location == method_location(cls, "add_request")


def test_what_apply_reads_behind_a_text_is_not_read_too_early() -> None:
    cls = BehindItsText
    subject = Subject.of("x", cls, "v2", Case.parse(cls.CASE))
    assert not reads_too_early(subject, Arrive("a", 0))


def test_a_length_that_add_request_takes_for_the_prompts_is_blamed_on_add_request() -> None:
    cls = TakesPrefillForPrompt
    finding = compute_check("LP211", cls, case=cls.CASE).finding
    assert finding is not None
    assert (finding.cause, finding.fix) == (PREFILL, PREFILL_FIX)
    assert finding.location == method_location(cls, "add_request")


def test_one_that_apply_reads_is_not() -> None:
    cls = CountsFromPrefill
    finding = compute_check("LP211", cls, case=cls.CASE).finding
    assert finding is not None
    assert finding.cause != PREFILL


class NeedsTwoTokens(V1Base):
    """Assumes two tokens before the next token."""

    CASE = {"extra_args": {"bias": 0.5}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else (prompt or [], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (prompt, outputs) in self.rows.items():
            logits[row, (*prompt, *outputs)[-2]] += 0.5
        return logits


def test_a_prompt_that_has_to_be_short_is_told_with_its_length() -> None:
    subject = Subject.of("x", NeedsTwoTokens, "v1", Case.parse(NeedsTwoTokens.CASE))
    with pytest.raises(Failed) as failure:
        survive(subject, Program("short", (Arrive("a", 0), Arrive("b", 0, 1), Step(2)), 8))
    finding = failure.value.finding
    assert finding.where == {"method": "apply", "prompt of b": "1 token"}
