"""A processor applied to chosen requests on every kind of host, for tests that compare it with its rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from lpkit import kernels
from sdk_hosts import HOST_SYNCS, V1Host, V2Host, logits_of, params
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Asked:
    """A request: its ``extra_args`` (None: it does not use the plugin), and where it stands."""

    args: dict[str, Any] | None
    prompt: Sequence[int] = (1,)
    output: Sequence[int] = ()
    temperature: float = 1.0

    @property
    def sampling(self) -> Any:
        return params(temperature=self.temperature, **(self.args or {}))


Applied = Callable[[type, torch.Tensor, Sequence[Asked]], torch.Tensor]
"""(class, logits ``[requests, vocab]``, requests) -> what the plugin makes of them.

For a processor of the sampling stage, logits and results are those after the division by the temperature.
"""


def _temperatures(cls: Any, requests: Sequence[Asked]) -> torch.Tensor | float:
    if cls.stage != "sampling":
        return 1.0
    return torch.tensor([[asked.temperature or 1.0] for asked in requests])


def on_v1(cls: type, logits: torch.Tensor, requests: Sequence[Asked]) -> torch.Tensor:
    host = V1Host(cls, max_num_seqs=len(requests), vocab_size=logits.shape[1])
    added = [(i, asked.sampling, list(asked.prompt), list(asked.output)) for i, asked in enumerate(requests)]
    host.update(len(requests), added=added)
    return host.apply(logits.clone())


def on_v2(cls: type, logits: torch.Tensor, requests: Sequence[Asked]) -> torch.Tensor:
    return _v2(cls, logits, requests, 0)


def on_v2_with_drafts(cls: type, logits: torch.Tensor, requests: Sequence[Asked]) -> torch.Tensor:
    """Up to three of the last output tokens are not committed yet but drafts, with rows of their own."""
    return _v2(cls, logits, requests, 3)


def _v2(cls: type, logits: torch.Tensor, requests: Sequence[Asked], drafts: int) -> torch.Tensor:
    length = max(len(asked.prompt) + len(asked.output) for asked in requests)
    host = V2Host(cls, len(requests), logits.shape[1], max_model_len=length + 8)
    drafted: dict[int, Sequence[int]] = {}
    for slot, asked in enumerate(requests):
        split = max(0, len(asked.output) - drafts)
        drafted[slot] = asked.output[split:]
        host.add(slot, asked.sampling, asked.prompt, asked.output[:split])
    context = host.context(range(len(requests)), drafted)
    last = torch.tensor([len(drafted[slot]) + 1 for slot in range(len(requests))]).cumsum(0) - 1
    temperatures = _temperatures(cls, requests)
    rows = logits_of(context.pos.shape[0], logits.shape[1], seed=99)
    rows[last] = logits * temperatures
    return host.apply(rows, context)[last] / temperatures


ON_EVERY_HOST = pytest.mark.parametrize("applied", [on_v1, on_v2, on_v2_with_drafts])


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if torch.is_tensor(leaf)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if torch.is_tensor(leaf) and leaf.untyped_storage().data_ptr() not in known:
                self.largest = max(self.largest, leaf.untyped_storage().nbytes())
        return result


def watched(cls: type, asked: Asked, n: int, vocab_size: int = 40_000) -> _Watch:
    """The operations of one ``apply`` for ``n`` requests like ``asked``, on V2 (where drafts are expected)."""
    host = V2Host(cls, n, vocab_size)
    for slot in range(n):
        host.add(slot, asked.sampling, asked.prompt, asked.output)
    logits, context = logits_of(n, vocab_size), host.context(range(n))
    with torch.inference_mode(), _Watch() as watch:
        host.processor.apply(logits, context)
    return watch


def assert_cheap(cls: type, asked: Asked) -> None:
    """No host sync, no operation per row, and no second tensor of the size of a large batch's logits."""
    rows, vocab_size = 48, 151_936
    watched(cls, asked, rows, vocab_size)  # the first call in a process makes the scratch memory that all others use
    few, many = watched(cls, asked, 2), watched(cls, asked, 16)
    assert few.names == many.names
    assert not HOST_SYNCS & set(many.names)
    large = watched(cls, asked, rows, vocab_size)
    size = rows * vocab_size * 4
    assert large.largest < size / 8, "holds whole rows beside the logits"
    # Once for all, and again for each block of logits that fits a cache.
    assert len(large.names) <= len(few.names) * (1 + -(-size // kernels.BLOCK_BYTES["cpu"]))
