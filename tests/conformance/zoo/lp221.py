"""Defects that LP221 must catch."""

from __future__ import annotations

from typing import Any

import lpkit
import torch

from zoo.bases import Late, Simple
from zoo.correct.portable import PortableBias
from zoo.correct.v1 import Bias
from zoo.correct.v1_history import History
from zoo.correct.v2 import V2Bias
from zoo.correct.v2_odd import LargeVocabulary
from zoo.correct.words import Agrees
from zoo.registry import defect, sound


@defect("LP221", "needs an end-of-sequence id, which a model need not have", fix="eos_token_id")
class NeedsEos(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.eos = int(vllm_config.model_config.hf_config.eos_token_id)


@defect("LP221", "a window of the last 64 tokens is what it leaves of the engine's output list")
class TrimsOutputs(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            del outputs[:-64]
            if known := sorted({token for token in outputs if token >= 0}):
                logits[row, torch.tensor(known)] -= weight
        return logits


@defect("LP221", "a vocabulary is so many words of 32 tokens", fix="32")
class WordsOf32(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        words = logits.view(logits.shape[0], -1, 32)
        for row, (where, bias) in self.rows.items():
            words[row, where // 32, where % 32] += bias
        return logits


@defect("LP221", "a schedule of five stretches of 512 tokens")
class EndOfItsSchedule(History):
    FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[-1] >= 0:
                logits[row, outputs[-1]] -= weight * self.FACTORS[len(outputs) // 512]
        return logits


@defect("LP221", "after 200 tokens reads another list", line="logits[row, source[-1]] -= weight")
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


@defect("LP221", "works on the first rank only", fix="every rank", line="self.rank =")
class FirstRankOnly(Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        super().__init__(vllm_config, *rest)
        self.rank = vllm_config.parallel_config.rank

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) if self.rank == 0 else logits


@defect("LP221", "generated ids in 16 bits", line="logits[row, last] -= weight")
class ShortIds(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            if outputs and outputs[-1] >= 0:
                last = torch.tensor(outputs[-1:]).to(torch.int16).long() % logits.shape[1]
                logits[row, last] -= weight
        return logits


@defect("LP221", "reads a speculative configuration as a mapping", case={"extra_args": {"ids": [4], "by": -3.0}})
class DraftsByKey(V2Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        super().__init__(vllm_config, *rest)
        drafts = vllm_config.speculative_config
        self.drafts = drafts["num_speculative_tokens"] if drafts else 0


@defect("LP221", "keeps ids in half precision, exact up to 2,048")
class HalfPrecisionIds(LargeVocabulary):
    def add_request(self, req_idx: int, params: Any) -> bool:
        used = super().add_request(req_idx, params)
        self.ids[req_idx] = self.ids[req_idx].half().float().clamp(max=self.vocab_size - 1).long()
        return used


@defect("LP221", "token ids in a byte, made to fit")
class ByteIds(PortableBias):
    token = lpkit.column(torch.uint8)

    def admit(self, request: lpkit.Request) -> bool:
        self.bias[request.slot] = request.params.bias
        self.token[request.slot] = request.params.token % 256
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.token[rows].long().unsqueeze(1)
        logits[ids] = logits[ids] + self.bias[rows].unsqueeze(1)


@defect(
    "LP221",
    "looks its words up when it is constructed: an engine without a tokenizer does not start",
    case={"extra_args": {"agree_by": 2.5}},
)
class NeedsATokenizer(Agrees):
    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        super().__init__(vllm_config, device_or_states, is_pin_memory)
        lpkit.tokenizer(self)


class ByVariety(Late):
    """Its bias grows with the number of different tokens; the sound version."""

    KINDS = 512

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            seen = torch.zeros(self.KINDS)
            for number, _ in enumerate(dict.fromkeys(outputs)):
                seen[number % 512] = 1.0
            logits[row, where] += bias * float(seen.mean())
        return logits


sound("counts the different tokens of an output")(ByVariety)


@defect("LP221", "room for 256 different tokens")
class FewKinds(ByVariety):
    KINDS = 256


@defect("LP221", "a power of the length of a run of one token, which overflows in Python")
class PowerOfARun(Simple):
    def make(self, amount: float, params: Any) -> Any:
        def apply(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            run = next((n for n, token in enumerate(output_ids[::-1]) if token != output_ids[-1]), len(output_ids))
            logits[3 + len(output_ids) % 12] += amount
            logits[output_ids[-1:]] -= 1.75**run
            return logits

        return apply
