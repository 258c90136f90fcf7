"""V2: request slots, rows in another order every step, ``apply(logits, ctx)``."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from lpkit.runtime import V2Row, V2Slots, make_context, needs_processing
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.hosts.calls import Observation, PluginError, SeenRow, calling, checked
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, RequestPool
from lpkit_conformance.programs.generate import Idle, Op, Speculate, Step, Swap


@dataclass(frozen=True)
class Manner:
    """How unpleasant the host is within the rules.

    Attributes:
        shuffle: rows in a random order each step.
        poison: overwrite the retired ``prompt_len.gpu`` and ``prefill_len.gpu``.
        split: how many ``apply`` calls a step is split into, as large verifications are.
        padding: zeros behind the host bounds, as under full CUDA graphs.
        mapping: dtype of the row mapping.
    """

    shuffle: bool = True
    poison: bool = False
    split: int = 1
    padding: int = 0
    mapping: torch.dtype = torch.int64


class V2Host:
    """Runs programs on one V2 instance.

    Args:
        subject: the plugin and its requests.
        max_num_seqs: number of slots.
        manner: see :class:`Manner`.
    """

    def __init__(self, subject: PluginUnderTest, max_num_seqs: int | None = None, manner: Manner | None = None) -> None:
        self.subject = subject
        self.manner = manner or Manner()
        self.max_num_seqs = max_num_seqs or subject.max_num_seqs
        self.slots: V2Slots = subject.slots(self.max_num_seqs, poison=self.manner.poison)
        with calling("__init__"):
            self.processor = subject.create_v2(self.slots, self.max_num_seqs)
        self.pool = RequestPool(subject, self.max_num_seqs)
        self.needs: dict[str, bool] = {}
        self.step = 0
        self._rng = random.Random(f"rows {subject.seed}")

    def run(self, ops: Iterable[Op]) -> Iterator[Observation]:
        """Carry out ``ops``; yields every ``apply``."""
        for op in ops:
            if isinstance(op, Step):
                for _ in range(op.count):
                    self._begin()
                    yield from self._sample(0, 0)
            elif isinstance(op, Speculate):
                self._begin()
                yield from self._sample(op.drafts, op.accepted)
            elif isinstance(op, Idle):
                self._begin()
            elif not isinstance(op, Swap):
                self.pool.do(op)

    def _begin(self) -> None:
        self.step += 1
        for request in sorted(self.pool.left):
            self.slots.free(request)
        for active in self.pool.entered:
            slot = self.slots.add(active.request)
            self.needs[active.id] = enter(self.processor, slot, active.request.params, self.subject.vocab_size)
        if self.pool.entered:
            self.slots.flush()
        self.pool.settle()
        flush(self.processor)

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        actives = list(self.pool.running.values())
        if not actives:
            return
        if self.manner.shuffle:
            self._rng.shuffle(actives)
        tokens = {active.id: self.pool.emit(active, accepted + 1) for active in actives}
        size = -(-len(actives) // self.manner.split)
        for start in range(0, len(actives), size):
            yield self._apply(actives[start : start + size], drafts, accepted, tokens)
        for active in actives:
            if active.chunks:
                active.chunks -= 1
                continue
            active.request.output_token_ids.extend(tokens[active.id])
            self.slots.commit(self.slots.slot(active.id), tokens[active.id])

    def _apply(
        self, actives: list[ActiveRequest], drafts: int, accepted: int, tokens: dict[str, list[int]]
    ) -> Observation:
        rows: list[V2Row] = []
        seen: list[SeenRow] = []
        keys: list[tuple[str, int]] = []
        bounds: list[int] = []
        for active in actives:
            request, slot = active.request, self.slots.slot(active.id)
            total = request.total_len
            if active.chunks:
                pos = max(total - active.chunks - 1, 0)
                rows.append(V2Row(slot, pos, request.token_at(pos)))
                seen.append(SeenRow(active.id, pos + 1, discarded=True))
                keys.append((active.logits_key, pos + 1))
                bounds.append(pos + 1)
                continue
            for local in range(drafts + 1):
                right = local <= accepted
                token = request.last_token_id if local == 0 else tokens[active.id][local - 1] if right else -1
                rows.append(V2Row(slot, total - 1 + local, token, local))
                seen.append(SeenRow(active.id, total + local, discarded=not right))
                keys.append((active.logits_key if right else f"{active.logits_key} rejected", total + local))
            bounds.append(total + drafts + (1 if drafts else 0))  # with drafts only an upper bound
        before = self.subject.rows(keys)
        after = before
        if any(self.needs[active.id] for active in actives):
            ctx = make_context(
                rows,
                self.subject.device,
                bounds=bounds,
                padding=self.manner.padding,
                mapping_dtype=self.manner.mapping,
            )
            after = apply(self.processor, before, ctx)
        return Observation(self.step, tuple(seen), before, after)


def enter(processor: Any, slot: int, params: SamplingParams, vocab_size: int) -> bool:
    """One ``add_request``, as the engine calls it; whether the request opens the gate in front of ``apply``."""
    with calling("add_request"), torch.inference_mode():
        answer = processor.add_request(slot, params)
        if not isinstance(answer, bool):
            raise PluginError("add_request", f"returned {answer!r} instead of True or False")
    return answer or needs_processing(params, vocab_size)


def flush(processor: Any) -> None:
    """One ``apply_staged_writes``."""
    with calling("apply_staged_writes"), torch.inference_mode():
        processor.apply_staged_writes()


def apply(processor: Any, before: torch.Tensor, ctx: Any) -> torch.Tensor:
    """One ``apply`` on a private copy."""
    with torch.inference_mode():
        logits = before.clone()
        with calling("apply"):
            result = processor.apply(logits, ctx)
        return checked(result, before).clone()
