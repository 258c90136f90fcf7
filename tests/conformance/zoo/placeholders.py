"""V1 processors that compute with token ids, some of them with ids that are placeholders."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint
from typing import Any

import torch
from lpkit_conformance.checks import lp5_placeholders

from zoo.arguments import INF
from zoo.registry import defect, replaced, sound
from zoo.v1_history_correct import History


class GreenList(History):
    """Raises tokens that the last one chooses; the sound version."""

    def known(self, outputs: list[int]) -> bool:
        return bool(outputs) and outputs[-1] >= 0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if self.known(outputs):
                generator = torch.Generator().manual_seed(outputs[-1] % 1000)
                logits[row, torch.randperm(logits.shape[1], generator=generator)[:100].to(logits.device)] += weight
        return logits


sound("a watermark that leaves a request alone while its last token is unknown", "v1")(GreenList)


@defect("LP508", "a watermark whose seed is a placeholder", style="v1")
class GreenListOfPlaceholders(GreenList):
    def known(self, outputs: list[int]) -> bool:
        return bool(outputs)


def an_entry_point() -> AbstractContextManager[Any]:
    entry = EntryPoint("green", f"{__name__}:InstalledGreenList", "vllm.logits_processors")
    return replaced(lp5_placeholders, "installed", lambda: [entry])


@defect("LP505", "an installed watermark whose seed is a placeholder", style="v1", surroundings=an_entry_point)
class InstalledGreenList(GreenListOfPlaceholders):
    pass


@defect("LP508", "takes a run of placeholders for a loop", style="v1")
class LoopOfPlaceholders(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, outputs) in self.rows.items():
            if len(outputs) > 2 and len(set(outputs[-3:])) == 1:
                rest = logits[row].topk(3).indices
                logits[row, [token for token in range(3, 15) if token not in rest.tolist()]] = -INF
        return logits


@sound("counts the distinct tokens that it knows", "v1")
class CountsKnown(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            known = {token for token in outputs if token >= 0}
            logits[row, 5] += weight * len(known) / 10
        return logits
