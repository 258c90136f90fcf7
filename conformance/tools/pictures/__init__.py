"""The pictures of the explanation pages, drawn from what ``lpkit.runtime`` does; ``make docs`` writes them."""

from __future__ import annotations

from pictures import batch, comparison, cost, exports, life, stages


def pictures() -> dict[str, str]:
    """Every picture as SVG, by file name."""
    return {
        "batch.svg": batch.picture(),
        "comparison.svg": comparison.picture(),
        "cost.svg": cost.picture(),
        "exports.svg": exports.picture(),
        "life.svg": life.picture(),
        "stages.svg": stages.picture(),
    }
