"""The life of a request, step by step, as ``lpkit.runtime``'s V2 engine plays it."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree as ET

from lpkit.runtime import Request, StepResult, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.report.svg import add, label

from pictures.canvas import canvas, finished

CELL, BAND, LEFT = 22, 62, 4
PROMPT = 6


@dataclass(frozen=True)
class Line:
    """One step: how many tokens were computed before, which were fed, drafts and how many of them counted."""

    title: str
    note: str
    known: int = 0
    computed: int = 0
    fed: int = 0
    drafts: int = 0
    accepted: int = 0
    new: int = 0


def picture() -> str:
    """A line per step; a cell per token."""
    root = canvas("The life of a request: prefill in chunks, decoding, preemption, recomputation, drafts, the end")
    lines = play()
    for number, line in enumerate(lines):
        _draw(root, line, number * BAND)
    bottom = len(lines) * BAND + 6
    legend = (
        ("done", "computed earlier"),
        ("band hue0", "fed to the model in this step"),
        ("band hue2", "sampled in this step"),
        ("rejected", "rejected draft: never part of the history"),
        ("box", "known, not computed yet"),
    )
    for number, (kind, text) in enumerate(legend):
        add(root, "rect", kind, x=LEFT, y=bottom + 20 * number, width=20, height=12, rx=3)
        label(root, "legend", LEFT + 28, bottom + 20 * number + 10, text)
    return finished(root, 470, bottom + 20 * len(legend))


def play() -> list[Line]:
    """Request A in an engine where another request takes its slot while it is preempted."""
    first = _engine()
    truth = [token for _ in range(8) for token in first.step().tokens.get("A", [])]
    engine = _engine()
    request = engine.requests["A"]
    slots: dict[str, int] = {}
    lines = [Line("arrives", f"a prompt of {PROMPT} tokens", known=PROMPT)]

    def step(title: str, plan: dict[str, int], drafts: tuple[int, ...] = ()) -> None:
        known, computed = request.total_len, request.num_computed_tokens
        result = engine.step(plan, drafts={"A": drafts} if drafts else None)
        slots.update(dict(result.added))
        new = len(result.tokens.get("A", ()))
        note = f"slot {slots['A']}, {_rows(result)}, {_outcome(new, result)}"
        fed = plan["A"]
        lines.append(Line(title, note, known, computed, fed, len(drafts), max(new - 1, 0) if drafts else 0, new))

    step("prefill, first chunk", {"A": 4})
    step("prefill, last chunk", {"A": 2})
    step("decode", {"A": 1})
    engine.preempt("A")
    engine.add(Request("B", SamplingParams(temperature=0.0), [1, 2]))
    engine.step({"B": 2})
    lines.append(Line("preempted", "no slot, no row; B runs in its slot", known=request.total_len))
    engine.resume("A")
    step("resumed: everything is computed again", {"A": request.remaining, "B": 1})
    position = len(request.output_token_ids)
    wrong = (truth[position + 1] + 1) % engine.vocab_size
    step("decode with two drafts", {"A": 1}, (truth[position], wrong))
    step("decode", {"A": 1})
    engine.finish("A")
    engine.step({"B": 1})
    lines.append(
        Line(
            "finished",
            "V2 makes no call; the next request reuses the slot",
            known=request.total_len,
            computed=request.total_len - 1,
        )
    )
    return lines


def _engine() -> V2Engine:
    engine = V2Engine(device="cpu", num_speculative_tokens=2)
    engine.add(Request("A", SamplingParams(temperature=0.0), list(range(1, PROMPT + 1))))
    return engine


def _rows(result: StepResult) -> str:
    count = sum(row.request_id == "A" for row in result.rows)
    return f"{count} row{'s' if count != 1 else ''}"


def _outcome(new: int, result: StepResult) -> str:
    if any(row.request_id == "A" and row.discarded for row in result.rows):
        return "its token is discarded"
    return f"{new} new token{'s' if new != 1 else ''}"


def _draw(root: ET.Element, line: Line, top: float) -> None:
    label(root, "strong", LEFT, top + 14, line.title)
    label(root, "small", LEFT, top + 29, line.note)
    x = float(LEFT)

    def cell(kind: str, text: str) -> None:
        nonlocal x
        add(root, "rect", kind, x=x, y=top + 35, width=CELL - 4, height=16, rx=3)
        label(root, "small centred", x + (CELL - 4) / 2, top + 47, text)
        x += CELL

    for number in range(line.known):
        fed = line.computed <= number < line.computed + line.fed
        kind = "band hue0" if fed else "done" if number < line.computed else "box"
        cell(kind, f"p{number + 1}" if number < PROMPT else f"o{number - PROMPT + 1}")
    first = line.known - PROMPT + 1
    for number in range(line.drafts):
        cell("band hue0 guess" if number < line.accepted else "rejected", f"d{number + 1}")
    x += 10
    for number in range(line.new):
        cell("band hue2", f"o{first + number}")
