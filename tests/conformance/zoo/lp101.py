"""Defects that LP101 must catch."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from lpkit import v2

from zoo.bases import Boost, Dense
from zoo.correct.v1 import Bias
from zoo.registry import defect, sound


@defect("LP101", "divides by the number of other requests: an engine for one request does not start")
class OneSeat(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.share = 1 / (vllm_config.scheduler_config.max_num_seqs - 1)


@defect("LP101", "one thread of work per two slots: none for an engine of one request")
class PairsOfSlots(Boost):
    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.pairs = self.values.view(req_states.max_num_reqs // 2, 2)


@defect("LP101", "reads the tokenizer's table when constructed", fix="correct the name", cause="nor vLLM's has")
class NeedsTokenizer(Dense):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log_size = math.log(len(self.vllm_config.model_config.tokenizer_table))


@defect(
    "LP101",
    "needs the number in an environment variable, which the line before reads",
    line="float(name)",
    fix="[tool.lpkit] environment",
)
class NeedsItsVariable(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        name: Any = os.getenv("ZOO_SCALE")
        self.scale = float(name)


@defect(
    "LP101",
    "needs an entry that the server's additional configuration must have",
    line='additional_config["zoo_scale"]',
    cause="`vllm_config.additional_config` has no entry 'zoo_scale'",
    fix="additional_config.get(name, default)",
)
class NeedsAnEntry(Bias):
    def __init__(self, vllm_config: Any, *args: Any) -> None:
        super().__init__(vllm_config, *args)
        self.scale = vllm_config.additional_config["zoo_scale"]


class Words:
    """Behaves like a tokenizer of transformers that lacks a word."""

    unk_token_id = 0

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.unk_token_id


@defect("LP101", "expects its word in lpkit's own tokenizer", line="assert", advice="tokenizer")
class ExpectsAWord(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tokenizer = Words()
        assert self.tokenizer.convert_tokens_to_ids("<think>") != self.tokenizer.unk_token_id


@sound("makes a table on the device that lpkit names on both runners")
class KeepsATable(Dense):
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool = False) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.table = torch.zeros(self.max_num_reqs, device=self.where(device))

    def where(self, given: Any) -> torch.device:
        return self.device


@defect(
    "LP101",
    "takes V2's second argument for a device",
    line="return torch.device(given)",
    cause="`given` is a `LogitsProcRequestState` here: V2",
    fix="`self.device`",
)
class TakesStatesForADevice(KeepsATable):
    def where(self, given: Any) -> torch.device:
        return torch.device(given)


@defect("LP101", "requires V1's third argument on both runners", fix="def __init__(self, *args)")
class RequiresThePinning(Dense):
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
