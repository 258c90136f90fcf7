"""The batch over a program as data, step by step: what pages and other programs draw it from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lpkit_conformance.explanation.picture import Frame, chosen, draw
from lpkit_conformance.explanation.steps import RequestRow
from lpkit_conformance.programs.as_json import op_to_json
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Idle, Op, Speculate, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject

MOST_STEPS = 48
MOST_CHARACTERS = 200
"""Of a request's arguments."""


def with_batch(
    finding: Finding,
    subject: Subject,
    frames: Sequence[Frame],
    ops: Sequence[Op],
    arguments: Mapping[str, str | None],
    culprit: tuple[int, str] | None,
    first: int = 1,
    rows: Sequence[RequestRow] = (),
) -> Finding:
    """Return the finding with its batch as a picture and as data, and with the ``rows`` of the request that differs.

    Without a culprit, the plugin raised.
    """
    unit = HOSTS[subject.setup.host].position
    return replace(
        finding,
        picture=draw(frames, arguments, unit, culprit),
        timeline=timeline(frames, ops, arguments, unit, culprit, first),
        steps=tuple(
            row.view(text) for row, text in _surroundings(rows[-MOST_STEPS:], frames, ops, unit, first, culprit)
        ),
    )


def _surroundings(
    rows: Sequence[RequestRow],
    frames: Sequence[Frame],
    ops: Sequence[Op],
    unit: str,
    first: int,
    culprit: tuple[int, str] | None,
) -> Iterator[tuple[RequestRow, str]]:
    """Yield each row with its step, its position, the number of other requests, and what happened right before."""
    by_step = {frame.step: frame for frame in frames}
    events = {number: before for number, _, before in steps_of(ops, first)}
    for row in rows:
        others = len(by_step[row.step].positions) - 1 if row.step in by_step else 0
        at = _position_of(by_step, (row.step, culprit[1])) if culprit else None
        company = f"with {others} other request{'s' * (others > 1)}" if others else "no other request"
        before = f"; right before: {'; '.join(collapse(events.get(row.step, ())))}" if events.get(row.step) else ""
        yield row, _short(f"step {row.step}, {unit} {at}, {company}{before}")


def timeline(
    frames: Sequence[Frame],
    ops: Sequence[Op],
    arguments: Mapping[str, str | None],
    unit: str,
    culprit: tuple[int, str] | None,
    first: int = 1,
) -> dict[str, Any]:
    """``{"unit", "requests", "steps", "differs", "raises", "omitted"}``, as JSON can hold it.

    Args:
        frames: what the batch looked like in every step with an ``apply``.
        ops: the operations that led there.
        arguments: of every request as text; None for one without the plugin.
        unit: ``row`` or ``slot``.
        culprit: step and request of the row that differs; later steps are left out. None: the plugin raised in the
            last step.
        first: the number of the first step.
    """
    by_step = {frame.step: frame for frame in frames}
    steps = [
        {**_step(number, op, events), "rows": _rows(by_step[number]) if number in by_step else []}
        for number, op, events in steps_of(ops, first)
        if culprit is None or number <= culprit[0]
    ]
    kept = steps[-MOST_STEPS:]
    everyone = {row["position"] for step in kept for row in step["rows"]}
    shown = chosen([by_step[step["step"]] for step in kept if step["step"] in by_step], culprit) if everyone else []
    for step in kept:
        step["rows"] = [row for row in step["rows"] if row["position"] in shown]
    present = {row["request"] for step in kept for row in step["rows"]}
    return {
        "unit": unit,
        "requests": [
            {"id": name, "plugin": text is not None, "arguments": _short(text or "")}
            for name, text in arguments.items()
            if name in present
        ],
        "steps": kept,
        "differs": {"step": culprit[0], "request": culprit[1], "position": _position_of(by_step, culprit)}
        if culprit
        else None,
        "raises": {"step": kept[-1]["step"]} if culprit is None and kept else None,
        "omitted": {"steps": len(steps) - len(kept), "positions": len(everyone) - len(shown)},
    }


def steps_of(ops: Sequence[Op], first: int = 1) -> Iterator[tuple[int, Op, list[Op]]]:
    """Yield number and operation of every step, and what happened to requests right before it."""
    number = first - 1
    events: list[Op] = []
    for op in ops:
        if not isinstance(op, Step | Idle | Speculate):
            events.append(op)
            continue
        for _ in range(op.count if isinstance(op, Step) else 1):
            number += 1
            yield number, op, events
            events = []


def _step(number: int, op: Op, events: Sequence[Op]) -> dict[str, Any]:
    drafts = {"drafts": op.drafts, "accepted": op.accepted} if isinstance(op, Speculate) else {}
    kind = "idle" if isinstance(op, Idle) else "step"
    return {"step": number, "kind": kind, **drafts, "events": [op_to_json(event) for event in events]}


def _rows(frame: Frame) -> list[dict[str, Any]]:
    return [
        {"position": at, "request": name, "tokens": frame.tokens.get(name, 0), "prefill": name in frame.prefills}
        for at, name in sorted(frame.positions.items())
    ]


def _position_of(by_step: Mapping[int, Frame], culprit: tuple[int, str]) -> int | None:
    frame = by_step.get(culprit[0])
    held = frame.positions.items() if frame else ()
    return next((position for position, request in held if request == culprit[1]), None)


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
