"""Processors whose results depend on the process that they run in, and correct ones that only look so."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from typing import Any

import torch

from zoo.registry import defect, sound
from zoo.v1_correct import Bias
from zoo.v2_correct import V2MinP

PROCESS = os.getpid()
IMPORTED = int(time.time() // 3600)
RANK = int(os.environ.get("RANK", "0"))
DRAWN = torch.rand(()).item()
WORDS = frozenset(f"word{i}" for i in range(12))
LOGGER = logging.getLogger(__name__)


class Spread(Bias):
    """The bias goes to a token near the one that was named, by a number of each rank's own."""

    def number(self) -> int:
        raise NotImplementedError

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            number = self.number()
            logits[row, (where + number) % logits.shape[1]] += bias * (4 + number % 10_007 / 10_007)
        return logits


@defect("LP604", "seeds with the number of the process", style="v1")
class SeedsByProcess(Spread):
    def number(self) -> int:
        return PROCESS


@defect("LP604", "seeds with the hour of its import", style="v1")
class SeedsByImport(Spread):
    def number(self) -> int:
        return IMPORTED


@defect("LP604", "seeds with an address in memory", style="v1")
class SeedsByAddress(Spread):
    def number(self) -> int:
        return id(SeedsByAddress) // 16


@defect("LP604", "numbers words in the order of a set", style="v1")
class OrderOfASet(Spread):
    def number(self) -> int:
        return sum(7**place * int(word[4:]) for place, word in enumerate(WORDS))


@defect("LP604", "edits on the first rank only, which it takes from the environment", style="v1")
class FirstRankEdits(Spread):
    def number(self) -> int:
        return RANK


@defect("LP604", "draws a floor for all requests at import", style="v2", case={"extra_args": {"floor": 0.15}})
class DrawsAtImport(V2MinP):
    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        self.log_floor -= DRAWN


@sound("seeds with a digest of the words of a sorted set", "v1")
class SeedsByDigest(Spread):
    def number(self) -> int:
        return int.from_bytes(hashlib.sha256(" ".join(sorted(WORDS)).encode()).digest()[:4], "little")


@sound("logs its process, its rank and the time, and decides nothing by them", "v1")
class SaysWhoItIs(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        LOGGER.debug("process %d, rank %d, at %s", PROCESS, RANK, time.ctime())


@sound("looks requests up by the addresses of their parameters", "v1")
class KeepsByAddress(Bias):
    """An address is a good key while the object lives; nothing depends on its value."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, Any] = {}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.known = {id(state): state for state in self.rows.values()}
        for row, state in self.rows.items():
            where, bias = self.known[id(state)]
            logits[row, where] += bias
        return logits
