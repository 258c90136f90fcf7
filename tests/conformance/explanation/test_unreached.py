"""The lines that no request of the cases reaches."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit.v1 import BatchUpdate
from lpkit_conformance.explanation.unreached import reaching, unreached
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.calls import calling
from lpkit_conformance.suite.in_process import Session
from zoo.correct.v1 import Bias, ByHand

CASE = Case.parse(Bias.CASE)


class NeverBeyond(Bias):
    """Has a branch for outputs that no case has, early returns, and refusals."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        if batch_update.batch_size > 1000:
            return
        super().update_state(batch_update)
        if len(self.rows) > 1000:
            raise ValueError("too many")

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if bias > 255:
                logits[row, where] += 255
                self.rows.clear()
            elif bias > 100:
                logits[row, where] += 100
            else:
                logits[row, where] += bias
        return logits

    def left_over(self) -> None:
        self.rows.clear()


def noted(cls: Any, **plan: Any) -> list[str]:
    session = Session("x", cls, Plan(cases=(CASE,), **plan))
    assert session.requests
    return session.notes


def test_lines_that_never_ran_are_named_with_their_branch() -> None:
    first = inspect.getsourcelines(NeverBeyond.apply)[1]
    method = inspect.getsourcelines(NeverBeyond.left_over)[1]
    assert noted(NeverBeyond) == [
        f"never reached by these cases: lines {first + 3}-{first + 4} of `apply` (if bias > 255), "
        f"line {first + 6} of `apply` (if bias > 100), line {method + 1} of `left_over`"
    ]


def test_a_class_whose_lines_all_run_has_no_note_and_a_selection_looks_for_none() -> None:
    assert noted(ByHand) == []
    assert noted(NeverBeyond, select=("LP101",)) == []
    assert not list(unreached(object(), {}))


@pytest.mark.parametrize(("folder", "named"), [("beside", True), ("site-packages", False)])
def test_lines_of_a_library_that_the_class_uses_are_not_its_own(tmp_path: Path, folder: str, named: bool) -> None:
    file = tmp_path / folder / "tokens.py"
    file.parent.mkdir()
    file.write_text("def of(text):\n    if text:\n        return 1\n    return 2\n", encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    with reaching(NeverBeyond) as ran, calling("apply"):
        names["of"]("text")
    notes = "".join(unreached(NeverBeyond, ran))
    assert ("line 4 of `of`" in notes) is named
