"""The batch over a program as data, step by step: what pages and other programs draw it from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lpkit_conformance.explanation.picture import Frame, chosen, draw
from lpkit_conformance.programs.as_json import op_to_json
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
) -> Finding:
    """Return the finding with its batch as a picture and as data; without a culprit, the plugin raised."""
    unit = HOSTS[subject.setup.host].position
    return replace(
        finding,
        picture=draw(frames, arguments, unit, culprit),
        timeline=timeline(frames, ops, arguments, unit, culprit, culprit is None, first),
    )


def timeline(
    frames: Sequence[Frame],
    ops: Sequence[Op],
    arguments: Mapping[str, str | None],
    unit: str,
    culprit: tuple[int, str] | None,
    raised: bool = False,
    first: int = 1,
) -> dict[str, Any]:
    """``{"unit", "requests", "steps", "differs", "raises", "omitted"}``, as JSON can hold it.

    Args:
        frames: what the batch looked like in every step with an ``apply``.
        ops: the operations that led there.
        arguments: of every request as text; None for one without the plugin.
        unit: ``row`` or ``slot``.
        culprit: step and request of the row that differs; later steps are left out.
        raised: the plugin raised in the last step.
        first: the number of the first step.
    """
    by_step = {frame.step: frame for frame in frames}
    steps = [
        {**step, "rows": _rows(by_step[step["step"]]) if step["step"] in by_step else []}
        for step in _steps(ops, first)
        if culprit is None or step["step"] <= culprit[0]
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
        "raises": {"step": kept[-1]["step"]} if raised and kept else None,
        "omitted": {"steps": len(steps) - len(kept), "positions": len(everyone) - len(shown)},
    }


def _steps(ops: Sequence[Op], first: int) -> Iterator[dict[str, Any]]:
    """Number and kind of every step, and what happened to requests right before it."""
    number = first - 1
    events: list[dict[str, Any]] = []
    for op in ops:
        if not isinstance(op, Step | Idle | Speculate):
            events.append(op_to_json(op))
            continue
        drafts = {"drafts": op.drafts, "accepted": op.accepted} if isinstance(op, Speculate) else {}
        for _ in range(op.count if isinstance(op, Step) else 1):
            number += 1
            yield {"step": number, "kind": "idle" if isinstance(op, Idle) else "step", **drafts, "events": events}
            events = []


def _rows(frame: Frame) -> list[dict[str, Any]]:
    return [
        {
            "position": position,
            "request": request,
            "tokens": frame.tokens.get(request, 0),
            "prefill": request in frame.prefills,
        }
        for position, request in sorted(frame.positions.items())
    ]


def _position_of(by_step: Mapping[int, Frame], culprit: tuple[int, str]) -> int | None:
    frame = by_step.get(culprit[0])
    if frame is None:
        return None
    return next((position for position, request in frame.positions.items() if request == culprit[1]), None)


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
