"""Correct processors that look odd from outside: to what watches their calls, or their process."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.correct import Bias, V2MinP
from zoo.registry import sound


class Frozen:
    """Nothing can be set from outside: what a watcher puts on an instance ends in an exception."""

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "frozen"):
            raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")
        object.__setattr__(self, name, value)


@sound("nothing can be set on an instance", "v1")
class FrozenBias(Frozen, Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.frozen = True


@sound("nothing can be set on an instance", "v2", case={"extra_args": {"floor": 0.15}})
class FrozenMinP(Frozen, V2MinP):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.frozen = True


@sound("its methods are read-only properties that give functions", "v1")
class MethodsAsProperties(Bias):
    @property
    def apply(self) -> Any:  # type: ignore[override]
        return super().apply

    @property
    def update_state(self) -> Any:  # type: ignore[override]
        return lambda batch_update: self._follow(batch_update)

    def _follow(self, batch_update: BatchUpdate | None) -> None:
        Bias.update_state(self, batch_update)
