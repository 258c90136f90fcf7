"""Defects that LP505 must catch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint
from typing import Any

import torch
from lpkit_conformance.checks import lp5_placeholders

from zoo.correct.v1_history import History
from zoo.lp508 import GreenListOfPlaceholders
from zoo.registry import defect, replaced


def an_entry_point() -> AbstractContextManager[Any]:
    entry = EntryPoint("green", f"{__name__}:InstalledGreenList", "vllm.logits_processors")
    return replaced(lp5_placeholders, "installed", lambda: [entry])


@defect("LP505", "an installed watermark whose seed is a placeholder", surroundings=an_entry_point)
class InstalledGreenList(GreenListOfPlaceholders):
    pass


@defect(
    "LP505",
    "asks whether the list begins with a placeholder: that of a request that came back begins with tokens",
    cause="`outputs[-1]` is used as an index",
)
class AsksTheFirst(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[0] >= 0:
                logits[row, outputs[-1]] -= weight
        return logits


@defect("LP505", "one list with a placeholder, and the whole batch is left unedited", line="if any(-1 in outputs")
class GivesUpOnAll(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if any(-1 in outputs for _, outputs in self.rows.values()):
            return logits
        return super().apply(logits)
