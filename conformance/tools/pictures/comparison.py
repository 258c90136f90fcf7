"""How a check compares: every row of the batch with the same request alone, on a planted defect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from lpkit.runtime import Request, StepResult, V1Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance import examples
from lpkit_conformance.oracle.picture import Frame
from lpkit_conformance.oracle.timeline import timeline
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step
from lpkit_conformance.report.drawing import CELL, COLUMN, GAP, LEFT, ROW, drawing
from lpkit_conformance.report.svg import add, label

from pictures.canvas import canvas, finished, place

DEFECT = "LP203"
OPS: tuple[Op, ...] = (
    *(Arrive("A"), Arrive("B"), Step()),
    *(Arrive("C"), Step()),
    *(Finish("A"), Arrive("D", variant=None), Step()),
)
USES = {"A": True, "B": True, "C": True, "D": False}


def picture() -> str:
    """The batch, and below it each request in an instance of its own, column by column."""
    root = canvas("Each row of the batch is compared with the same request alone; the row of D differs")
    seen = list(play(OPS))
    frames = [
        Frame(step, {row: item.request_id for row, item in enumerate(result.rows)}, frozenset(), {})
        for step, result in seen
    ]
    differs = [(step, name) for step, name, same in verdicts(seen) if not same]
    arguments = {name: "" if uses else None for name, uses in USES.items()}
    label(root, "heading", 4, 14, "In the batch")
    inner = drawing(timeline(frames, OPS, arguments, "row", differs[0]), "In the batch")
    width, height = place(root, inner, 24)
    top = height + 56
    label(root, "heading", 4, top - 10, "Alone, each in an instance of its own")
    hues = {name: f"hue{number}" if USES[name] else "plain" for number, name in enumerate(USES)}
    for step, name, same in verdicts(seen):
        x, y = LEFT + COLUMN * (step - 1) + GAP / 2, top + 6 + ROW * list(USES).index(name)
        add(root, "rect", f"band {hues[name]}", x=x, y=y, width=COLUMN - GAP, height=CELL, rx=7)
        label(root, f"name {hues[name]}", x + 16, y + CELL / 2 + 4, name)
        label(root, "strong" if same else "strong wrong", x + 28, y + CELL / 2 + 4, "equal" if same else "differs")
    for number, name in enumerate(USES):
        label(root, "axis", 4, top + 6 + ROW * number + CELL / 2 + 4, f"{name} alone")
    return finished(root, width, top + 6 + ROW * len(USES))


def play(ops: tuple[Op, ...]) -> Iterator[tuple[int, StepResult]]:
    """Number and result of each step, with the wrong processor."""
    engine = V1Engine([_wrong()], device="cpu")
    number = 0
    for op in ops:
        if isinstance(op, Arrive):
            engine.add(_request(op.request))
        elif isinstance(op, Finish):
            engine.finish(op.request)
        elif isinstance(op, Step):
            number += 1
            yield number, engine.step()


def verdicts(seen: list[tuple[int, StepResult]]) -> Iterator[tuple[int, str, bool]]:
    """(step, request, whether its row is what it is alone)."""
    alone = {name: [result for _, result in play((Arrive(name), *[Step()] * 3))] for name in USES}
    for step, result in seen:
        assert result.processed is not None
        for row, item in enumerate(result.rows):
            expected = alone[item.request_id].pop(0).processed
            assert expected is not None
            yield step, item.request_id, torch.equal(result.processed[row], expected[0])


def _wrong() -> type[Any]:
    example = examples.example(f"{DEFECT}.diff")
    namespace: dict[str, Any] = {"__name__": "wrong"}
    exec(compile(example.wrong, DEFECT, "exec", dont_inherit=True), namespace)
    found: type[Any] = namespace["Echo"]
    return found


def _request(name: str) -> Request:
    number = list(USES).index(name)
    params = SamplingParams(temperature=0.0, extra_args={"echo": 2.0 + number} if USES[name] else None)
    return Request(name, params, [number + 1, number + 2])
