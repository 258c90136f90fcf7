"""Two tiny hosts that drive a processor by hand: no scheduler, no sampler, every batch update written in the test."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate, MoveDirectionality
from lpkit.v2 import LogitsContext, LogitsProcRequestState
from torch.utils._python_dispatch import TorchDispatchMode

VOCAB = 32
A_FEW_FRAMES = 512
"""Bytes that Python takes for calls and gives back at once."""

SWAP, ONE_WAY = MoveDirectionality.SWAP, MoveDirectionality.UNIDIRECTIONAL


def config(max_num_seqs: int = 8, vocab_size: int = VOCAB, speculative: bool = False) -> Any:
    """What the SDK reads from a ``VllmConfig``."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs, async_scheduling=False),
        model_config=SimpleNamespace(get_vocab_size=lambda: vocab_size),
        speculative_config=SimpleNamespace() if speculative else None,
    )


def params(temperature: float = 1.0, **extra_args: Any) -> SamplingParams:
    return SamplingParams(temperature=temperature, extra_args=extra_args or None)


def logits_of(rows: int, vocab_size: int = VOCAB, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """View float32 as integers: -0.0 is not 0.0, and NaN equals itself."""
    return tensor.view(torch.int32)


def new(row: int, sampling: SamplingParams, output: list[int] | None = None, prompt: Any = (5, 6, 7)) -> Any:
    """An entry of ``BatchUpdate.added``."""
    return (row, sampling, None if prompt is None else list(prompt), [] if output is None else output)


class V1Host:
    """Calls a processor as the V1 runner does, in inference mode."""

    def __init__(self, cls: type, max_num_seqs: int = 8, vocab_size: int = VOCAB) -> None:
        self.processor = cls(config(max_num_seqs, vocab_size), torch.device("cpu"), False)

    def update(
        self, size: int, removed: Sequence[int] = (), added: Sequence[Any] = (), moved: Sequence[Any] = ()
    ) -> None:
        with torch.inference_mode():
            self.processor.update_state(BatchUpdate(size, list(removed), list(added), list(moved)))

    def quiet(self) -> None:
        with torch.inference_mode():
            self.processor.update_state(None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = self.processor.apply(logits)
            return result


class Uva:
    """Host truth in ``.np``; ``.gpu`` is another tensor after every flush, and the retired one is spoilt."""

    def __init__(self, size: int) -> None:
        self.np = np.zeros(size, dtype=np.int32)
        self.gpu = torch.full((size,), -7, dtype=torch.int32)

    def flush(self) -> None:
        retired, self.gpu = self.gpu, torch.from_numpy(self.np.copy())
        retired.fill_(-7)


class V2Host:
    """Calls a processor as the V2 runner does. Slots are chosen by the test; rows in any order."""

    def __init__(
        self,
        cls: type,
        max_num_reqs: int = 8,
        vocab_size: int = VOCAB,
        max_model_len: int = 96,
        speculative: bool = False,
    ) -> None:
        self.tokens = SimpleNamespace(gpu=torch.full((max_num_reqs, max_model_len), 3, dtype=torch.int32))
        self.total = SimpleNamespace(gpu=torch.zeros(max_num_reqs, dtype=torch.int32))
        self.prompt, self.prefill = Uva(max_num_reqs), Uva(max_num_reqs)
        self.states = LogitsProcRequestState(
            device=torch.device("cpu"),
            max_num_reqs=max_num_reqs,
            vocab_size=vocab_size,
            all_token_ids=self.tokens,
            prompt_len=self.prompt,
            prefill_len=self.prefill,
            total_len=self.total,
        )
        self.processor = cls(config(max_num_reqs, vocab_size, speculative), self.states)
        self.flushed = True

    def add(self, slot: int, sampling: SamplingParams, prompt: Sequence[int], output: Sequence[int] = ()) -> bool:
        """A new request, or with ``output`` a resumed one; its numbers reach the device with the next context."""
        self.flushed = False
        self.prompt.np[slot] = len(prompt)
        self.prefill.np[slot] = len(prompt) + len(output)
        self.total.gpu[slot] = len(prompt) + len(output)
        self.tokens.gpu[slot, : len(prompt) + len(output)] = torch.tensor([*prompt, *output], dtype=torch.int32)
        with torch.inference_mode():
            return bool(self.processor.add_request(slot, sampling))

    def flush(self) -> None:
        self.flushed = True
        self.prompt.flush()
        self.prefill.flush()
        with torch.inference_mode():
            self.processor.apply_staged_writes()

    def commit(self, slot: int, token: int) -> None:
        self.tokens.gpu[slot, self.total.gpu[slot]] = token
        self.total.gpu[slot] += 1

    def context(
        self,
        slots: Sequence[int],
        drafts: dict[int, Sequence[int]] | None = None,
        seen: dict[int, int] | None = None,
        slack: int = 0,
        padding: int = 0,
        mapping: torch.dtype = torch.int64,
    ) -> LogitsContext:
        """One row per slot, and one more per draft token.

        Args:
            drafts: slot -> draft tokens fed after the last committed one.
            seen: slot -> tokens computed so far, for an unfinished prefill.
            slack: added to every length bound (drafts that may have been rejected).
            padding: zeros behind the bounds.
        """
        if not self.flushed:
            self.flush()
        rows: list[tuple[int, int, int, int]] = []  # slot, position, input, offset
        bounds = []
        for slot in slots:
            length = (seen or {}).get(slot, int(self.total.gpu[slot]))
            fed = [int(self.tokens.gpu[slot, length - 1]), *(drafts or {}).get(slot, ())]
            rows += [(slot, length - 1 + i, token, i) for i, token in enumerate(fed)]
            bounds.append(length - 1 + len(fed) + slack)
        expanded, pos, inputs, local = torch.tensor(rows, dtype=torch.int64).reshape(-1, 4).unbind(1)
        return LogitsContext(
            expanded_idx_mapping=expanded.to(mapping).contiguous(),
            idx_mapping=torch.tensor(slots, dtype=mapping),
            idx_mapping_np=np.array(slots, dtype=np.int64),
            expanded_local_pos=local.to(torch.int32),
            input_ids=inputs.to(torch.int32),
            pos=pos.contiguous(),
            seq_lens_upper_bound_np=np.array([*bounds, *[0] * padding], dtype=np.int32),
        )

    def apply(self, logits: torch.Tensor, context: LogitsContext) -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = self.processor.apply(logits, context)
            return result


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded_ops() -> Iterator[list[str]]:
    """The names of the torch operations dispatched inside."""
    with _Recorder() as recorder:
        yield recorder.names


HOST_SYNCS = {
    *("_local_scalar_dense", "item", "nonzero", "unique", "_unique2", "masked_select", "is_nonzero", "equal"),
    "resolve_neg",  # tolist and numpy
}


def memory_of(step: Callable[[], object], times: int = 1000) -> int:
    """The most memory that Python held at once for ``times`` steps, in bytes."""
    step()
    tracemalloc.start()
    try:
        for _ in range(times):
            step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
