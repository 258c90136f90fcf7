"""The lines that no request of the cases reaches, and the case that reaches some of them."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit.v1 import BatchUpdate
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.calls import calling
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.suite.reached import reaching, unreached
from zoo.bases import Late
from zoo.correct.v1 import Bias, ByHand
from zoo.correct.v1_history import History
from zoo.lp201.portable import ScalesToALeast
from zoo.lp201.v1 import UntilItsClosing
from zoo.lp201.v1_history import BetweenMarks
from zoo.lp502 import NoSeventhInARow
from zoo.lp504 import LowersARing

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


class AfterItsMarks(Late):
    """Adds more if the prompt ends with its marks."""

    CASE = {"extra_args": {"bias": 2.5, "token": 7, "marks": [21, 22, 23]}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return state and (*state, params.max_tokens)

    def more(self, prompt: list[int], outputs: list[int], most: int) -> bool:
        return prompt[-3:] == [21, 22, 23]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, *state) in self.rows.items():
            logits[row, where] += bias
            if self.more(*state):
                logits[row, where] += bias
        return logits


class AfterMany(AfterItsMarks):
    """Adds more from its 60th output of a token on."""

    CASE = Late.CASE

    def more(self, prompt: list[int], outputs: list[int], most: int) -> bool:
        return outputs.count(7) >= 60


class AtTheEnd(AfterItsMarks):
    """Adds more shortly before the end."""

    CASE = Late.CASE

    def more(self, prompt: list[int], outputs: list[int], most: int) -> bool:
        return most - len(outputs) < 3


def noted(cls: Any, cases: tuple[Case, ...] = (CASE,), **plan: Any) -> list[str]:
    session = Session("x", cls, Plan(cases=cases, **plan))
    assert session.requests
    return session.notes


def test_lines_that_never_ran_are_named_with_their_branch() -> None:
    first = inspect.getsourcelines(NeverBeyond.apply)[1]
    method = inspect.getsourcelines(NeverBeyond.left_over)[1]
    assert noted(NeverBeyond) == [
        f"never reached by these cases: lines {first + 3}-{first + 4} of `apply` (if bias > 255), "
        f"line {first + 6} of `apply` (if bias > 100), line {method + 1} of `left_over` (never called)"
    ]


def test_a_class_whose_lines_all_run_has_no_note_and_a_quick_run_looks_for_none() -> None:
    assert noted(ByHand) == []
    assert noted(NeverBeyond, quick=True) == []
    assert not list(unreached(object(), {}))


class InBrackets(Bias):
    """Has a condition of several lines, and it comes first in its branch."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            if (
                where >= 0  # always
                and bias < 1000
            ):
                logits[row, where] += bias
        return logits


def test_a_condition_of_several_lines_has_run_if_one_of_them_has() -> None:
    assert noted(InBrackets) == []


class LeadsOn(Bias):
    """Raises the tokens of its phrases, one by one, which no argument names."""

    AFTER = {40: 41, 41: 42}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return state and (state[1], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, outputs) in self.rows.items():
            following = 40
            if outputs and outputs[-1] in self.AFTER:
                following = self.AFTER[outputs[-1]]
            logits[row, following] += bias
        return logits


def test_tokens_that_the_plugin_raises_are_generated_and_their_case_plays_all_programs() -> None:
    session = Session("x", LeadsOn, Plan(cases=(CASE,)))
    added = replace(CASE, output_token_ids=(40, 41, 42, 40, 41, 42, 40, 41))
    assert session.requests.cases == (CASE, added)
    assert [subject.setup.turn for subject in session.subjects("v1")] == [(0, 1), (0, 1)]


class EarlyReturns(History):
    """Has branches for no request of its own, a masked row, unknown tokens, shorter outputs, and a full cache."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lengths: dict[int, int] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return state and [*state, 0]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.rows:
            return logits
        for row, state in self.rows.items():
            weight, outputs, read = state
            if len(outputs) < read:
                logits[row, 6] -= weight
            state[2] = self.lengths[row] = len(outputs)
            if len(self.lengths) > 64:
                self.lengths.clear()
            if -1 in outputs:
                continue
            if logits[row, 5] == -math.inf:
                continue
            logits[row, 5] -= weight
        return logits


def test_what_an_engine_does_by_itself_is_not_missing() -> None:
    assert noted(EarlyReturns, cases=(Case.parse(History.CASE),)) == []


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (UntilItsClosing, {"output_token_ids": (21, 22, 23, 24)}),
        (NoSeventhInARow, {"output_token_ids": (3,) * 8}),
        (ScalesToALeast, {"fields": {"extra_args": {"scales_by": 0.5, "scales_least": 2.5}}}),
        (AfterItsMarks, {"prompt_token_ids": (7, 21, 22, 23)}),
        (AfterMany, {"output_token_ids": (7,) * 8 + (3,) * 8, "generated": 315}),
        (AtTheEnd, {"fields": {**Late.CASE, "max_tokens": 8}}),
    ],
)
def test_a_case_that_reaches_further_lines_is_added(cls: Any, given: dict[str, Any]) -> None:
    case = Case.parse(cls.CASE)
    session = Session("x", cls, Plan(cases=(case,)))
    assert session.requests.cases == (case, replace(case, **given))
    (note,) = session.notes
    assert note.startswith(f"case {session.requests.cases[1].text} was added: it reaches line")


def test_tokens_that_an_expression_compares_with_are_generated_if_they_get_other_edits() -> None:
    case = Case.parse(BetweenMarks.CASE)
    session = Session("x", BetweenMarks, Plan(cases=(case,)))
    assert session.requests.cases == (case, replace(case, output_token_ids=(301, 302)))
    (note,) = session.notes
    assert note.endswith(
        "was added: its output tokens get other edits than tokens that the class does not compare with"
    )


class ComparesAPlace(Bias):
    """Compares with a number that is no token's."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias + (row == 301)
        return logits


def test_a_number_that_is_no_token_adds_no_case() -> None:
    assert noted(ComparesAPlace) == []


def test_a_branch_that_only_a_long_life_reaches_is_not_missing() -> None:
    assert noted(LowersARing, cases=(Case.parse(History.CASE),)) == []


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
