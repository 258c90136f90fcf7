"""Defects that LP231 must catch, and correct processors that resemble them."""

from __future__ import annotations

from typing import Any

import torch
from lpkit_conformance.vllm_api.tokenizer import END

from zoo.arguments import INF
from zoo.correct.v1_history import History
from zoo.registry import defect, sound

NEXT = {4: 5, 5: 6, 6: 4}


@sound("forces a cycle of tokens, and does nothing to a row that has left it")
class Cycle(History):
    """From the first token of the cycle on, only the next token of the cycle is left."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (_, outputs) in self.rows.items():
            follows = self.follows(outputs) if outputs and outputs[-1] >= 0 else NEXT[4]
            if follows is not None:
                kept = logits[row, follows].clone()
                logits[row] = -INF
                logits[row, follows] = kept
        return logits

    def follows(self, outputs: list[int]) -> int | None:
        return NEXT.get(outputs[-1])


@defect("LP231", "looks a token up that it believes to have forced")
class TrustsItsMask(Cycle):
    def follows(self, outputs: list[int]) -> int | None:
        return NEXT[outputs[-1]]


@defect("LP231", "edits no row of the batch as soon as one holds a token that it did not force", also=("LP221",))
class LeavesTheBatch(Cycle):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        lasts = [outputs[-1] for _, outputs in self.rows.values() if outputs]
        return logits if any(last not in (*NEXT, -1) for last in lasts) else super().apply(logits)


@defect("LP231", "raises when a row goes on behind its end token")
class RaisesBehindTheEnd(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for _, outputs, *_ in self.rows.values():
            if END in outputs:
                raise RuntimeError("this request has ended")
        return super().apply(logits)


@defect("LP231", "notes by the object of the parameters that a request has ended")
class EndsByParameters(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ended: set[int] = set()

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        if END in outputs:
            self.ended.add(id(params))
        state = super().enter(params, prompt, outputs)
        return None if state is None else [*state, id(params)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for _, outputs, key in self.rows.values():
            if outputs[-1:] == [END]:
                self.ended.add(key)
        before = logits.clone()
        logits = super().apply(logits)
        for row, (_, _, key) in self.rows.items():
            if key in self.ended:
                logits[row] = before[row]
        return logits
