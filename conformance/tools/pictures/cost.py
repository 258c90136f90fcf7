"""What the reference plugins cost, from the numbers of the performance page."""

from __future__ import annotations

import json
from pathlib import Path

from lpkit_conformance.report.plot import Curve, Panel, plot

DATA = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "performance.json"
VOCAB = "151936"
WHOLE_ROWS = ["allowed-tokens", "forced-sequence", "greenlist-watermark", "min-p", "target-token", "top-n-sigma", "xtc"]
HISTORIES = ["cite-from-prompt", "dry", "logit-bias", "no-repeat-ngram", "penalties", "thinking-budget"]


def picture() -> str:
    """``apply`` by number of requests: rules for all tokens, and rules for few tokens or histories."""
    data = json.loads(DATA.read_text(encoding="utf-8"))

    def panel(title: str, names: list[str]) -> Panel:
        curves = (
            Curve(name, "target", tuple(zip(data["batches"], data["seconds"][f"lpkit-{name}"][VOCAB], strict=True)))
            for name in names
        )
        return Panel(title, tuple(curves))

    panels = [
        panel("Rules that go over whole rows", WHOLE_ROWS),
        panel("Rules for few tokens, or for histories", HISTORIES),
    ]
    return plot(f"Time of one apply of the reference plugins, {int(VOCAB):,} tokens", panels)
