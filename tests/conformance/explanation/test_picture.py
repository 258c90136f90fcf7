"""Operations in a finding: lines that stay short, and a table of the batch."""

from __future__ import annotations

import torch
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.explanation.picture import MOST_POSITIONS, MOST_STEPS, draw, record_frames
from lpkit_conformance.hosts import default_host
from lpkit_conformance.hosts.v2 import Manner, V2Host
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.programs.shrink import joined_steps, shrink, single_steps
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


def test_a_one_way_move_is_seen_and_the_row_that_differs_marked() -> None:
    ops = (Arrive("a"), Arrive("b"), Arrive("c", None), Step(), Finish("a"), Step())
    assert picture(*ops, culprit=(2, "c")) == [
        "step  row 0         row 1  row 2",
        "1     a             b      (c)",
        "2     >(c)< from 2  b      -",
        "(in brackets: without the plugin; > <: the row that differs)",
    ]


def test_a_swap_shows_both_ways() -> None:
    assert picture(Arrive("a"), Arrive("b"), Step(), Swap(0, 1), Step()) == [
        "step  row 0     row 1",
        "1     a         b",
        "2     b from 1  a from 0",
    ]


def test_like_steps_share_a_line_and_the_culprits_has_its_own() -> None:
    ops = (Arrive("a"), Step(5))
    assert picture(*ops) == ["step  row 0", "1-5   a"]
    assert [line.split()[0] for line in picture(*ops, culprit=(4, "a"))[1:3]] == ["1-3", "4"]


def test_nothing_is_shown_after_the_row_that_differs() -> None:
    lines = picture(Arrive("a"), Step(), Arrive("b"), Step(), Arrive("c"), Step(), culprit=(2, "b"))
    assert [line.split()[0] for line in lines] == ["step", "1", "2", "(>"]


def test_partial_prefills_are_marked() -> None:
    lines = picture(Arrive("a", 0, 9, chunks=2), Arrive("b"), Step(3))
    assert lines[1:] == ["1-2   a~     b", "3     a      b", "(~: partial prefill)"]


def test_a_preempted_request_leaves_its_row_and_comes_back() -> None:
    ops = (Arrive("a"), Arrive("b"), Step(), Preempt("a"), Step(), Arrive("c"), Resume("a"), Step())
    assert picture(*ops)[1:] == ["1     a         b      -", "2     b from 1  -      -", "3     b         c      a"]


def test_on_v2_requests_keep_their_slots() -> None:
    ops = (Arrive("a"), Arrive("b"), Step(), Finish("b"), Arrive("c", None), Step())
    assert picture(*ops, host="v2", culprit=(2, "c")) == [
        "step  slot 6  slot 7",
        "1     b       a",
        "2     >(c)<   a",
        "(in brackets: without the plugin; > <: the row that differs)",
    ]


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


def test_without_steps_there_is_no_picture() -> None:
    assert picture(Arrive("a")) == []


# -- the lines ---------------------------------------------------------------------------------------------------


def test_repeated_arrivals_share_a_line() -> None:
    assert collapse([*mixed_arrivals(70), Step()]) == (
        "r0..r69 arrive, every third without the plugin, 17 of them greedy",
        "step",
    )


def test_arrivals_say_how_many_do_without_the_plugin() -> None:
    def arrivals(*variants: int | None) -> tuple[str, ...]:
        return collapse([Arrive(f"r{i}", variant) for i, variant in enumerate(variants)])

    assert arrivals(0, 1, 2, 3) == ("r0..r3 arrive",)
    assert arrivals(None, None, None, None) == ("r0..r3 arrive without the plugin",)
    assert arrivals(0, None, 0, None) == ("r0..r3 arrive, every second without the plugin",)
    assert arrivals(0, None, None, 0, 1) == ("r0..r4 arrive, 2 of them without the plugin",)
    assert arrivals(0, 1, None, 2) == ("r0..r3 arrive, 1 of them without the plugin",)


def test_departures_share_a_line_too() -> None:
    assert collapse([Finish(f"r{i}") for i in range(0, 264, 2)]) == ("r0, r2 .. r262 (132 requests) finish",)
    assert collapse([Finish(f"r{i}") for i in (3, 1, 9, 4)]) == ("r3, r1, r9 and r4 finish",)
    assert collapse([Preempt(name) for name in "abcd"]) == ("a, b, c and d are preempted",)
    assert collapse([Resume(f"r{i}") for i in range(4)]) == ("r0..r3 resume",)


def test_a_few_operations_are_told_one_by_one() -> None:
    ops = (Arrive("a"), Arrive("b", None), Finish("a"), Step(2))
    assert collapse(ops) == tuple(str(op) for op in ops)


def test_special_arrivals_are_told_one_by_one() -> None:
    ops = [Arrive(f"r{i}", 0, chunks=1) for i in range(5)]
    assert collapse(ops) == tuple(str(op) for op in ops)


def test_repetitions_are_counted() -> None:
    assert collapse([Idle(), Idle(), Step()]) == ("step without tokens (2 times)", "step")


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
