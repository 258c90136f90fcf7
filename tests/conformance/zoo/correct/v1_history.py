"""Correct V1 processors that act by the tokens or the length of the text."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch

from zoo.arguments import INF, noise, number, token, tokens
from zoo.correct.v1 import V1Base
from zoo.registry import sound


class History(V1Base):
    """State is the weight and the live output list."""

    CASE = {"extra_args": {"weight": 1.5}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "weight", 0.01, 100.0)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, *_) in self.rows.items():
            if outputs and outputs[-1] >= 0:
                logits[row, outputs[-1]] -= weight
        return logits


@sound("reads the last token of the live list in apply")
class LastToken(History):
    pass


@sound("counts tokens incrementally, and starts again when the list is shorter or newer than its cache")
class CountingCache(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        weight = self.read(params)
        return None if weight is None else [weight, outputs, [], {}]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, done, counts) in self.rows.items():
            if outputs[: len(done)] != done:
                done.clear()
                counts.clear()
            for item in outputs[len(done) :]:
                counts[item] = counts.get(item, 0) + (item >= 0)
            done[:] = outputs
            if counts:
                values = torch.tensor(list(counts.values()), dtype=torch.float32, device=self.device)
                logits[row, torch.tensor(list(counts), device=self.device)] -= weight * values
        return logits


@sound("acts by length alone: forces a sequence, then the end", case={"extra_args": {"say": [9, 11, 10]}})
class ForcedSequence(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return tokens(params, "say")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        say = self.read(params)
        return None if say is None else (say, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (say, outputs) in self.rows.items():
            wanted = say[min(len(outputs), len(say) - 1)]
            kept = logits[row, wanted].clone()
            if kept > -INF:  # a grammar may forbid it: then there is nothing to force
                logits[row] = -INF
                logits[row, wanted] = kept
        return logits


@sound("random, but a function of the request's seed and the position", case={"extra_args": {"gumbel_seed": 11}})
class SeededNoise(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return token(params, "gumbel_seed")

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        seed = self.read(params)
        return None if seed is None else (seed, outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (seed, outputs) in self.rows.items():
            logits[row] += noise(0, seed, len(outputs), logits.shape[1]).to(self.device)
        return logits


@sound("a torch.Generator of its own, seeded again for each row and position")
class OwnGenerator(SeededNoise):
    CASE = {"extra_args": {"gumbel_seed": 11}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (seed, outputs) in self.rows.items():
            generator = torch.Generator().manual_seed(seed * 100_003 + len(outputs))
            rng = random.Random(seed)
            drawn = torch.rand(logits.shape[1], generator=generator) * rng.random()
            logits[row] += drawn.to(self.device)
        return logits


@sound("needs the prompt: bans what would repeat a bigram of prompt and output")
class NoRepeatBigram(V1Base):
    CASE = {"extra_args": {"bigram": 1.0}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "bigram", 0.1, 10.0)

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return None if self.read(params) is None else (prompt or [], outputs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (prompt, outputs) in self.rows.items():
            seen = [*prompt, *outputs]
            if seen[-1:] < [0]:
                continue  # unknown: leave the row unchanged
            banned = [b for a, b in itertools.pairwise(seen) if a == seen[-1] and b >= 0]
            if banned:
                logits[row, torch.tensor(banned)] = -INF
        return logits
