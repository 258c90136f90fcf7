"""Processors that take or change what belongs to their process."""

from __future__ import annotations

import functools
import logging
import os
import threading
from datetime import datetime
from time import time
from typing import Any

import numpy as np
import torch
from lpkit.v1 import BatchUpdate

from zoo.process_correct import SharesEntries
from zoo.registry import defect
from zoo.v1_correct import Bias
from zoo.v2_correct import V2MinP


@functools.cache
def _weight(bias: float) -> float:
    return bias


@defect("LP603", "a cache without a bound, by an argument that clients choose", style="v1")
class CachesByArgument(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        found = super().read(params)
        return found and (found[0], _weight(found[1]))


@defect("LP603", "the oldest of 64 entries is overwritten, even if a running request uses it", style="v1")
class OverwritesEntries(SharesEntries):
    def reuse(self, old: list[Any], found: Any) -> None:
        old[:] = found
        self.table[found] = old


@defect("LP605", "a clock that was imported by its name", style="v1")
class ClockByName(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias * (1 + int(time() / 3600) % 2)
        return logits


@defect("LP605", "decides by the hour of the day", style="v1")
class ByTheHour(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] += bias * (1 + datetime.now().hour % 2)
        return logits


@defect("LP301", "returns a transposed tensor", style="v1")
class Transposes(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits).t().contiguous().t()


_opened: list[int] = []


@defect("LP607", "changes the default dtype", style="v1")
class ChangesTheDtype(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        torch.set_default_dtype(torch.float64)


@defect("LP607", "turns the grad mode off for everyone", style="v2", case={"extra_args": {"floor": 0.15}})
class TurnsGradOff(V2MinP):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        torch.set_grad_enabled(False)


@defect("LP607", "adds a handler to the root logger", style="v1")
class ConfiguresLogging(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        logging.getLogger().addHandler(logging.NullHandler())


@defect("LP607", "sets an environment variable for its requests", style="v1")
class SetsTheEnvironment(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        os.environ["ZOO_STEPS"] = str(len(self.rows))
        super().update_state(batch_update)


@defect("LP607", "a thread for each instance, which never ends", style="v1")
class LeavesAThread(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        threading.Thread(target=threading.Event().wait, args=(20.0,), daemon=True).start()


@defect("LP607", "a file for each instance, which stays open", style="v1")
class LeavesAFileOpen(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        _opened.append(os.open(os.devnull, os.O_RDONLY))


@defect("LP607", "a table for a thousand rows and the longest context, whatever the engine's size", style="v1")
class PreallocatesATable(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.history = torch.empty(1024, 24576, dtype=torch.int64, device=device)


@defect(
    "LP607", "room for every request there may ever be, in an array", style="v2", case={"extra_args": {"floor": 0.15}}
)
class PreallocatesAnArray(V2MinP):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.room = np.empty(20_000_000)
