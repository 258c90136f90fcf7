"""Processors that record what the reference engines tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lpkit import v1, v2
from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def make_request() -> Callable[..., Request]:
    def make(name: str, prompt: int = 4, outputs: int = 0, max_tokens: int = 64, **params: Any) -> Request:
        options = SamplingParams(**{"temperature": 0.0, **params})
        request = Request(name, options, [(7 * i + len(name)) % 500 for i in range(prompt)], max_tokens)
        request.output_token_ids.extend(range(outputs))
        return request

    return make


class V1Recorder(v1.LogitsProcessor):
    """Logs its calls to ``calls``; ``edit`` may change the logits."""

    def __init__(
        self,
        name: str = "p",
        calls: list[Any] | None = None,
        invariant: bool = False,
        edit: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    ) -> None:
        self.name, self.invariant, self.edit = name, invariant, edit
        self.calls: list[Any] = [] if calls is None else calls

    def is_argmax_invariant(self) -> bool:
        return self.invariant

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        self.calls.append((self.name, "update", batch_update))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.calls.append((self.name, "apply", logits.clone()))
        return self.edit(logits)


class V2Recorder(v2.LogitsProcessor):
    """Logs its calls to ``calls``; admits requests whose ``extra_args`` are set, unless a test sets otherwise."""

    def __init__(
        self,
        config: Any = None,
        req_states: Any = None,
        *,
        name: str = "p",
        calls: list[Any] | None = None,
        edit: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    ) -> None:
        self.states, self.name, self.edit = req_states, name, edit
        self.calls: list[Any] = [] if calls is None else calls

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self.calls.append((self.name, "add", req_idx, sampling_params))
        return bool(sampling_params.extra_args)

    def apply_staged_writes(self) -> None:
        self.calls.append((self.name, "staged"))

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        self.calls.append((self.name, "apply", logits.clone(), ctx))
        return self.edit(logits)


@pytest.fixture
def v1_recorder() -> type[V1Recorder]:
    return V1Recorder


@pytest.fixture
def v2_recorder() -> type[V2Recorder]:
    return V2Recorder
