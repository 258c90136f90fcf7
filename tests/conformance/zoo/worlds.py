"""Processors that meet engines which are set up otherwise."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v2

from zoo.registry import defect, sound
from zoo.v1_correct import Bias
from zoo.v1_history_correct import History
from zoo.v2_correct import V2Bias


@defect("LP221", "a vocabulary is so many words of 32 tokens", style="v1")
class WordsOf32(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        words = logits.view(logits.shape[0], -1, 32)
        for row, (where, bias) in self.rows.items():
            words[row, where // 32, where % 32] += bias
        return logits


@defect("LP221", "a table of 1,024 output tokens", style="v1")
class TableOf1024(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        table = torch.full((1024,), -1)
        for row, (weight, outputs) in self.rows.items():
            table[: len(outputs)] = torch.tensor(outputs)
            if outputs and int(table[len(outputs) - 1]) >= 0:
                logits[row, int(table[len(outputs) - 1])] -= weight
        return logits


@defect("LP221", "a schedule of five stretches of 512 tokens", style="v1")
class EndOfItsSchedule(History):
    FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[-1] >= 0:
                logits[row, outputs[-1]] -= weight * self.FACTORS[len(outputs) // 512]
        return logits


@defect("LP221", "after 200 tokens reads another list", style="v1")
class LateForgetting(History):
    newest: list[int] = []

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        self.newest = outputs if state else self.newest
        return state

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            source = outputs if len(outputs) < 200 else self.newest
            if source and source[-1] >= 0:
                logits[row, source[-1]] -= weight
        return logits


@defect("LP221", "takes the end token for one number", style="v1")
class OneEndToken(Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        super().__init__(vllm_config, *rest)
        end = vllm_config.model_config.hf_config.eos_token_id
        self.end = None if end is None else int(end)


@defect("LP221", "works on the first rank only", style="v1")
class FirstRankOnly(Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        super().__init__(vllm_config, *rest)
        self.rank = vllm_config.parallel_config.rank

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if self.rank == 0 else logits


@defect(
    "LP221", "reads a speculative configuration as a mapping", style="v2", case={"extra_args": {"ids": [4], "by": -3.0}}
)
class DraftsByKey(V2Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        super().__init__(vllm_config, *rest)
        drafts = vllm_config.speculative_config
        self.drafts = drafts["num_speculative_tokens"] if drafts else 0


class LargeVocabulary(V2Bias):
    """Knows the engine's vocabulary where its base knows the usual one; the sound version."""

    CASE = {"extra_args": {"ids": [4], "by": -3.0}}

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        super().__init__(vllm_config, req_states)
        self.vocab_size = req_states.vocab_size

    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        ids = (params.extra_args or {}).get("ids", [])
        if not isinstance(ids, list) or len(ids) > cls.WIDTH or any(type(i) is not int or i < 0 for i in ids):
            raise ValueError(f"ids must be a list of at most {cls.WIDTH} token ids, not {ids!r}")

    def add_request(self, req_idx: int, params: Any) -> bool:
        ids = sorted({i for i in (params.extra_args or {}).get("ids", []) if i < self.vocab_size})
        self.values[req_idx] = (self.read(params) or 0.0) if ids else 0.0
        self.ids[req_idx] = torch.tensor((ids * self.WIDTH or [0] * self.WIDTH)[: self.WIDTH])
        return bool(ids) and self.read(params) is not None


sound("ids of any vocabulary, one of them named several times over", "v2")(LargeVocabulary)


@defect("LP221", "keeps ids in half precision, exact up to 2,048", style="v2")
class HalfPrecisionIds(LargeVocabulary):
    def add_request(self, req_idx: int, params: Any) -> bool:
        used = super().add_request(req_idx, params)
        self.ids[req_idx] = self.ids[req_idx].half().float().clamp(max=self.vocab_size - 1).long()
        return used


@defect("LP221", "generated ids in 16 bits", style="v1")
class ShortIds(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[-1] >= 0:
                last = torch.tensor(outputs[-1:]).to(torch.int16).long() % logits.shape[1]
                logits[row, last] -= weight
        return logits


@sound("refuses speculative decoding in its constructor, as vLLM's own example does", "v1")
class RefusesDrafts(Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        if vllm_config.speculative_config:
            raise ValueError("speculative decoding is not supported")
        super().__init__(vllm_config, *rest)


class CountsPrompt(History):
    """Lowers the prompt's tokens that the vocabulary has; the sound version."""

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else (weight, list(prompt or ()))

    def known(self, ids: list[int], size: int) -> list[int]:
        return sorted({item for item in ids if 0 <= item < size})

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, prompt) in self.rows.items():
            logits[row, self.known(prompt, logits.shape[1])] -= weight
        return logits


sound("ignores prompt ids outside the vocabulary", "v1")(CountsPrompt)


@defect("LP222", "indexes the logits with whatever the prompt holds", style="v1")
class IndexesPrompt(CountsPrompt):
    def known(self, ids: list[int], size: int) -> list[int]:
        return sorted(set(ids))
