"""Planted defects, and the cause, the fix and the line in their findings."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import zoo
from lpkit_conformance.explanation.advice import cause, fix
from lpkit_conformance.explanation.changes import with_swaps_apart
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.programs.generate import Arrive, Op, Step, Swap
from lpkit_conformance.results import Finding
from lpkit_conformance.testing import compute_check

A, B, C = Arrive("a", 0), Arrive("b", 1), Arrive("c", 2)
EXPERIMENTS = ("placeholders", "by-address", "too-early", "prefill-as-prompt", "same-object")


def found(identity: str, code: str, host: str = "", **settings: Any) -> tuple[Any, Finding]:
    specimen = zoo.specimen(identity)
    finding = compute_check(code, specimen.target, host=host, case=specimen.case.to_json(), **settings).finding
    assert finding is not None
    return specimen.target, finding


def line_with(cls: type, text: str) -> str:
    """``file:line`` of the first line that holds ``text``, behind the line of the class."""
    file = inspect.getsourcefile(cls) or ""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"class {cls.__name__}("))
    return f"{file}:{next(n for n, line in enumerate(lines[start:], start + 1) if text in line)}"


@pytest.mark.parametrize(
    ("identity", "code", "key", "state", "line"),
    [
        ("v1-ByAddressOfList", "LP202", "by-address", "self.known", "if id(outputs) not in"),
        ("v2-ByAddressOfParams", "LP202", "by-address", "self.known", ""),
        ("v2-ReadsBeforeTheFlush", "LP202", "too-early", "self.last[7]", "self.last[req_idx] ="),
        ("v2-TakesPrefillForPrompt", "LP211", "prefill-as-prompt", "self.start[7]", "prefill_len"),
        ("portable-CopiesThePrompt", "LP403", "no-prompt", "", "set(request.prompt_token_ids"),
        ("portable-PromptAtAdmission", "LP403", "no-prompt", "", "len(request.prompt_token_ids"),
        ("adapter-CallablePerParams", "LP210", "same-object", "", ""),
        ("adapter-ReadsMoreThanLengths", "LP804", "placeholders", "", ""),
        ("adapter-ReadsMoreThanLengths", "LP403", "placeholders", "", ""),
    ],
)
def test_an_experiment_proves_a_cause_and_names_the_state(
    identity: str, code: str, key: str, state: str, line: str
) -> None:
    plugin, finding = found(identity, code, "v1" if "v1" in identity else "")
    assert finding.fix == fix(key)
    assert finding.cause.endswith(cause(key))
    assert f"`{state}`" in finding.cause or not state
    if line:
        assert finding.location == line_with(plugin, line)


@pytest.mark.parametrize(
    ("identity", "code", "key", "readers", "line"),
    [
        ("v1-StaleOnDecline", "LP202", "replace", "v1", ""),
        ("v2-BehindItsText", "LP202", "behind", "v2", "all_token_ids.gpu"),
        ("v2-RequestsForRows", "LP804", "drafts", "v2", "logits[row, ids] = -INF"),
        ("portable-KeepsBesideItsColumns", "LP202", "optional", "portable", "if request.params.after"),
        ("portable-LastAdmitted", "LP201", "common", "portable", "self.last = request.params.amount"),
        ("portable-IndexForSlots", "LP201", "company", "portable", "logits[:, 5] += self.amount.all"),
        ("adapter-LateBinding", "LP201", "common", "adapter", "self.amount ="),
        ("adapter-CountsDrafts", "LP804", "drafts", "adapter", ""),
        ("adapter-CountsDrafts", "LP809", "drafts", "adapter", ""),
        ("v1-AddsLast", "LP206", "order", "v1", ""),
        ("v1-SwapsFirst", "LP206", "order", "v1", ""),
        ("v1-SwapOneSided", "LP205", "swap", "v1", ""),
        ("v1-AliasedSwap", "LP205", "swap", "v1", ""),
        ("v1-MovesFromSnapshot", "LP206", "swap", "v1", ""),
        ("v1-RowsByRank", "LP201", "single", "v1", ""),
        ("v2-CountsFromPrefill", "LP211", "resume", "v2", ""),
    ],
)
def test_a_fix_is_for_its_reader_and_the_line_is_the_statement_or_the_books(
    identity: str, code: str, key: str, readers: str, line: str
) -> None:
    plugin, finding = found(identity, code)
    name = finding.cause.partition("`")[2].partition("`")[0]
    assert finding.fix == fix(key, readers).replace("{name}", name)
    assert finding.cause not in [cause(experiment) for experiment in EXPERIMENTS if experiment != key]
    if line:
        assert finding.location == (method_location(plugin, line) if line.isidentifier() else line_with(plugin, line))


@pytest.mark.parametrize(
    ("identity", "code", "key"),
    [
        ("adapter-ExampleLP105", "LP105", "popped"),
        ("v1-ClassState", "LP108", "class"),
        ("v1-CountsInADefault", "LP108", "default"),
        ("adapter-TakesNext", "LP303", "consumes"),
        ("v1-HalfPrecision", "LP306", "held"),
        ("portable-ExampleLP604", "LP604", "hash"),
        ("adapter-OrderOfWords", "LP604", "order"),
    ],
)
def test_the_line_at_fault_tells_which_of_a_checks_causes_it_is(identity: str, code: str, key: str) -> None:
    _, finding = found(identity, code)
    assert finding.fix.partition("`")[0] == fix(key, code).partition("`")[0]
    assert cause(key, code).partition("`")[2].partition("`")[2].partition("{")[0] in finding.cause


def test_a_seed_of_all_is_named_and_not_the_draw_behind_it() -> None:
    plugin, finding = found("portable-ExampleLP602", "LP602", "v1")
    assert finding.location == line_with(plugin, "torch.manual_seed(0)")


def test_a_trace_with_drafts_leads_to_the_callable() -> None:
    plugin, finding = found("adapter-CountsDrafts", "LP220", "v2", trace=("v2_drafts", "mixed"))
    assert finding.fix == fix("drafts", "adapter")
    assert finding.location and finding.location != method_location(plugin, "new_req_logits_processor")


# -- changes of the operations -----------------------------------------------------------------------------------

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
    assert with_swaps_apart(ops) == apart


def test_a_copied_output_list_makes_the_row_alone_the_wrong_one() -> None:
    _, finding = found("v1-CopiesTheList", "LP211")
    assert (finding.cause, finding.fix) == (cause("copied-list"), fix("copied-list"))
    assert "resumed" in finding.summary and float(finding.expected) != float(finding.got)
    _, other = found("v1-StartsAtAdd", "LP211")
    assert cause("copied-list") not in other.cause
