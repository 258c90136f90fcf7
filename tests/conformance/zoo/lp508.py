"""Defects that LP508 must catch, and correct processors that resemble them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint
from typing import Any

import torch
from lpkit_conformance.checks import lp5_placeholders

from zoo.arguments import INF
from zoo.bases import Late
from zoo.correct.v1_history import History
from zoo.registry import defect, replaced, sound


class GreenList(History):
    """Raises tokens that the last token selects; the correct version."""

    def known(self, outputs: list[int]) -> bool:
        return bool(outputs) and outputs[-1] >= 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if self.known(outputs):
                generator = torch.Generator().manual_seed(outputs[-1] % 1000)
                logits[row, torch.randperm(logits.shape[1], generator=generator)[:100].to(logits.device)] += weight
        return logits


sound("a watermark that leaves a request alone while its last token is unknown")(GreenList)


@defect("LP508", "a watermark whose seed is a placeholder", line="logits[row, torch.randperm(")
class GreenListOfPlaceholders(GreenList):
    def known(self, outputs: list[int]) -> bool:
        return bool(outputs)


def an_entry_point() -> AbstractContextManager[Any]:
    entry = EntryPoint("green", f"{__name__}:InstalledGreenList", "vllm.logits_processors")
    return replaced(lp5_placeholders, "installed", lambda: [entry])


@defect("LP508", "an installed watermark whose seed is a placeholder", surroundings=an_entry_point)
class InstalledGreenList(GreenListOfPlaceholders):
    pass


@defect("LP508", "takes a run of placeholders for a loop")
class LoopOfPlaceholders(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, outputs) in self.rows.items():
            if len(outputs) > 2 and len(set(outputs[-3:])) == 1:
                rest = logits[row].topk(3).indices
                logits[row, [token for token in range(3, 15) if token not in rest.tolist()]] = -INF
        return logits


@defect("LP508", "counts the tokens that are known: a length of placeholders is 0")
class CountsKnownTokens(Late):
    def due(self, outputs: list[int]) -> bool:
        return sum(token >= 0 for token in outputs) < self.FIRST


@sound("counts all tokens, placeholders too")
class CountsAll(Late):
    def due(self, outputs: list[int]) -> bool:
        return len(outputs) < self.FIRST


@defect("LP508", "begins with the tenth token that is known: never with placeholders")
class BeginsWithKnownTokens(Late):
    def due(self, outputs: list[int]) -> bool:
        return sum(token >= 0 for token in outputs) >= 10


@defect("LP508", "begins with the third known token")
class BeginsEarlyWithKnownTokens(Late):
    def due(self, outputs: list[int]) -> bool:
        return sum(token >= 0 for token in outputs) >= 3


@defect("LP508", "does not count the last token while it is unknown: begins a token later", advice="lengths")
class BeginsATokenLater(Late):
    def due(self, outputs: list[int]) -> bool:
        return len(outputs) - (outputs[-1:] == [-1]) >= self.FIRST


@defect("LP508", "does not count the last token while it is unknown: ends a token later")
class EndsATokenLater(BeginsATokenLater):
    def due(self, outputs: list[int]) -> bool:
        return not super().due(outputs)
