"""A V1 processor that is right; its neighbours, ``LPnnn.diff``, make it wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate, LogitsProcessor, MoveDirectionality


def strength_of(params: SamplingParams) -> float | None:
    value = (params.extra_args or {}).get("echo")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10:
        raise ValueError(f"echo must be a number in (0, 10], not {value!r}")
    return float(value)


class Echo(LogitsProcessor):
    """Raise the logit of the last output token, by `echo` for each output token."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.state: dict[int, tuple[float, list[int]]] = {}

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        strength_of(params)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            self.follow(batch_update)

    def follow(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self.state.pop(row, None)
        for added in update.added:
            with suppress(ValueError):  # the front end did not ask validate_params
                self.add(*added)
        for source, target, kind in update.moved:
            moving, displaced = self.state.pop(source, None), self.state.pop(target, None)
            if moving is not None:
                self.state[target] = moving
            if displaced is not None and kind is MoveDirectionality.SWAP:
                self.state[source] = displaced

    def add(self, row: int, params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]) -> None:
        self.state.pop(row, None)
        strength = strength_of(params)
        if strength is not None:
            self.state[row] = (strength, output_ids)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (strength, output_ids) in self.state.items():
            if output_ids and output_ids[-1] >= 0:
                logits[row, output_ids[-1]] += strength * len(output_ids)
        return logits
