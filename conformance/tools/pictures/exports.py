"""Which way of writing a processor runs on which of vLLM's runners, as the interfaces of real classes say."""

from __future__ import annotations

import lpkit
from lpkit.loading import interfaces_of
from lpkit_conformance.examples import portable, v1, v2
from lpkit_conformance.report.svg import add, label

from pictures.canvas import canvas, finished


def each_request(output_ids: list[int], logits: object) -> object:
    """A rule for one request, as vLLM's V0 engine took it."""
    return logits


WAYS: tuple[tuple[str, str, type], ...] = (
    ("a V1 class", "subclasses vLLM's V1 interface", v1.Echo),
    ("a V2 class", "subclasses vLLM's V2 interface", v2.Echo),
    ("lpkit.LogitsProcessor", "a rule for rows of the batch", portable.Floor),
    ("lpkit.bridge(V1 class)", "existing code, wrapped", lpkit.bridge(v1.Echo, keys="echo", name="BridgedEcho")),
    ("lpkit.bridge(callable)", "an adapter: one callable per request", lpkit.bridge(each_request, name="Adapted")),
)
RUNNERS = {"v1": "V1 runner", "v2": "V2 runner"}
NAME, CELL, LINE = 230, 112, 46


def picture() -> str:
    """A line per way, a column per runner."""
    root = canvas("What runs where: raw classes on one runner, lpkit's classes, bridges and adapters on both")
    label(root, "heading", 4, 16, "What you write")
    for column, title in enumerate(RUNNERS.values()):
        label(root, "heading centred", NAME + CELL * column + CELL / 2, 16, title)
    for line, (title, text, cls) in enumerate(WAYS):
        y = 30 + LINE * line
        label(root, "strong", 4, y + 15, title)
        label(root, "small", 4, y + 31, text)
        runs = interfaces_of(cls)
        for column, runner in enumerate(RUNNERS):
            x = NAME + CELL * column + 4
            kind = "band hue2" if runner in runs else "rejected"
            add(root, "rect", kind, x=x, y=y + 4, width=CELL - 8, height=28, rx=7)
            words, text_kind = ("runs", "name hue2") if runner in runs else ("does not start", "centred")
            label(root, text_kind, x + CELL / 2 - 4, y + 22, words)
    return finished(root, NAME + CELL * len(RUNNERS) + 2, 30 + LINE * len(WAYS))
