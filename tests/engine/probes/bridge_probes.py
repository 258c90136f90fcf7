"""V1-only processors as people have them, behind bridges: nothing in the classes themselves knows of lpkit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import lpkit
import torch
from transformers import RepetitionPenaltyLogitsProcessor
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import (
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
    MoveDirectionality,
)
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


def given(params: SamplingParams, key: str) -> Any:
    return (params.extra_args or {}).get(key)


class V1TargetToken(LogitsProcessor):
    """Keeps one token, chosen by the request."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.targets: dict[int, int] = {}

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        target = given(params, "old_target")
        if target is not None and not isinstance(target, int):
            raise ValueError(f"old_target must be a token id, not {target!r}")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.targets, batch_update, lambda params, *_: given(params, "old_target"))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.targets:
            return logits
        rows, columns = list(self.targets), list(self.targets.values())
        kept = logits[rows, columns].clone()
        logits[rows] = float("-inf")
        logits[rows, columns] = kept
        return logits


class V1Weary(LogitsProcessor):
    """Counts tokens as they come, in lists by row, and takes `old_weary` off for each occurrence."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.states: list[Any] = [None] * vllm_config.scheduler_config.max_num_seqs

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row, params, prompt, outputs in batch_update.added:
            cost = given(params, "old_weary")
            self.states[row] = None if cost is None else SimpleNamespace(cost=cost, outputs=outputs, seen=0, counts={})
            if cost is not None:
                self.count(self.states[row], prompt or [])
        for row in batch_update.removed:
            self.states[row] = None
        for source, target, kind in batch_update.moved:
            left = self.states[target] if kind is MoveDirectionality.SWAP else None
            self.states[target], self.states[source] = self.states[source], left

    def count(self, state: Any, tokens: list[int]) -> None:
        for token in tokens:
            state.counts[token] = state.counts.get(token, 0) + 1

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, state in enumerate(self.states[: len(logits)]):
            if state is not None:
                self.count(state, state.outputs[state.seen :])
                state.seen = len(state.outputs)
                amounts = torch.tensor(list(state.counts.values()), dtype=logits.dtype)
                logits[row, list(state.counts)] -= state.cost * amounts
        return logits


def ascend(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Each token is the last one plus 1."""
    row = torch.full_like(logits, float("-inf"))
    row[[*prompt_ids, *output_ids][-1] + 1] = 0.0
    return row


class V1Ascend(AdapterLogitsProcessor):
    """The same through vLLM's own adapter."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        return ascend if given(params, "old_ascend") else None


class FromExtraArgs:
    """Feeds one of vLLM's processors from extra_args: the field of its own would switch vLLM's copy on as well."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None:
            added = [(row, self.fields(params), prompt, out) for row, params, prompt, out in batch_update.added]
            batch_update = replace(batch_update, added=added)
        super().update_state(batch_update)  # type: ignore[misc]

    def fields(self, params: SamplingParams) -> Any:
        raise NotImplementedError


class VllmMinP(FromExtraArgs, MinPLogitsProcessor):
    def fields(self, params: SamplingParams) -> Any:
        return SimpleNamespace(min_p=given(params, "old_min_p") or 0.0)


class VllmLogitBias(FromExtraArgs, LogitBiasLogitsProcessor):
    def fields(self, params: SamplingParams) -> Any:
        bias = given(params, "old_bias") or {}
        return SimpleNamespace(logit_bias={int(token): value for token, value in bias.items()})


class VllmMinTokens(FromExtraArgs, MinTokensLogitsProcessor):
    def fields(self, params: SamplingParams) -> Any:
        least, stops = given(params, "old_min_tokens") or (0, [])
        return SimpleNamespace(min_tokens=least, all_stop_token_ids=set(stops), structured_outputs=None)


class TargetToken(lpkit.Bridged):
    wraps = V1TargetToken
    keys = ("old_target",)
    history = "none"


class Weary(lpkit.Bridged):
    wraps = V1Weary


class Ascend(lpkit.Bridged):
    wraps = V1Ascend
    keys = ("old_ascend",)


MinP = lpkit.bridge(VllmMinP)
LogitBias = lpkit.bridge(VllmLogitBias, history="none")
MinTokens = lpkit.bridge(VllmMinTokens, history="length")
Repetition = lpkit.bridge(RepetitionPenaltyLogitsProcessor, keys={"their_penalty": "penalty"})


class Words:
    """As logits-processor-zoo's: a counter that advances per call."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids, self.index = token_ids, 0

    def __call__(self, prompt_ids: list[int], past_ids: list[int], scores: torch.Tensor) -> torch.Tensor:
        if self.index < len(self.token_ids):
            kept = scores[self.token_ids[self.index]].clone()
            scores.fill_(-torch.inf)[self.token_ids[self.index]] = kept
        self.index += 1
        return scores


ForcedWords = lpkit.bridge(Words, keys={"words": "token_ids"})
AscendByCallable = lpkit.bridge(ascend, keys="ascend_by_callable")
