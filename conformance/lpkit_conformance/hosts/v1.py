"""V1: the persistent batch, ``update_state`` before and ``apply`` after every forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from lpkit.runtime import V1Batch
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams
from lpkit.v1 import BatchUpdate

from lpkit_conformance.hosts.calls import Observation, SeenRow, calling, checked
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, RequestPool
from lpkit_conformance.programs.generate import Idle, Op, Speculate, Step


class V1Host:
    """Runs programs on one V1 instance.

    Args:
        subject: the plugin and its requests.
        max_num_seqs: batch size of the engine.
    """

    def __init__(self, subject: PluginUnderTest, max_num_seqs: int | None = None) -> None:
        self.subject = subject
        self.max_num_seqs = max_num_seqs or subject.max_num_seqs
        with calling("__init__"):
            self.processor = subject.create(self.max_num_seqs)
        with calling("is_argmax_invariant"):
            self.invariant = bool(self.processor.is_argmax_invariant())
        self.pool = RequestPool(subject, self.max_num_seqs)
        self.batch = V1Batch(self.max_num_seqs)
        self.step = 0

    def run(self, ops: Iterable[Op]) -> Iterator[Observation]:
        """Carry out ``ops``; yields every ``apply``."""
        for op in ops:
            if isinstance(op, Step | Speculate):
                for _ in range(op.count if isinstance(op, Step) else 1):
                    self._update()
                    if self.batch.requests:
                        yield self._apply()
            elif isinstance(op, Idle):
                self._update()
            else:
                self.pool.do(op)

    def _update(self) -> None:
        self.step += 1
        pool, batch = self.pool, self.batch
        for request in pool.left:
            batch.remove(request)
        for active in pool.entered:
            batch.add(active.request)
        batch.condense()
        for first, second in pool.swaps:
            if max(first, second) < len(batch) and first != second:
                batch.swap(first, second)
        pool.settle()
        update(self.processor, batch.take_update())

    def _apply(self) -> Observation:
        actives = [self.pool.requests[request.request_id] for request in self.batch.requests]
        # The row of a partial prefill holds the logits of the chunk's last position.
        keys = [(active.logits_key, max(active.request.total_len - active.chunks, 1)) for active in actives]
        before = stage_input(self.subject.rows(keys), [active.request.params for active in actives], self.invariant)
        after = apply(self.processor, before, self.invariant, [active.request.params for active in actives])
        rows = tuple(self._row(active) for active in actives)
        for active in actives:
            if active.chunks:
                active.chunks -= 1
            else:
                active.request.output_token_ids.extend(self.pool.emit(active))
        return Observation(self.step, rows, before, after)

    def _row(self, active: ActiveRequest) -> SeenRow:
        discarded = bool(active.chunks) or (self.invariant and is_greedy(active.request.params))
        return SeenRow(active.id, active.request.total_len, discarded)


def is_greedy(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_EPSILON


def update(processor: Any, batch_update: BatchUpdate | None) -> None:
    """One ``update_state``, as the engine calls it."""
    with calling("update_state"), torch.inference_mode():
        processor.update_state(batch_update)


def stage_input(raw: torch.Tensor, params: list[SamplingParams], invariant: bool) -> torch.Tensor:
    """What reaches the processor: an argmax-invariant one comes after temperature."""
    if not invariant:
        return raw
    scale = torch.tensor([1.0 if is_greedy(item) else item.temperature for item in params], device=raw.device)
    return raw / scale.unsqueeze(1)


def apply(processor: Any, before: torch.Tensor, invariant: bool, params: list[SamplingParams]) -> torch.Tensor:
    """One ``apply``; an argmax-invariant processor is not called for a batch of greedy requests."""
    if invariant and all(is_greedy(item) for item in params):
        return before
    with torch.inference_mode():
        logits = before.clone()
        with calling("apply"):
            result = processor.apply(logits)
        return checked(result, before).clone()
