"""Correct processors that look odd from outside: to what watches their calls, or their process."""

from __future__ import annotations

import functools
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lpkit.v1 import BatchUpdate

from zoo.arguments import number
from zoo.registry import sound
from zoo.v1_correct import Bias, V1Base
from zoo.v2_correct import V2MinP


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


@sound("a window over the last thousand requests, kept by hand", "v1")
class RollingWindow(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.recent: OrderedDict[int, Any] = OrderedDict()
        self.latest: deque[Any] = deque(maxlen=100_000)
        self.count = 0

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        self.count += 1
        self.recent[self.count] = params
        self.latest.append(params)
        if len(self.recent) > 1000:
            self.recent.popitem(last=False)
        return super().enter(params, prompt, outputs)


@functools.lru_cache(maxsize=100_000)
def _table(bias: float) -> float:
    return bias


@sound("a cache by argument that has a bound", "v1")
class BoundedCache(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        found = super().read(params)
        return found and (found[0], _table(found[1]))


@sound("a table of the last 64 arguments; each request holds its own", "v1")
class SharesEntries(Bias):
    """What requests with equal arguments share is a table's entry, which outlives its place in the table."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table: OrderedDict[Any, list[Any]] = OrderedDict()

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        if found is None:
            return None
        if found not in self.table:
            if len(self.table) == 64:
                self.reuse(self.table.popitem(last=False)[1], found)
            else:
                self.table[found] = list(found)
        return self.table[found]

    def reuse(self, old: list[Any], found: Any) -> None:
        """The oldest entry has lost its place to this one."""
        self.table[found] = list(found)


_by_size: dict[int, torch.Tensor] = {}
_first: torch.Tensor | None = None


@contextmanager
def _new_process() -> Iterator[None]:
    """As nothing has been cached yet."""
    global _first
    _first = None
    _by_size.clear()
    yield


@sound("tensors cached in the module, by size alone: a process has one device", "v1", surroundings=_new_process)
class CachesInTheModule(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        global _first
        if _first is None:
            _first = torch.zeros(1, device=logits.device)
        vocab = logits.shape[1]
        if vocab not in _by_size:
            _by_size[vocab] = torch.arange(vocab, device=logits.device)
        for row, (where, bias) in self.rows.items():
            logits[row] = torch.where(_by_size[vocab] == where, logits[row] + bias, logits[row] + _first)
        return logits


@sound("acts on every request, of which it may be told more", "v1", case={"extra_args": {"cap": 20.0}})
class CapsEveryRow(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "cap", 1.0, 1000.0) or 5.0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, cap in self.rows.items():
            logits[row] = logits[row].clamp(max=cap)
        return logits


_pool = ThreadPoolExecutor(2)
_log = logging.getLogger("zoo.tidy")


@sound("threads of its module, a file that closes, a logger and a generator of its own", "v1")
class Tidy(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.file = Path(os.devnull).open()  # noqa: SIM115 - it closes with the instance
        self.ready = _pool.submit(int, "1")
        _log.setLevel(logging.ERROR)

    def __del__(self) -> None:
        self.file.close()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return super().apply(logits) * float(self.ready.result())


@sound("returns its rows in another buffer, which is wider", "v1")
class WiderBuffer(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        wide = torch.zeros(logits.shape[0], logits.shape[1] + 7, dtype=logits.dtype, device=logits.device)
        result = wide[:, : logits.shape[1]]
        result.copy_(logits)
        return super().apply(result)


@functools.cache
def _shared_table() -> torch.Tensor:
    return torch.empty(1024, 24576, dtype=torch.int64)


@sound("a large table that all instances of a process share", "v1")
class SharesATable(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.table = _shared_table()


@sound("tables of rows by tokens, as large as the engine", "v1")
class SizedByTheEngine(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        shape = self.max_num_seqs, vllm_config.model_config.get_vocab_size()
        self.counts = torch.zeros(shape, dtype=torch.int32, device=device)
        self.bias = torch.zeros(shape, device=device)
