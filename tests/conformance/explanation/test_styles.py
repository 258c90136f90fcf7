"""A fix is in the words of what the author writes against."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.explanation.hazards import Hazard
from lpkit_conformance.explanation.styles import DECLARE_TOKENS, FIXES, PLACEHOLDERS, READ_FIXES, Style, style_of
from lpkit_conformance.results import Finding
from lpkit_conformance.testing import compute_check
from zoo.bases import Boost
from zoo.lp201 import LastAdmitted, LateBinding
from zoo.lp202 import StaleOnDecline
from zoo.lp804 import CountsDrafts, ReadsMoreThanLengths

RUNNERS = ("ctx.", "row's slot", "batch_update", "update_state", "`added`", "max_num_seqs", "max_num_reqs")
"""Words for objects that no author of a callable or a portable class sees."""


def found(code: str, cls: Any, host: str = "", **settings: Any) -> Finding:
    finding = compute_check(code, cls, host=host, case=cls.CASE, **settings).finding
    assert finding is not None
    return finding


@pytest.mark.parametrize(
    ("cls", "host", "style"),
    [
        (StaleOnDecline, "v1", "raw"),
        (Boost, "v2", "raw"),
        (LastAdmitted, "v1", "portable"),
        (LastAdmitted, "v2", "portable"),
        (LateBinding, "v2", "adapter"),
    ],
)
def test_the_style_is_what_the_author_wrote(cls: Any, host: str, style: str) -> None:
    assert style_of(cls, host) == style


def test_nobody_is_told_of_an_interface_that_they_do_not_see() -> None:
    assert FIXES.keys() == set(get_args(Style))
    for style in ("adapter", "portable"):
        assert FIXES[style].keys() == set(get_args(Hazard)) - {"long", "short"}
        for fix in (*FIXES[style].values(), READ_FIXES[style]):
            assert not [word for word in RUNNERS if word in fix], fix


@pytest.mark.parametrize("code", ["LP403", "LP804"])
def test_an_adapter_that_reads_ids_and_declares_lengths_is_told_to_declare_tokens(code: str) -> None:
    finding = found(code, ReadsMoreThanLengths)
    assert (finding.cause, finding.fix) == (PLACEHOLDERS, DECLARE_TOKENS)


@pytest.mark.parametrize("code", ["LP804", "LP809"])
def test_an_adapter_that_counts_drafts_is_told_to_derive_from_the_ids_of_the_call(code: str) -> None:
    finding = found(code, CountsDrafts)
    assert finding.fix == FIXES["adapter"]["drafts"]
    assert "ctx" not in finding.fix


def test_a_trace_with_drafts_leads_to_the_callable_and_not_to_what_makes_it() -> None:
    cls = CountsDrafts
    finding = found("LP220", cls, "v2", trace=("v2_drafts", "mixed"))
    assert finding.fix == FIXES["adapter"]["drafts"]
    assert finding.location and finding.location != method_location(cls, "new_req_logits_processor")
