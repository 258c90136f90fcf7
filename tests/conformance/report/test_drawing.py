"""The drawing of a batch: every request where it was, what became of it, and the row that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from lpkit_conformance.explanation.picture import record_frames
from lpkit_conformance.explanation.timeline import timeline
from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.report.drawing import drawing, svg_file
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject

NOBODY = (99, "")
"""A row that differs after the drawn steps."""


def data(*ops: Op, host: str = "v1", culprit: tuple[int, str] | None = NOBODY) -> dict[str, Any]:
    subject = Subject.of("x", object, host, Case(), device=torch.device("cpu"))
    frames, arguments = record_frames(subject, ops, 8, default_host)
    return timeline(frames, ops, arguments, "row", culprit)


def drawn(*ops: Op, **settings: Any) -> ET.Element:
    return drawing(data(*ops, **settings), "a batch")


def shapes(root: ET.Element, kind: str) -> list[ET.Element]:
    return [item for item in root.iter() if kind in item.get("class", "").split() and item.tag != "text"]


AB = (Arrive("a"), Arrive("b"))
PREEMPTED = (*AB, Step(), Preempt("a"), Step(2), Resume("a"), Step())


@pytest.mark.parametrize(
    ("ops", "settings", "shown", "counts"),
    [
        ([Arrive("a"), Arrive("b", None), Step(3)], {}, {"step": ["1\u20133"]}, {"band": 2}),
        ([*AB, Step(), Swap(0, 1), Step()], {}, {"event": ["rows 0 \u21c4 1"]}, {"move": 2, "head": 2}),
        ([*AB, Step(), Finish("b"), Step()], {}, {"event": ["b finishes"]}, {"ending": 1}),
        (PREEMPTED, {}, {"event": ["a preempted", "a resumes"]}, {"ending": 2, "away": 1}),
        ([*AB, Step(3)], {"culprit": (3, "b")}, {"step wrong": ["3"], "badge": ["!"]}, {"badge": 1}),
        (
            [Arrive("a"), Step(2), Idle(), Step()],
            {"culprit": None},
            {"step wrong": ["4"], "legend": ["the plugin raises in this step"]},
            {},
        ),
        ([Arrive("a"), Step(), Speculate(3, 1)], {"host": "v2"}, {}, {"accepted": 1, "rejected": 2}),
        ([Arrive("a", chunks=1), Step(), Idle(), Step()], {}, {"name": ["a~", "a"]}, {"prefill": 1}),
        (
            [*[Arrive(f"r{i}") for i in range(6)], Step(), Finish("r0"), Step()],
            {},
            {"event": ["6 arrive", "r0 finishes"]},
            {"ending": 1},
        ),
    ],
)
def test_what_becomes_of_requests_is_drawn(
    ops: Sequence[Op], settings: dict[str, Any], shown: dict[str, list[str]], counts: dict[str, int]
) -> None:
    root = drawn(*ops, **settings)
    for kind, words in shown.items():
        assert set(words) <= {item.text for item in root.iter("text") if kind in item.get("class", "")}, kind
    # Samples of the legend are shapes, too: they have another radius than bands.
    drawings = {kind: [item for item in shapes(root, kind) if item.get("rx") != "4"] for kind in counts}
    assert {kind: len(items) for kind, items in drawings.items()} == counts


def test_bands_have_a_colour_per_request_and_none_without_the_plugin() -> None:
    bands = drawn(Arrive("a"), Arrive("b", None), Arrive("c"), Step()).findall("rect[@rx='7']")
    assert [band.get("class") for band in bands] == ["band hue0", "band plain", "band hue2"]


def test_the_mark_is_around_the_row_that_differs() -> None:
    root = drawn(*AB, Step(3), culprit=(3, "b"))
    (mark,) = [item for item in shapes(root, "culprit") if item.get("rx") == "10"]
    band = next(item for item in shapes(root, "hue1") if item.get("class") == "band hue1")
    assert float(mark.get("y", 0)) < float(band.get("y", 0)) < float(mark.get("y", 0)) + float(mark.get("height", 0))


def test_everything_lies_within_the_drawing() -> None:
    root = drawn(Arrive("a"), Arrive("b", None, 9, 2), Step(4), Swap(0, 1), Step(), Idle(), Step(), culprit=(6, "a"))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for item in root.iter("rect"):
        assert 0 <= float(item.get("x", 0)) <= float(item.get("x", 0)) + float(item.get("width", 0)) <= width
        assert 0 <= float(item.get("y", 0)) <= float(item.get("y", 0)) + float(item.get("height", 0)) <= height
    assert all(0 <= float(item.get("y", 0)) <= height for item in root.iter("text"))


def test_a_file_has_its_own_colours_for_light_and_dark() -> None:
    text = svg_file(data(Arrive("a"), Step()), "a <batch>")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in text
    assert root[0].text == "a <batch>"


def test_a_batch_that_never_ran_is_an_empty_drawing() -> None:
    assert not [item for item in drawn(Arrive("a")).iter("text") if item.get("class") == "step"]
