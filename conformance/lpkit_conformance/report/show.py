"""The effect of processors on a request, for people: the gist on a terminal, and a page with every token."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree as ET

from lpkit_conformance.report import drawing, html, terminal, text
from lpkit_conformance.report.markup import add, embedded, fill, in_page, label, text_of
from lpkit_conformance.results import GroupedResult, StepView
from lpkit_conformance.show.results import Compared, ProcessorReceipt, Show

TOY = "The model is a toy: it counts which words follow which in a short text. It shows what a rule does, not how well."

LEFT, WIDTH, ROW, GAP = 110.0, 880.0, 44.0, 14.0
"""Sizes of the chart over the steps."""

LONGEST = 400
"""Characters of a reply on a terminal."""

LEAST_SHADED = 0.01
"""Probability whose shift shades a token."""


def visible(token: str) -> str:
    """Return a token with its spaces and line breaks made visible."""
    return token.replace(" ", "\u00b7").replace("\n", "\u23ce").replace("\t", "\u21e5")


def quoted(token: str) -> str:
    """Return a token as it is named in a sentence."""
    return f"\u201c{visible(token)}\u201d"


# -- terminal ------------------------------------------------------------------------------------------------------


def show(shown: Show, page: Path | None, file: IO[str]) -> None:
    """Print the gist; coloured on a terminal."""
    terminal.show(_lines(shown, page), file)


def _lines(shown: Show, page: Path | None) -> Iterator[terminal.Line]:
    yield title(shown), "bold"
    if shown.model:
        yield from ((f"  {line}", "dim") for line in (_facts(shown), shown.case))
    if shown.check:
        yield from text.check_lines(shown.check)
    if shown.steps:
        reply, plain = "".join(step.token for step in shown.steps), "".join(shown.plain)
        yield from ("", f"  with     {_short(reply)}")
        yield f"  without  {_short(plain)}" if plain != reply else "  without  the same"
        yield from ([] if shown.problem else [f"  {parting(shown)}"])
        yield ""
    yield from terminal.table([(f"  {receipt.name}", receipt.said) for receipt in shown.receipts if shown.steps])
    for other in shown.compared:
        yield from ("", (f"  {other.value}: {_against_first(other, shown)}", "bold"))
        yield f"  {_short(''.join(other.reply))}"
        yield from terminal.table([(f"  {receipt.name}", receipt.said) for receipt in other.receipts])
    if page is not None:
        yield f"  every token: {page}"


def _short(text: str) -> str:
    return visible(text if len(text) <= LONGEST else f"{text[:LONGEST]}\u2026")


def parting(shown: Show) -> str:
    """Say where the reply parts from that without processors, and why."""
    if shown.parted is None:
        return "Without processors, the same random numbers give the same reply."
    step = shown.steps[shown.parted - 1]
    blamed = [name for name, token in zip(shown.names, step.without, strict=True) if token == step.plain]
    by = f" because of {' and '.join(blamed)}" if blamed else " because of several processors together"
    parts = [n for n, t in zip(shown.names, step.without, strict=True) if n not in blamed and t != step.token]
    also = f" ({' and '.join(parts)} had a part in it)" if blamed and parts else ""
    return f"They part at token {shown.parted}: {quoted(step.token)} in place of {quoted(step.plain)}{by}{also}."


def _against_first(other: Compared, shown: Show) -> str:
    if other.problem:
        return other.problem
    if other.parted is None:
        return "the same reply"
    token, first = (quoted(reply[other.parted - 1]) for reply in (other.reply, shown.reply))
    return f"parts at token {other.parted}: {token} in place of {first}"


def title(shown: Show) -> str:
    """Return the names of the processors, in their order."""
    return " then ".join(shown.names) or "no processor"


def _facts(shown: Show) -> str:
    return f"{shown.model} on {shown.host.upper()}, seed {shown.seed}, against {shown.judged_with}"


class NotebookShow(Show):
    """A :class:`.Show` that a notebook displays as the page."""

    def _repr_html_(self) -> str:
        file = io.StringIO()
        write(self, file)
        return f'<iframe srcdoc="{escape(file.getvalue())}" style="width: 100%; height: 800px; border: 0"></iframe>'


# -- page ----------------------------------------------------------------------------------------------------------


def write(shown: Show, file: IO[str]) -> None:
    """Write the page: one file, which needs no network."""
    data = shown.to_json()
    values = {
        **html.assets(),
        "finding": html.article(GroupedResult(shown.check, (shown.host,)), opened=True) if shown.check else "",
        "title": title(shown),
        "facts": [_facts(shown), TOY * shown.toy] if shown.model else [],
        "case": shown.case,
        "problem": shown.problem,
        "count": len(shown.steps),
        "receipts": [_receipt(receipt, n) for n, receipt in enumerate(shown.receipts) if shown.steps],
        "reply": {
            "parting": "" if shown.problem else parting(shown),
            "prompt": "".join(shown.prompt),
            "tokens": [_token(step, shown) for step in shown.steps],
            "plain": _parted(shown.plain, shown.parted),
            "chart": in_page(_chart(shown)),
            "data": embedded({"telling": shown.telling, **{key: data[key] for key in ("names", "prompt", "steps")}}),
        }
        if shown.steps
        else None,
        "compared": [
            {
                "value": other.value,
                "against": _against_first(other, shown),
                "reply": _parted(other.reply, other.parted),
                "receipts": [_receipt(receipt, n) for n, receipt in enumerate(other.receipts)],
            }
            for other in shown.compared
        ],
    }
    file.write(fill(html.part("show.html"), values))


def _parted(tokens: Sequence[str], parted: int | None) -> list[dict[str, str]]:
    """Return the tokens of another reply; those from ``parted`` on are marked."""
    return [{"text": text, "kind": "other" if parted and n >= parted else ""} for n, text in enumerate(tokens, 1)]


def _receipt(receipt: ProcessorReceipt, number: int) -> dict[str, Any]:
    return {"hue": f"hue{number % drawing.HUES}", "name": receipt.name, "said": receipt.said}


def _token(step: StepView, shown: Show) -> dict[str, Any]:
    moved = [stage.moved if (stage := step.of(n)) else 0.0 for n in range(len(shown.names))]
    most = max(moved, default=0.0)
    marks = [name for name, marked in (("forced", step.forced), ("prevented", step.prevented)) if marked]
    marks += ["changed"] if step.token != step.plain else []
    said = f"{quoted(step.token)}, shifted {most:.0%}" + (f", would be {quoted(step.plain)}" if marks else "")
    return {
        "text": step.token.replace("\n", "\u23ce"),
        "breaks": "\n" in step.token,
        "kind": " ".join([f"hue{moved.index(most) % drawing.HUES}" if most else "", *marks]),
        "shade": f"{most**0.5:.2f}" if most > LEAST_SHADED else "0",
        "title": said,
    }


def _chart(shown: Show) -> ET.Element:
    """Draw the probability that each processor moved, and the entropy before and after, step by step."""
    root = ET.Element("svg", {"class": "chart", "role": "img"})
    text_of(root, "title", "Probability shifted by each processor, and entropy, by token")
    width = WIDTH / len(shown.steps)
    for number, name in enumerate(shown.names):
        bottom = (number + 1) * (ROW + GAP)
        add(root, "line", "grid", x1=LEFT, x2=LEFT + WIDTH, y1=bottom, y2=bottom)
        label(root, "name", 0, bottom - 4, name if len(name) < 16 else f"{name[:14]}\u2026")
        for n, step in enumerate(shown.steps):
            if (stage := step.of(number)) and stage.moved:
                height = round(max(1.0, ROW * stage.moved), 1)
                at = {"x": round(LEFT + n * width, 1), "width": round(max(width - 1, 0.8), 1)}
                add(root, "rect", f"bar hue{number % drawing.HUES}", y=bottom - height, height=height, **at)
    bottom = (len(shown.names) + 1) * (ROW + GAP)
    highest = max((stage.entropy for step in shown.steps for stage in step.stages), default=0.0) or 1.0
    label(root, "name", 0, bottom - 18, "entropy")
    label(root, "axis", 0, bottom - 3, f"to {highest:.1f} bits")
    for kind, nth in (("before", 0), ("after", -1)):
        points = [
            f"{LEFT + (n + 0.5) * width:.1f},{bottom - ROW * step.stages[nth].entropy / highest:.1f}"
            for n, step in enumerate(shown.steps)
        ]
        add(root, "polyline", f"entropy {kind}", points=" ".join(points))
    for number, x in {1: LEFT, len(shown.steps): LEFT + WIDTH - width}.items():
        label(root, "axis", x, bottom + 16, f"token {number}" if number == 1 else str(number))
    add(root, "rect", "plot", x=LEFT, y=0, width=WIDTH, height=bottom)
    add(root, "rect", "marker", x=LEFT, y=0, width=max(width, 3), height=bottom)
    root.set("viewBox", f"0 0 {LEFT + WIDTH + 24:g} {bottom + 20:g}")
    return root
