"""Edits of the author's code with which a failing program passes."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest
import zoo
from lpkit_conformance.explanation.repairs import Edited, find_repair
from lpkit_conformance.results import Finding
from planted import finding_of

PASS = "the programs of this check pass"


@pytest.mark.parametrize(
    ("specimen", "code", "old", "new", "why"),
    [
        ("v1-DropsWhatHasNotBegun", "LP213", "entry", "entry is not None", "but false"),
        ("v1-EndsTheLoop", "LP201", "return logits", "continue", "ends the loop"),
        ("v1-HeldView", "LP205", "self.values[first]", "copy.deepcopy(self.values[first])", "a view of it"),
    ],
)
def test_an_edit_that_mends_the_programs_is_named(specimen: str, code: str, old: str, new: str, why: str) -> None:
    finding = finding_of(specimen, code)
    assert why in finding.cause
    assert finding.cause.endswith(f"with `{new}` in its place, {PASS}")
    assert finding.fix.endswith(f"write `{new}` in place of `{old}`")


@pytest.mark.parametrize(
    ("specimen", "code", "why", "edit"),
    [
        (
            "v1-KeepsRemoved",
            "LP203",
            "`self.rows` keeps the entry of a removed request, and the next request in that row is served with it",
            "add `for index in update.removed: self.rows.pop(index, None)` before line ",
        ),
        (
            "v1-SetDefault",
            "LP202",
            "`self.rows` keeps the entry of the request that had the row before",
            "add `for index, *_ in update.added: self.rows.pop(index, None)` before line ",
        ),
        (
            "v1-ListsThatStay",
            "LP204",
            "`self.ids` is not moved with its rows, so a request that moves is served with the entry",
            "add `for a, b, _ in update.moved: self.ids[a], self.ids[b] = self.ids[b], self.ids[a]` after the loop of ",
        ),
        (
            "v1-MovesOneOfTwo",
            "LP204",
            "`self.counted.outputs` is not moved with its rows",
            "carry out the moves of an update on `self.counted.outputs`, too, after the loop of line ",
        ),
    ],
)
def test_a_line_that_the_bookkeeping_lacks_is_named_before_the_evidence(
    specimen: str, code: str, why: str, edit: str
) -> None:
    finding = finding_of(specimen, code)
    assert finding.cause.startswith(why)
    assert PASS in finding.cause.partition("; ")[0]
    assert finding.fix.startswith(edit)


def test_no_line_is_added_for_state_that_is_not_kept_by_row() -> None:
    assert " before line " not in finding_of("v1-PackedOnChange", "LP204").fix


def test_the_fix_for_another_line_goes_when_an_edit_names_the_line() -> None:
    assert finding_of("v1-DropsWhatHasNotBegun", "LP213").fix == "write `entry is not None` in place of `entry`"


def test_an_edit_that_only_switches_the_plugin_off_is_none() -> None:
    assert PASS not in finding_of("v1-CountsRows", "LP302").cause


def test_an_edit_that_makes_the_batch_as_wrong_as_the_request_alone_is_none() -> None:
    assert PASS not in finding_of("v1-LateAtChanges", "LP504").cause


def test_the_authors_code_is_as_it_was() -> None:
    move = zoo.specimen("v1-DropsWhatHasNotBegun").target.move  # type: ignore[union-attr]
    code = move.__code__
    finding_of("v1-DropsWhatHasNotBegun", "LP213", seed=1)
    assert move.__code__ is code


def test_an_edit_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "passes_on.py").write_text("def go(rows):\n    for row in list(rows):\n        rows.append(row)\n")
    monkeypatch.syspath_prepend(tmp_path)
    go = importlib.import_module("passes_on").go
    ends: list[bool] = []

    def right(edited: Edited) -> bool:
        with contextlib.suppress(Exception), edited():
            ends.append(False)
            go([1])
            ends[-1] = True
        return False

    assert find_repair(lambda: go([1]), right, Finding("", vague=True)) is None
    assert False in ends  # of the loop over the list itself
