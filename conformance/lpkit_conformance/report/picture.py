"""The most telling token of ``lpkit show`` as a picture: its likely tokens before and after the processors."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lpkit_conformance.errors import UsageError
from lpkit_conformance.report.markup import add, as_file, label, text_of
from lpkit_conformance.report.show import parting, quoted, title, visible
from lpkit_conformance.results import StageView
from lpkit_conformance.show.results import Show

NAME, BAR, NUMBERS, LINE = 112.0, 300.0, 148.0, 30.0
"""Widths of the columns, and the height of a token's pair of bars."""

MOST, CONTEXT = 7, 56
"""Tokens with bars, and characters of the text before the token."""

SHEET = """
svg { --ink: #1f2430; --soft: #5d6678; --paper: #ffffff; --before: #98a1b3; --after: #2f6db5;
  font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6e9f0; --soft: #9aa4b8; --paper: #171b22; --before: #6d7688; --after: #6a9fdc; }
}
.card { fill: var(--paper); }
text { fill: var(--ink); white-space: pre; }
.name { text-anchor: end; font-family: ui-monospace, Menlo, Consolas, monospace; }
.heading, .chosen { font-weight: 650; }
.soft { fill: var(--soft); }
.before { fill: var(--before); }
.after { fill: var(--after); }
"""


def picture(shown: Show) -> str:
    """Return the text of an SVG file with its own colours, for light and dark.

    It draws the step whose distribution changed most, if possible a step whose token the processors changed.

    Raises:
        UsageError: no processor acted.
    """
    acting = [(step.token != step.plain, step.moved, -n) for n, step in enumerate(shown.steps) if step.moved]
    if not acting:
        raise UsageError(f"there is no token to draw: {shown.problem or 'no processor acted in this reply'}")
    at = -max(acting)[2]
    step = shown.steps[at]
    stages = [n for n, stage in enumerate(step.stages) if stage.processor is not None] or [1]
    before, after = step.stages[stages[0] - 1], step.stages[min(stages[-1], len(step.stages) - 1)]
    named = {0, step.tokens.index(step.plain)}
    most = map(max, before.probabilities, after.probabilities)
    shares = [n in named or share for n, share in enumerate(most)]
    rows = sorted(sorted(range(len(shares)), key=lambda n: -shares[n])[:MOST], key=lambda n: -before.probabilities[n])
    said = "".join((*shown.prompt, *shown.reply[:at]))
    root = ET.Element("svg", {"role": "img"})
    text_of(root, "title", f"{title(shown)}: {parting(shown)}")
    label(root, "heading", 0, 14, title(shown))
    label(root, "soft", 0, 36, f"\u2026{visible(said[-CONTEXT:])}")
    for number, nth in enumerate(rows):
        y = 50 + LINE * number
        label(root, f"name{' chosen' * (nth == 0)}", NAME - 10, y + 16, visible(step.tokens[nth])[:14])
        for kind, stage, top in (("before", before, y + 3), ("after", after, y + 12)):
            if stage.ranks[nth]:
                width = round(max(BAR * stage.probabilities[nth], 1.0), 1)
                add(root, "rect", kind, x=NAME, y=top, width=width, height=8, rx=2)
        numbers = f"{_percent(before, nth)} \u2192 {_percent(after, nth)}"
        label(root, "chosen" if nth == 0 else "soft", NAME + BAR + 12, y + 16, numbers)
    bottom = 50 + LINE * len(rows) + 8
    for kind, x in (("before", 0.0), ("after", 78.0)):
        add(root, "rect", kind, x=x, y=bottom, width=12, height=8, rx=2)
        label(root, "soft", x + 18, bottom + 8, kind)
    model, other = shown.model.partition(":")[0], f", in place of {quoted(step.plain)}" * (step.token != step.plain)
    label(root, "soft", NAME + 44, bottom + 8, f"token {at + 1} of {model}; bold: chosen{other}")
    root.set("viewBox", f"0 0 {NAME + BAR + NUMBERS:g} {bottom + 12:g}")
    return as_file(root, SHEET)


def _percent(stage: StageView, nth: int) -> str:
    share = stage.probabilities[nth]
    return "banned" if not stage.ranks[nth] else "<0.1%" if share < 0.001 else f"{share:.{int(share < 0.1)}%}"
