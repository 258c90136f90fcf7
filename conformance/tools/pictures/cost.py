"""What the reference plugins cost, from the numbers of the performance page."""

from __future__ import annotations

import json
from pathlib import Path

from lpkit_conformance.report.plot import Curve, Panel, plot

DATA = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "performance.json"
VOCAB = "151936"
PANELS = {
    "Rules that mask or keep whole rows": (
        *("allowed-tokens", "forced-sequence", "target-token", "min-p", "top-n-sigma", "truncation", "xtc"),
    ),
    "Rules that give every token another logit": ("greenlist-watermark", "synthid", "temperature"),
    "Rules for few tokens, or about repetitions": (
        *("cite-from-prompt", "dry", "logit-bias", "loop-breaker", "no-repeat-ngram", "ocr-ngram", "penalties"),
        "thinking-budget",
    ),
}


def picture() -> str:
    """``apply`` by number of requests, of each kind of rule."""
    data = json.loads(DATA.read_text(encoding="utf-8"))

    def panel(title: str, names: tuple[str, ...]) -> Panel:
        curves = (
            Curve(name, "target", tuple(zip(data["batches"], data["seconds"][f"lpkit-{name}"][VOCAB], strict=True)))
            for name in names
        )
        return Panel(title, tuple(curves))

    panels = [panel(title, names) for title, names in PANELS.items()]
    return plot(f"Time of one apply of the reference plugins, {int(VOCAB):,} tokens", panels)
