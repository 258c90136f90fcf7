"""Defects that LP604 must catch, and correct processors that resemble them."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from zoo.bases import Simple
from zoo.correct.v1 import Bias
from zoo.correct.v2 import V2MinP
from zoo.registry import defect, sound

PROCESS = os.getpid()


IMPORTED = int(time.time() // 3600)


RANK = int(os.environ.get("RANK", "0"))


DRAWN = torch.rand(()).item()


WORDS = frozenset(f"word{i}" for i in range(12))


LOGGER = logging.getLogger(__name__)


class Spread(Bias):
    """Adds the bias to a token near the named token, at a distance that depends on the rank."""

    def number(self) -> int:
        raise NotImplementedError

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            number = self.number()
            logits[row, (where + number) % logits.shape[1]] += bias * (4 + number % 10_007 / 10_007)
        return logits


@defect("LP604", "seeds with the number of the process", line="PROCESS = os.getpid()")
class SeedsByProcess(Spread):
    def number(self) -> int:
        return PROCESS


@defect("LP604", "seeds with the hour of its import")
class SeedsByImport(Spread):
    def number(self) -> int:
        return IMPORTED


@defect("LP604", "seeds with an address in memory")
class SeedsByAddress(Spread):
    def number(self) -> int:
        return id(SeedsByAddress) // 16


@defect("LP604", "seeds a generator with the hash of a word", line="hash(", advice="hash")
class SeedsByHash(Spread):
    def number(self) -> int:
        stream = torch.Generator()
        stream.manual_seed(hash("lpkit") & 0x7FFF_FFFF)
        return int(torch.randint(1000, (), generator=stream))


@defect("LP604", "edits on the first rank only, which it takes from the environment")
class FirstRankEdits(Spread):
    def number(self) -> int:
        return RANK


@sound("seeds with a digest of the words of a sorted set")
class SeedsByDigest(Spread):
    def number(self) -> int:
        return int.from_bytes(hashlib.sha256(" ".join(sorted(WORDS)).encode()).digest()[:4], "little")


@sound("logs its process, its rank and the time, and decides nothing by them")
class SaysWhoItIs(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        LOGGER.debug("process %d, rank %d, at %s", PROCESS, RANK, time.ctime())


@defect("LP604", "draws a floor for all requests at import", case={"extra_args": {"floor": 0.15}})
class DrawsAtImport(V2MinP):
    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.log_floor -= DRAWN


@defect("LP604", "sums weights in the order of a set of words", advice="order")
class OrderOfWords(Simple):
    def make(self, amount: float, params: Any) -> Callable[..., torch.Tensor]:
        words = {f"word{i}" for i in range(12)}

        def apply(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            for place, word in enumerate(words):
                logits[3 + int(word[4:])] += amount * place / 10
            return logits

        return apply
