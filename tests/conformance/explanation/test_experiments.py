"""Planted defects, and the cause, the fix and the line in their findings."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from lpkit_conformance.explanation.advice import cause, fix
from lpkit_conformance.explanation.changes import with_apart
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.programs.generate import Arrive, Op, Step, Swap
from planted import finding_of

A, B, C = Arrive("a", 0), Arrive("b", 1), Arrive("c", 2)


def line_with(cls: type, text: str) -> str:
    """``file:line`` of the first line that holds ``text``, behind the line of the class."""
    file = inspect.getsourcefile(cls) or ""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"class {cls.__name__}("))
    return f"{file}:{next(n for n, line in enumerate(lines[start:], start + 1) if text in line)}"


# Most proofs are held with the zoo's specimens, by their key of ``advice.toml``: these are of further checks.


@pytest.mark.parametrize(
    ("identity", "code", "key"),
    [
        ("adapter-ReadsMoreThanLengths", "LP403", "placeholders"),
        ("adapter-CountsDrafts", "LP809", "drafts"),
        ("adapter-ExampleLP105", "LP105", "popped"),
        pytest.param("portable-ExampleLP604", "LP604", "hash", marks=pytest.mark.broad),
    ],
)
def test_an_experiment_or_the_line_at_fault_tells_which_of_a_checks_causes_it_is(
    identity: str, code: str, key: str
) -> None:
    _, finding = finding_of(identity, code)
    assert finding.fix.startswith(fix(key, code, "adapter").partition("{")[0])


def test_a_seed_of_all_is_named_and_not_the_draw_behind_it() -> None:
    plugin, finding = finding_of("portable-ExampleLP602", "LP602", "v1")
    assert finding.location == line_with(plugin, "torch.manual_seed(0)")


def test_a_trace_with_drafts_leads_to_the_callable() -> None:
    plugin, finding = finding_of("adapter-CountsDrafts", "LP220", "v2", trace=("v2_drafts", "mixed"))
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
    assert with_apart(ops, Swap) == apart


def test_a_copied_output_list_makes_the_row_alone_the_wrong_one() -> None:
    _, finding = finding_of("v1-CopiesTheList", "LP211")
    assert (finding.cause, finding.fix) == (cause("copied-list"), fix("copied-list"))
    assert "resumed" in finding.summary and float(finding.expected) != float(finding.got)
    _, other = finding_of("v1-StartsAtAdd", "LP211")
    assert cause("copied-list") not in other.cause
