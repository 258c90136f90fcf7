"""The line that a finding names: where the author edited the logits or keeps the books."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from lpkit import v2
from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.fault import look_again
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.testing import compute_check
from zoo.lp201 import LastAdmitted, LateBinding
from zoo.lp202 import BehindItsText, KeepsBesideItsColumns
from zoo.lp221 import NeedsEos, ShortIds
from zoo.lp804 import RequestsForRows


def line_with(cls: type, text: str) -> str:
    """``file:line`` of the first line that holds ``text``, behind the line of the class."""
    file = inspect.getsourcefile(cls) or ""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"class {cls.__name__}("))
    return f"{file}:{next(n for n, line in enumerate(lines[start:], start + 1) if text in line)}"


@pytest.mark.parametrize(
    ("identity", "code", "text"),
    [
        ("adapter-LateBinding", "LP201", "logits[5] += self.amount"),
        ("portable-LastAdmitted", "LP201", "logits[:, 5] += self.last"),
        ("portable-IndexForSlots", "LP201", "logits[:, 5] += self.amount.all"),
        ("v1-StaleOnDecline", "LP202", ""),
    ],
)
def test_a_departure_names_the_statement_that_edited_the_row_or_the_authors_own_books(
    identity: str, code: str, text: str
) -> None:
    plugin = zoo.specimen(identity).target
    finding = compute_check(code, plugin, case=plugin.CASE).finding
    assert finding is not None
    assert finding.location == (line_with(plugin, text) if text else method_location(plugin, "update_state"))


@pytest.mark.parametrize("name", ["apply", "update_state", "add_request", "__init__"])
def test_no_line_is_that_of_a_class(name: str) -> None:
    plugins = (LateBinding, LastAdmitted, NeedsEos)
    for plugin in plugins:
        file, _, line = method_location(plugin, name).rpartition(":")
        assert file
        assert " def " in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("cls", "code", "text"),
    [
        ("CountsItsCalls", "LP303", "def __call__("),
        ("OwnTemperature", "LP306", "def apply("),
        ("AppendsGuess", "LP502", "def apply("),
        ("ClassCache", "LP108", "def new_req_logits_processor("),
    ],
)
def test_of_an_adapter_the_callable_is_named_unless_it_is_what_makes_it(cls: str, code: str, text: str) -> None:
    plugin = zoo.specimen(f"adapter-{cls}").target
    finding = compute_check(code, plugin, host="v1", case=plugin.CASE).finding
    assert finding is not None
    file, _, line = finding.location.rpartition(":")
    assert text in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_where_a_new_instance_goes_wrong_too_what_apply_reads_is_at_fault() -> None:
    plugin = BehindItsText
    finding = compute_check("LP202", plugin, case=plugin.CASE).finding
    assert finding is not None
    assert "a new instance" in finding.cause
    assert "behind it" in finding.fix
    assert finding.location == line_with(BehindItsText, "torch.where(locked")


def test_what_becomes_of_generated_ids_is_blamed_on_what_edits_and_not_on_who_keeps_the_books() -> None:
    finding = compute_check("LP221", ShortIds, case=ShortIds.CASE).finding
    assert finding is not None
    assert finding.location == method_location(ShortIds, "apply")


class CountsItsCalls(v2.LogitsProcessor):
    """Raises a token by the number of its calls."""

    CASE = {"extra_args": {"bias": 2.0}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        self.req_states = req_states
        self.used: dict[int, bool] = {}
        self.calls = 0

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.used[req_idx] = bool((params.extra_args or {}).get("bias"))
        return self.used[req_idx]

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        self.calls += 1
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            logits[row, 6] += self.calls * self.used[slot]
        return logits


def test_a_new_instance_that_goes_wrong_in_another_way_says_nothing_of_what_apply_reads() -> None:
    subject = Subject.of("x", CountsItsCalls, "v2", Case.parse(CountsItsCalls.CASE))
    ops = [Arrive("a", 0), Step(), Finish("a"), Arrive("b", 0), Step()]
    (seen,) = [item for item in default_host(subject, 8).run(ops) if item.step == 2]
    mismatch = Mismatch(2, 0, "b", 5, 7, 0.0, float(seen.after[0, 7]), {}, "wrong")  # at a token that both leave alone
    assert not look_again(subject, ops, 8, mismatch, default_host).read


def test_state_beside_the_columns_is_blamed_on_admit() -> None:
    plugin = KeepsBesideItsColumns
    finding = compute_check("LP202", plugin, case=plugin.CASE).finding
    assert finding is not None
    assert "in each `admit`" in finding.fix
    assert finding.location == method_location(plugin, "admit")


def test_drafts_are_blamed_on_what_edits_their_rows() -> None:
    plugin = RequestsForRows
    finding = compute_check("LP804", plugin, case=plugin.CASE).finding
    assert finding is not None
    assert "expanded_idx_mapping" in finding.fix
    assert finding.location == line_with(RequestsForRows, "logits[row, ids] = -INF")


def test_what_all_requests_share_is_told_by_their_company_and_not_by_a_new_instance() -> None:
    finding = compute_check("LP201", LastAdmitted, case=LastAdmitted.CASE).finding
    assert finding is not None
    assert "a new instance" not in finding.cause
    assert "by its own" in finding.fix
