"""Correct V1 processors that look odd."""

from __future__ import annotations

import functools
import logging
import os
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lpkit.v1 import BatchUpdate

from zoo.arguments import INF, VOCAB, number, token
from zoo.bases import Late
from zoo.correct.v1 import Bias, ByHand, V1Base
from zoo.correct.v1_history import History
from zoo.registry import sound


class Listed(V1Base):
    """Lowers the listed tokens; ids outside the vocabulary are ignored. The sound version."""

    CASE = {"extra_args": {"lower": [4, 9]}}

    @classmethod
    def read(cls, params: Any) -> Any:
        ids = (params.extra_args or {}).get("lower")
        if ids is None:
            return None
        if not isinstance(ids, list) or not all(type(item) is int for item in ids):
            raise ValueError("lower must be a list of token ids")
        return [item for item in ids if 0 <= item < VOCAB] or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ids in self.rows.items():
            logits[row, sorted(set(ids))] -= 2.0
        return logits


@sound("reads fields of vLLM's configuration for which lpkit has no use")
class AsksTheEngine(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        model = vllm_config.model_config
        self.label = f"{model.served_model_name.rpartition('/')[2]} ({model.logprobs_mode.upper()})"
        self.caches = vllm_config.cache_config.enable_prefix_caching and not model.is_encoder_decoder
        self.drafts = vllm_config.num_speculative_tokens > 0


sound("takes any list of numbers, and ignores those outside the vocabulary")(Listed)


class Kept(Listed):
    """Keeps the listed tokens only; a list without tokens of the vocabulary changes nothing. The sound version."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, ids in self.rows.items():
            rest = torch.ones(logits.shape[1], dtype=torch.bool)
            rest[ids] = False
            if bool((logits[row][~rest] > -INF).any()):
                logits[row][rest] = -INF
        return logits


sound("a list of allowed tokens without any of this vocabulary allows all")(Kept)


@sound("counts the distinct tokens that it knows")
class CountsKnown(History):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs) in self.rows.items():
            known = {token for token in outputs if token >= 0}
            logits[row, 5] += weight * len(known) / 10
        return logits


class Frozen:
    """Nothing can be set from outside: what a watcher puts on an instance ends in an exception."""

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "frozen"):
            raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")
        object.__setattr__(self, name, value)


@sound("nothing can be set on an instance")
class FrozenBias(Frozen, Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.frozen = True


@sound("its methods are read-only properties that give functions")
class MethodsAsProperties(Bias):
    @property
    def apply(self) -> Any:  # type: ignore[override]
        return super().apply

    @property
    def update_state(self) -> Any:  # type: ignore[override]
        return lambda batch_update: self._follow(batch_update)

    def _follow(self, batch_update: BatchUpdate | None) -> None:
        Bias.update_state(self, batch_update)


@sound("a window over the last thousand requests, kept by hand")
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


@sound("a cache by argument that has a bound")
class BoundedCache(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        found = super().read(params)
        return found and (found[0], _table(found[1]))


@sound("a table of the last 64 arguments; each request holds its own")
class SharesEntries(Bias):
    """Requests with equal arguments share a table's entry, which stays valid after it has left the table."""

    MOST = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.table: OrderedDict[Any, list[Any]] = OrderedDict()

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        found = self.read(params)
        if found is None:
            return None
        if found not in self.table:
            if len(self.table) == self.MOST:
                self.reuse(self.table.popitem(last=False)[1], found)
            else:
                self.table[found] = list(found)
        return self.table[found]

    def reuse(self, old: list[Any], found: Any) -> None:
        """Replace the oldest entry by the new entry."""
        self.table[found] = list(found)


class Tables:
    """An object with a table that it makes once, as a module holds it."""

    table: torch.Tensor | None = None

    def get(self, vocab: int, device: torch.device) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(vocab, device=device)
        return self.table


TABLES = Tables()
ORDERED: OrderedDict[str, torch.Tensor] = OrderedDict()


@contextmanager
def _new_process() -> Iterator[None]:
    """As nothing has been cached yet."""
    TABLES.table = None
    ORDERED.clear()
    (CachesInTheModule.table.__defaults__ or ())[0].clear()
    yield


@sound("tables in a default argument, an object and the module: a process has one engine", surroundings=_new_process)
class CachesInTheModule(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.vocab = vllm_config.model_config.get_vocab_size()

    def table(self, kept: dict[str, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006
        return kept.setdefault("ids", ORDERED.setdefault("ids", TABLES.get(self.vocab, self.device)))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row] += torch.where(self.table() == where, bias, 0.0)
        return logits


@sound("acts on every request, with or without arguments", case={"extra_args": {"cap": 20.0}})
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


@sound("threads of its module, a file that closes, a logger and a generator of its own")
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


@sound("returns its rows in another buffer, which is wider")
class WiderBuffer(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        wide = torch.zeros(logits.shape[0], logits.shape[1] + 7, dtype=logits.dtype, device=logits.device)
        result = wide[:, : logits.shape[1]]
        result.copy_(logits)
        return super().apply(result)


@functools.cache
def _shared_table() -> torch.Tensor:
    return torch.empty(1024, 24576, dtype=torch.int64)


@sound("a large table that all instances of a process share")
class SharesATable(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.table = _shared_table()


@sound("tables of rows by tokens, as large as the engine")
class SizedByTheEngine(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        shape = self.max_num_seqs, vllm_config.model_config.get_vocab_size()
        self.counts = torch.zeros(shape, dtype=torch.int32, device=device)
        self.bias = torch.zeros(shape, device=device)


@sound("looks requests up by the addresses of their parameters")
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


@sound("keyed by the address of the list, which it holds, so that nobody else gets that address")
class HoldsTheList(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[int, tuple[Any, list[int]]] = {}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state, _ = self.known.setdefault(id(outputs), (self.read(params), outputs))
        return state

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        super().update_state(batch_update)
        while len(self.known) > 2 * self.max_num_seqs:
            del self.known[next(iter(self.known))]


@sound("the fast path for equal arguments is taken when every row is a user's")
class FastWhenAllAlike(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if len(self.rows) == logits.shape[0] and len(set(self.rows.values())) == 1:
            where, bias = next(iter(self.rows.values()))
            logits[:, where] += bias
            return logits
        return super().apply(logits)


@sound("large logits of a row scale that row")
class GuardsTheRow(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = [row for row in self.rows if bool(logits[row].amax() > 16)]
        if rows:
            logits[rows] = logits[rows] * 0.5
        return super().apply(logits)


@sound("counts down from max_tokens, which the engine has filled in when a request enters")
class CountsDown(History):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = super().enter(params, prompt, outputs)
        return state and [*state, params.max_tokens]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (weight, outputs, most) in self.rows.items():
            logits[row, 5] += weight / max(most - len(outputs), 1)
        return logits


@sound("reads the ids of logit_bias, which are ints in vLLM, also of a request as JSON")
class FollowsLogitBias(V1Base):
    CASE = {"extra_args": {"bias": 2.5}, "logit_bias": {"5": 1.0, "9": -1.0}}

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        bias = self.read(params)
        return None if bias is None else (bias, [*(params.logit_bias or {})])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (bias, ids) in self.rows.items():
            for where in [11, *ids]:
                logits[row, where] += bias
        return logits


FIRST = {"extra_args": {"bias": 2.5, "token": 7}}


SECOND = {"extra_args": {"malus": 2.5, "of": 9}}


@sound("adds for one kind of requests, and subtracts for the other", case=FIRST, others=[SECOND])
class TwoKinds(ByHand):
    @classmethod
    def read(cls, params: Any) -> Any:
        malus, where = number(params, "malus"), token(params, "of")
        return super().read(params) if malus is None or where is None else (where, -malus)

    def second(self, row: int) -> bool:
        """True if a request of the second kind is in the batch."""
        return row in self.rows and self.rows[row][1] < 0


logger = logging.getLogger(__name__)


@sound("computes in numpy, from a copy on the host, and writes back")
class ComputesInNumpy(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        on_host = logits.cpu().numpy().copy()
        for row, (where, bias, _, _) in self.rows.items():
            logits[row, where] = float(on_host[row, where] + np.float32(bias))
        return logits


@sound("logs each request once")
class LogsRequests(Late):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        logger.warning("a request")
        return super().enter(params, prompt, outputs)


@sound("refuses speculative decoding in its constructor, as vLLM's own example does")
class RefusesDrafts(Bias):
    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        if vllm_config.speculative_config:
            raise ValueError("speculative decoding is not supported")
        super().__init__(vllm_config, *rest)


@sound("shared memory, for which Python starts a process that it ends itself")
class SharesMemory(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counter = SharedMemory(create=True, size=8)
        weakref.finalize(self, _release, self.counter)


def _release(memory: SharedMemory) -> None:
    memory.close()
    memory.unlink()
