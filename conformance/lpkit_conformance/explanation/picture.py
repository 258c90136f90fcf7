"""A picture of the batch: which request sits where, step by step, up to the row that went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.plugin import Plugin
from lpkit_conformance.subject.subject import Subject

MOST_STEPS = 12
MOST_POSITIONS = 10


@dataclass(frozen=True)
class Frame:
    """One step: request by position in the batch, requests in a partial prefill, tokens by request."""

    step: int
    positions: dict[int, str]
    prefills: frozenset[str]
    tokens: dict[str, int]


class _Blank:
    """A processor that does nothing, on any host."""

    def __init__(self, *_: Any) -> None: ...

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        pass

    def add_request(self, slot: int, params: Any) -> bool:
        return False

    def apply_staged_writes(self) -> None:
        pass

    def apply(self, logits: torch.Tensor, *_: Any) -> torch.Tensor:
        return logits


def record_frames(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, make_host: MakeHost
) -> tuple[list[Frame], dict[str, str | None]]:
    """Return every step with an ``apply``, and the arguments of every request as text, None without the plugin."""
    # Instances that do nothing: the batch moves as it did, without the plugin.
    idle = replace(subject, plugin=Plugin(subject.plugin.target, _Blank), relatives=tuple(subject.cases))
    host = make_host(idle, max_num_seqs)
    frames: dict[int, Frame] = {}
    for seen in host.run(ops):  # several calls in one step add to its frame
        before = frames.get(seen.step, Frame(seen.step, {}, frozenset(), {}))
        positions = {host.position(row, item.request): item.request for row, item in enumerate(seen.rows)}
        # A rejected draft or a beam is not a prefill.
        prefills = {item.request for item in seen.rows if item.discarded and not item.local}
        tokens = {item.request: item.position for item in reversed(seen.rows)}
        frames[seen.step] = Frame(
            seen.step, {**before.positions, **positions}, before.prefills | prefills, {**tokens, **before.tokens}
        )
    arguments = {active.id: argument_text(subject, active.variant) for active in host.pool.requests.values()}
    return list(frames.values()), arguments


def argument_text(subject: Subject, variant: int | None) -> str | None:
    """Return the arguments of a request; None for a request without the plugin."""
    return None if variant is None else subject.cases[variant % len(subject.cases)].text


def draw(
    frames: Sequence[Frame], arguments: Mapping[str, str | None], unit: str, culprit: tuple[int, str] | None
) -> tuple[str, ...]:
    """A small table: a line per step (like ones together), a column per row or slot.

    Args:
        arguments: of every request; None for one without the plugin.
        unit: ``row`` or ``slot``.
        culprit: step and request of the row that differs; later steps are not shown.
    """
    shown = [frame for frame in frames if culprit is None or frame.step <= culprit[0]]
    groups = _alike(shown, culprit)[-MOST_STEPS:]
    if not groups:
        return ()
    positions = chosen([group[-1] for group in groups], culprit)
    legend: dict[str, None] = {}
    lines = [["step", *(f"{unit} {position}" for position in positions)]]
    before: Frame | None = next((frame for frame in reversed(shown) if frame.step < groups[0][0].step), None)
    for group in groups:
        frame = group[0]
        steps = str(frame.step) if len(group) == 1 else f"{frame.step}-{group[-1].step}"
        cells = [_cell(frame, before, position, arguments, culprit, legend) for position in positions]
        lines.append([steps, *cells])
        before = frame
    hidden = len({position for group in groups for position in group[-1].positions} - set(positions))
    if hidden:
        legend[f"{hidden} other {unit}s not shown"] = None
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return (*table, *([f"({'; '.join(legend)})"] if legend else []))


def _alike(frames: Sequence[Frame], culprit: tuple[int, str] | None) -> list[list[Frame]]:
    """Group neighbouring frames with the same picture; the culprit's stands alone."""
    groups: list[list[Frame]] = []
    for frame in frames:
        same = groups and (groups[-1][-1].positions, groups[-1][-1].prefills) == (frame.positions, frame.prefills)
        if same and not (culprit and frame.step == culprit[0]):
            groups[-1].append(frame)
        else:
            groups.append([frame])
    return groups


def chosen(frames: Sequence[Frame], culprit: tuple[int, str] | None) -> list[int]:
    """Choose the positions worth a column: the culprit's, then changed ones, latest first, then the lowest."""
    everyone = sorted({position for frame in frames for position in frame.positions})
    wanted: dict[int, None] = {}
    if culprit:
        wanted.update({position: None for position, request in frames[-1].positions.items() if request == culprit[1]})
    for earlier, later in reversed(list(pairwise(frames))):
        wanted.update({p: None for p in everyone if earlier.positions.get(p) != later.positions.get(p)})
    wanted.update(dict.fromkeys(everyone))
    return sorted(list(wanted)[:MOST_POSITIONS])


def _cell(
    frame: Frame,
    before: Frame | None,
    position: int,
    arguments: Mapping[str, str | None],
    culprit: tuple[int, str] | None,
    legend: dict[str, None],
) -> str:
    request = frame.positions.get(position)
    if request is None:
        return "-"
    text = request
    if arguments[request] is None:
        text = f"({request})"
        legend["in brackets: without the plugin"] = None
    if request in frame.prefills:
        text += "~"
        legend["~: partial prefill"] = None
    if culprit == (frame.step, request):
        text = f">{text}<"
        legend["> <: the row that differs"] = None
    origin = next((p for p, name in before.positions.items() if name == request), position) if before else position
    if origin != position:
        text += f" from {origin}"
    return text
