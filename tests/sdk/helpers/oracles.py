"""Comparisons of reference plugins with their oracles, and the page that says how near they are."""

from __future__ import annotations

import os
import re
from decimal import ROUND_UP, Context
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

PAGE = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "oracles.md"
WRITE = os.environ.get("LPKIT_ORACLES") == "write"

HEAD = """\
<!-- Written by tests/sdk/helpers/oracles.py (make oracles); edit it there instead. -->

# Oracles

What each reference plugin is compared with, on V1, on V2 and mostly on V2 with drafts; what is compared; how much a
value may differ by in the tests; and the largest difference, measured on one CPU (x86-64). *None*: all values are
equal. *Relative*: the difference of values above 1 is a share of them. Tokens so near a limit that float32
cannot tell are left out for min-p and top-n-sigma.

An oracle is another project's code, a published formula in float64, or plain code that shares no line with the plugin.
lpkit-ocr-ngram is compared with vLLM's own class, too, where vLLM is installed: they agree bit by bit.

| plugin | oracle | what is compared | allowed difference | largest difference |
|---|---|---|---|---|
"""


class Comparison(NamedTuple):
    plugin: str
    oracle: str
    of: str
    within: float

    @property
    def row(self) -> str:
        """Its line on the page, but for what was measured."""
        return f"| {self.plugin} | {self.oracle} | {self.of} | {shown(self.within)} |"


_seen: dict[Comparison, float] = {}


def agree(
    ours: torch.Tensor,
    theirs: torch.Tensor,
    oracle: str,
    of: str = "logits",
    within: float = 0.0,
    relative: bool = False,
) -> None:
    """Hold that a plugin does what its oracle does, and that the page says so. The test's module names the plugin.

    Args:
        within: the most that a value may differ by; where one is infinite, so is the other.
        relative: values above 1 are compared by their ratio.
    """
    assert ours.numel(), "nothing is compared"
    name = re.search(r"test_(\w+)\.py", os.environ["PYTEST_CURRENT_TEST"])
    assert name is not None
    comparison = Comparison(f"lpkit-{name[1].replace('_', '-')}", oracle, of + ", relative" * relative, within)
    difference = largest(ours, theirs, relative)
    _seen[comparison] = max(difference, _seen.get(comparison, 0.0))
    assert difference <= within, f"{comparison.plugin} is {difference} away from {oracle}"
    assert WRITE or comparison.row in _page(), "make oracles"


def largest(ours: torch.Tensor, theirs: torch.Tensor, relative: bool = False) -> float:
    """The largest difference of two tensors; not a number, or infinite, where only one of them is."""
    assert ours.shape == theirs.shape
    other = ours != theirs  # equal infinities have no difference
    if ours.dtype == torch.bool:
        return float(other.sum())
    apart = (ours.double() - theirs.double()).abs()[other]
    if relative:
        apart = apart / theirs.double().abs()[other].clamp(min=1.0)
    return float(apart.max()) if apart.numel() else 0.0


def shown(difference: float) -> str:
    """With one digit, rounded up."""
    if not difference:
        return "none"
    digits = Context(prec=1, rounding=ROUND_UP).create_decimal(repr(difference))
    return f"{digits:e}".lower()


@cache
def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def write() -> None:
    """The page, by what this process has compared: all of it, in one process."""
    plugins = {path.name for path in PAGE.parents[2].glob("reference_plugins/lpkit-*")}
    assert {comparison.plugin for comparison in _seen} == plugins, "run it by make oracles"
    lines = [f"{comparison.row} {shown(_seen[comparison])} |\n" for comparison in sorted(_seen)]
    PAGE.write_text(HEAD + "".join(lines), encoding="utf-8")
