"""The drawing of a batch: every request where it was, what became of it, and the row that differs."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import torch
from lpkit_conformance.explanation.picture import record_frames
from lpkit_conformance.explanation.timeline import timeline
from lpkit_conformance.hosts import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap
from lpkit_conformance.report.drawing import drawing, svg_file
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject


def data(*ops: Op, host: str = "v1", culprit: tuple[int, str] | None = None, raised: bool = False) -> dict[str, Any]:
    subject = Subject.of("x", object, host, Case(), device=torch.device("cpu"))
    frames, arguments = record_frames(subject, ops, 8, default_host)
    return timeline(frames, ops, arguments, "row", culprit, raised)


def drawn(*ops: Op, **settings: Any) -> ET.Element:
    return drawing(data(*ops, **settings), "a batch")


def texts(root: ET.Element, kind: str) -> list[str]:
    return [item.text or "" for item in root.iter("text") if item.get("class", "").split()[0] == kind]


def shapes(root: ET.Element, kind: str) -> list[ET.Element]:
    return [item for item in root.iter() if kind in item.get("class", "").split() and item.tag != "text"]


def test_a_request_is_one_band_as_long_as_it_stays_in_its_row() -> None:
    root = drawn(Arrive("a"), Arrive("b", None), Step(3))
    assert [band.get("class") for band in root.findall("rect[@rx='7']")] == ["band hue0", "band plain"]
    assert texts(root, "step") == ["1\u20133"]
    assert texts(root, "axis") == ["step", "row 0", "row 1"]


def test_a_move_is_drawn_from_row_to_row() -> None:
    root = drawn(Arrive("a"), Arrive("b"), Step(), Swap(0, 1), Step())
    assert len(shapes(root, "move")) == len(shapes(root, "head")) == 2
    assert "rows 0 \u21c4 1" in texts(root, "event")


def test_a_preempted_request_ends_in_two_bars_and_a_dotted_line_leads_to_where_it_resumes() -> None:
    root = drawn(Arrive("a"), Arrive("b"), Step(), Preempt("a"), Step(2), Resume("a"), Step())
    assert len(shapes(root, "ending")) == 2
    assert [line.get("class") for line in shapes(root, "away")] == ["away hue0"]
    assert {"a preempted", "a resumes"} <= set(texts(root, "event"))


def test_a_request_that_finishes_ends_in_one_bar() -> None:
    assert len(shapes(drawn(Arrive("a"), Arrive("b"), Step(), Finish("b"), Step()), "ending")) == 1


def test_the_row_that_differs_is_marked_once() -> None:
    root = drawn(Arrive("a"), Arrive("b"), Step(3), culprit=(3, "b"))
    (mark,) = [item for item in shapes(root, "culprit") if item.get("rx") == "10"]
    band = next(item for item in shapes(root, "hue1") if item.get("class") == "band hue1")
    assert float(mark.get("y", 0)) < float(band.get("y", 0)) < float(mark.get("y", 0)) + float(mark.get("height", 0))
    assert [item.text for item in root.iter("text") if item.get("class") == "step wrong"] == ["3"]


def test_a_step_that_raises_is_framed_as_a_whole() -> None:
    root = drawn(Arrive("a"), Step(2), Idle(), Step(), raised=True)
    assert [item.text for item in root.iter("text") if item.get("class") == "step wrong"] == ["4"]
    assert "the plugin raises in this step" in texts(root, "legend")


def test_drafts_are_counted_by_their_fate() -> None:
    root = drawn(Arrive("a"), Step(), Speculate(3, 1), host="v2")
    assert (len(shapes(root, "accepted")), len(shapes(root, "rejected"))) == (1, 2)


def test_idle_steps_and_partial_prefills_are_told_apart_from_others() -> None:
    root = drawn(Arrive("a", chunks=1), Step(), Idle(), Step())
    assert len([item for item in shapes(root, "idle") if item.get("rx") is None]) == 1
    assert len(shapes(root, "prefill")) == 1
    assert texts(root, "name") == ["a~", "a"]


def test_many_events_before_a_step_are_counted() -> None:
    root = drawn(*[Arrive(f"r{i}") for i in range(6)], Step(), Finish("r0"), Step())
    assert texts(root, "event") == ["6 arrive", "r0 finishes"]


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
    assert texts(drawn(Arrive("a")), "step") == []
