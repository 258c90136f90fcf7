"""A finding's batch as data: requests, steps, rows, and the events before each step."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.expectation.compare import MOST_TOKENS, differing
from lpkit_conformance.explanation.picture import MOST_POSITIONS, record_frames
from lpkit_conformance.explanation.timeline import MOST_STEPS, timeline
from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Speculate, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.testing import compute_check
from zoo.correct.v1 import ByHand
from zoo.lp202 import StaleOnDecline


def told(*ops: Op, host: str = "v1", culprit: tuple[int, str] | None = None, size: int = 8):
    subject = Subject.of("x", object, host, Case({"extra_args": {"bias": 2.5}}), device=torch.device("cpu"))
    frames, arguments = record_frames(subject, ops, size, default_host)
    found = timeline(frames, ops, arguments, "row", culprit)
    assert json.loads(json.dumps(found)) == found
    return found


def short(step: dict[str, Any]) -> tuple[Any, ...]:
    """Kind of a step, requests by position, tokens, events before it, and drafts."""
    rows = {row["position"]: row["request"] + "~" * row["prefill"] for row in step["rows"]}
    tokens = [row["tokens"] for row in step["rows"]]
    return step["kind"], rows, tokens, [event["op"] for event in step["events"]], step.get("drafts", 0)


@pytest.mark.parametrize(
    ("ops", "settings", "steps"),
    [
        (
            [Arrive("a"), Arrive("b", None), Step(2), Finish("a"), Step(2)],
            {"culprit": (3, "b")},  # later steps are left out
            [
                ("step", {0: "a", 1: "b"}, [5, 5], ["arrive", "arrive"], 0),
                ("step", {0: "a", 1: "b"}, [6, 6], [], 0),
                ("step", {0: "b"}, [7], ["finish"], 0),
            ],
        ),
        (
            [Arrive("a"), Step(), Idle(), Speculate(3, 1)],
            {"host": "v2"},
            [("step", {7: "a"}, [5], ["arrive"], 0), ("idle", {}, [], [], 0), ("step", {7: "a"}, [6], [], 3)],
        ),
        (
            [Arrive("a", chunks=1), Step(2)],
            {},
            [("step", {0: "a~"}, [5], ["arrive"], 0), ("step", {0: "a"}, [5], [], 0)],
        ),
    ],
)
def test_each_step_has_its_rows_and_what_happened_before_it(
    ops: list[Op], settings: dict[str, Any], steps: list[Any]
) -> None:
    assert [short(step) for step in told(*ops, **settings)["steps"]] == steps


def test_the_timeline_names_requests_with_arguments_and_the_row_that_differs_or_the_step_that_raises() -> None:
    batch = [Arrive("a"), Arrive("b", None), Step(2)]
    assert told(*batch)["requests"] == [
        {"id": "a", "plugin": True, "arguments": '{"extra_args": {"bias": 2.5}}'},
        {"id": "b", "plugin": False, "arguments": ""},
    ]
    assert told(*batch, culprit=(2, "b"))["differs"] == {"step": 2, "request": "b", "position": 1}
    assert told(*batch)["raises"] == {"step": 2}


def test_a_long_or_a_large_batch_keeps_the_end_and_the_row_that_differs() -> None:
    steps = MOST_STEPS + 10
    found = told(*mixed_arrivals(40), Step(steps), culprit=(steps, "r39"), size=40)
    assert [found["steps"][0]["step"], found["steps"][-1]["step"]] == [11, steps]
    assert len(found["steps"][-1]["rows"]) == MOST_POSITIONS
    assert found["steps"][-1]["rows"][-1] == {
        "position": 39,
        "request": "r39",
        "tokens": 5 + steps - 1,
        "prefill": False,
    }
    assert found["omitted"] == {"steps": 10, "positions": 40 - MOST_POSITIONS}


def test_the_logits_that_differ_come_with_the_largest_difference_first() -> None:
    before = torch.zeros(64)
    expected, got = before.clone(), before.clone()
    expected[:20] += torch.arange(20) / 2 + 1
    expected[40], got[41], got[42] = float("-inf"), float("-inf"), 1e-7
    expected[50] = got[50] = float("-inf")
    expected[51] = got[51] = float("nan")
    found = differing(before, expected, got)
    assert [item["token"] for item in found["tokens"][:2]] == [40, 41]
    assert found["tokens"][0] == {"token": 40, "model": "0", "alone": "-inf", "batch": "0"}
    assert found["tokens"][2] == {"token": 19, "model": "0", "alone": "10.5", "batch": "0"}
    assert (found["differ"], found["of"], len(found["tokens"])) == (22, 64, MOST_TOKENS)


class RaisesLater(ByHand):
    def moves(self, update: Any) -> None:
        if update.moved:
            raise KeyError("moved")


@pytest.mark.parametrize(("cls", "raises"), [(StaleOnDecline, False), (RaisesLater, True)])
def test_a_recorded_trace_is_drawn_like_a_program(cls: Any, raises: bool) -> None:
    finding = compute_check("LP220", cls, case=cls.CASE).finding
    assert finding is not None and finding.timeline is not None
    found, (header, *lines) = finding.timeline, finding.picture
    assert header.startswith("step") and lines
    numbers = [step["step"] for step in found["steps"]]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert any(event["op"] == "arrive" for step in found["steps"] for event in step["events"])
    users = [request for request in found["requests"] if request["plugin"]]
    assert users and all("bias" in request["arguments"] for request in users)
    if raises:
        assert found["differs"] is None and found["raises"] == {"step": numbers[-1]}
    else:
        assert found["differs"]["step"] == numbers[-1] == int(finding.where["step"])
        assert str(found["differs"]["position"]) == finding.where["row"]
        assert any(f">{found['differs']['request']}<" in line.replace("(", "").replace(")", "") for line in lines)
