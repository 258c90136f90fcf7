"""Defects that LP704 must catch."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from zoo.correct.v1 import Bias
from zoo.registry import defect, sound


@defect("LP704", "appends to a file at each step", line='.open("a"', advice="file")
class KeepsAJournal(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        with Path(os.devnull).open("a", encoding="utf-8") as journal:
            journal.write(f"{len(self.rows)} rows")
        return super().apply(logits)


@defect("LP704", "prints a line at each step", fix="log once")
class PrintsItsRows(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        print(len(self.rows), "rows")
        return super().apply(logits)


@sound("reads a file at each step")
class ReadsAFile(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        with Path(os.devnull).open(encoding="utf-8") as file:
            file.read()
        return super().apply(logits)
