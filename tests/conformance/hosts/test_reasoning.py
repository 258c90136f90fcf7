"""A plugin that needs the engine's reasoning configuration gets the configuration that its case describes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.testing import compute_check
from zoo.bases import Dense
from zoo.correct.v1 import V1Base

MARKERS = {"start": [5], "end": [6, 7], "natural_end": [8]}


class ForcesTheEnd(V1Base):
    """Forces the marker of the engine's configuration after a number of tokens."""

    CASE: dict[str, Any] = {"extra_args": {"budget": 2}, "reasoning": MARKERS}

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        config = vllm_config.reasoning_config
        assert config is not None and config.enabled
        assert config.reasoning_start_token_ids == [5] and config.natural_reasoning_end_token_ids == [8]
        self.end = config.reasoning_end_token_ids[0]

    @classmethod
    def read(cls, params: Any) -> Any:
        return (params.extra_args or {}).get("budget")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        budget = self.read(params)
        return None if budget is None else (budget, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (budget, outputs) in self.rows.items():
            if len(outputs) == budget:
                kept = logits[row, self.end].item()
                logits[row] = -torch.inf
                logits[row, self.end] = kept
        return logits


class HasNone(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert args[0].reasoning_config is None


@pytest.mark.parametrize("code", ["LP101", "LP201", "LP211", "LP604"])
def test_a_case_gives_the_engine_markers_of_thoughts(code: str) -> None:
    assert compute_check(code, ForcesTheEnd, case=ForcesTheEnd.CASE).status == "passed"


@pytest.mark.parametrize("host", HOSTS)
def test_without_markers_the_engine_has_no_reasoning_configuration(host: str) -> None:
    assert compute_check("LP101", HasNone, host=host, case=HasNone.CASE).status == "passed"
