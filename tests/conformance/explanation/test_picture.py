"""Operations in a finding: lines that stay short, and a table of the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.explanation.picture import MOST_POSITIONS, MOST_STEPS, draw, record_frames
from lpkit_conformance.hosts import default_host
from lpkit_conformance.hosts.v2 import Manner, V2Host
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.programs.shrink import joined_steps, shrink, simplify, single_steps
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject


class Untouchable:
    """A picture is drawn without the plugin."""

    def __init__(self, *_: object) -> None:
        raise AssertionError("the plugin was made")


def picture(*ops: Op, host: str = "v1", culprit: tuple[int, str] | None = None, size: int = 8, make=default_host):
    subject = Subject.of("x", Untouchable, host, Case(), device=torch.device("cpu"))
    frames, arguments = record_frames(subject, ops, size, make)
    return list(draw(frames, arguments, "row" if host == "v1" else "slot", culprit))


# -- the table ---------------------------------------------------------------------------------------------------


PLAIN = "(in brackets: without the plugin; > <: the row that differs)"
AB = (Arrive("a"), Arrive("b"))


@pytest.mark.parametrize(
    ("ops", "settings", "table"),
    [
        (  # a one-way move
            [*AB, Arrive("c", None), Step(), Finish("a"), Step()],
            {"culprit": (2, "c")},
            [
                "step  row 0         row 1  row 2",
                "1     a             b      (c)",
                "2     >(c)< from 2  b      -",
                PLAIN,
            ],
        ),
        (  # a swap
            [*AB, Step(), Swap(0, 1), Step()],
            {},
            ["step  row 0     row 1", "1     a         b", "2     b from 1  a from 0"],
        ),
        ([Arrive("a"), Step(5)], {}, ["step  row 0", "1-5   a"]),
        (
            [Arrive("a", 0, 9, chunks=2), Arrive("b"), Step(3)],
            {},
            ["step  row 0  row 1", "1-2   a~     b", "3     a      b", "(~: partial prefill)"],
        ),
        (  # a preempted request comes back
            [*AB, Step(), Preempt("a"), Step(), Arrive("c"), Resume("a"), Step()],
            {},
            [
                "step  row 0     row 1  row 2",
                "1     a         b      -",
                "2     b from 1  -      -",
                "3     b         c      a",
            ],
        ),
        (
            [*AB, Step(), Finish("b"), Arrive("c", None), Step()],
            {"host": "v2", "culprit": (2, "c")},
            ["step  slot 6  slot 7", "1     b       a", "2     >(c)<   a", PLAIN],
        ),
        ([Arrive("a")], {}, []),
    ],
)
def test_the_table_shows_what_becomes_of_rows(ops: list[Op], settings: dict[str, Any], table: list[str]) -> None:
    assert picture(*ops, **settings) == table


def test_the_step_of_the_culprit_has_a_line_of_its_own() -> None:
    assert [line.split()[0] for line in picture(Arrive("a"), Step(5), culprit=(4, "a"))[1:3]] == ["1-3", "4"]


def test_nothing_is_shown_after_the_row_that_differs() -> None:
    lines = picture(Arrive("a"), Step(), Arrive("b"), Step(), Arrive("c"), Step(), culprit=(2, "b"))
    assert [line.split()[0] for line in lines] == ["step", "1", "2", "(>"]


def test_split_calls_and_drafts_are_one_line_per_step() -> None:
    def split(subject: Subject, size: int) -> V2Host:
        return V2Host(subject, size, Manner(split=3))

    assert picture(*mixed_arrivals(3), Step(), Speculate(2, 1), host="v2", make=split)[1:2] == [
        "1-2   (r2)    r1      r0"
    ]


def test_a_large_batch_shows_the_positions_that_matter() -> None:
    lines = picture(*mixed_arrivals(70), Step(), Finish("r60"), Step(), culprit=(2, "r69"), size=80)
    head = lines[0].split("  ")
    assert sum("row" in cell for cell in head) == MOST_POSITIONS
    assert "row 60" in lines[0] and "row 69" in lines[0]
    assert ">r69< from 69" in lines[2]
    assert lines[-1].endswith("60 other rows not shown)")
    assert max(map(len, lines)) <= 120


def test_a_long_run_shows_its_last_steps() -> None:
    ops = [op for i in range(30) for op in (Arrive(f"r{i}"), Step(), Finish(f"r{i}"), Idle())]
    lines = picture(*ops, culprit=(59, "r29"))
    assert len(lines) == 1 + MOST_STEPS + 1
    assert lines[MOST_STEPS].split() == ["59", ">r29<"]


# -- the lines ---------------------------------------------------------------------------------------------------


def arrivals(*variants: int | None) -> list[Op]:
    return [Arrive(f"r{i}", variant) for i, variant in enumerate(variants)]


@pytest.mark.parametrize(
    ("ops", "lines"),
    [
        ([], []),
        ([*mixed_arrivals(70), Step()], ["r0..r69 arrive, every third without the plugin, 17 of them greedy", "step"]),
        (arrivals(0, 1, 2, 3), ["r0..r3 arrive"]),
        (arrivals(None, None, None, None), ["r0..r3 arrive without the plugin"]),
        (arrivals(0, None, 0, None), ["r0..r3 arrive, every second without the plugin"]),
        (arrivals(0, None, None, 0, 1), ["r0..r4 arrive, 2 of them without the plugin"]),
        (arrivals(0, 1, None, 2), ["r0..r3 arrive, 1 of them without the plugin"]),
        ([Finish(f"r{i}") for i in range(0, 264, 2)], ["r0, r2 .. r262 (132 requests) finish"]),
        ([Finish(f"r{i}") for i in (3, 1, 9, 4)], ["r3, r1, r9 and r4 finish"]),
        ([Preempt(name) for name in "abcd"], ["a, b, c and d are preempted"]),
        ([Resume(f"r{i}") for i in range(4)], ["r0..r3 resume"]),
        ([Idle(), Idle(), Step()], ["step without tokens (2 times)", "step"]),
        ([Step(), Step(), Step(), Finish("a"), Step()], ["step (3 times)", "a finishes", "step"]),
        (ops := [Arrive("a"), Arrive("b", None), Finish("a"), Step(2)], [str(op) for op in ops]),  # few
        (ops := [Arrive(f"r{i}", 0, chunks=1) for i in range(5)], [str(op) for op in ops]),  # special
    ],
)
def test_similar_operations_share_a_line(ops: list[Op], lines: list[str]) -> None:
    assert list(collapse(ops)) == lines


# -- shrinking ---------------------------------------------------------------------------------------------------


def test_steps_shrink_one_by_one() -> None:
    ops = single_steps([Arrive("a"), Step(9), Finish("a"), Step(5)])

    def fails(candidate: list[Op]) -> str | None:
        steps = sum(isinstance(op, Step) for op in candidate)
        return "fails" if Arrive("a") in candidate and steps >= 3 else None

    small, outcome = shrink(ops, "fails", fails)
    assert outcome == "fails"
    assert joined_steps(small) == [Arrive("a"), Step(3)]


def test_joined_steps_are_the_same_program() -> None:
    ops = [Step(2), Idle(), Step(), Step(3), Swap(0, 1), Step()]
    assert joined_steps(single_steps(ops)) == [Step(2), Idle(), Step(4), Swap(0, 1), Step()]


def test_a_program_loses_what_its_failure_does_not_need() -> None:
    ops: list[Op] = [Arrive("a", 0, 100, chunks=2, greedy=True), Speculate(2, 1), Preempt("a"), Resume("a", True)]

    def needs_chunks(found: Any) -> bool | None:
        return found[0].chunks == 2 or None

    assert simplify(ops, True, needs_chunks)[0] == [Arrive("a", 0, chunks=2), Step(), Preempt("a"), Resume("a")]
