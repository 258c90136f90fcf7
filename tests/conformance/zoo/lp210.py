"""Defects that LP210 must catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.bases import ByLength, Simple
from zoo.correct.v1_history import History
from zoo.registry import defect


@defect("LP210", "state keyed by the prompt: twins share it")
class TwinsByPrompt(History):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.by_prompt: dict[tuple[int, ...], list[Any]] = {}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        self.by_prompt = {key: s for key, s in self.by_prompt.items() if any(s is own for own in self.rows.values())}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return None if state is None else self.by_prompt.setdefault(tuple(prompt or ()), state)


@defect("LP210", "the furthest position seen, by id(params)")
class FurthestById(ByLength):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.ids: dict[int, int] = {}
        self.furthest: dict[int, int] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.ids[req_idx] = id(params)
        if id(params) not in {self.ids[slot] for slot in self.ids if slot != req_idx}:
            self.furthest.pop(id(params), None)
        return super().add_request(req_idx, params)

    def outputs(self, ctx: v2.LogitsContext) -> torch.Tensor:
        found = super().outputs(ctx).tolist()
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            key = self.ids[slot]
            found[row] = self.furthest[key] = max(found[row], self.furthest.get(key, 0))
        return torch.tensor(found, device=self.device)


@defect("LP210", "one stateful callable for each SamplingParams object: twins share it", advice="same-object")
class CallablePerParams(Simple):
    def __init__(self, *args: Any) -> None:
        self.made: dict[int, tuple[Any, Any]] = {}
        super().__init__(*args)

    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        longest = [0]

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            longest[0] = max(longest[0], len(output_ids))
            logits[3 + longest[0] % 12] += amount
            return logits

        self.made = dict(list(self.made.items())[-63:])
        return self.made.setdefault(id(params), (params, apply))[1]
