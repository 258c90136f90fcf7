"""V2: request slots, rows in another order every step, ``apply(logits, ctx)``."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import torch
from lpkit.runtime import Request, V2Engine, V2Gate, V2Row, V2Slots, make_context
from lpkit.sampling_params import SamplingParams
from lpkit.v2 import LogitsContext, LogitsProcRequestState

from lpkit_conformance.hosts.base import Driver, Host, Swaps
from lpkit_conformance.hosts.drafts import misleading, verified
from lpkit_conformance.hosts.parts import HostParts
from lpkit_conformance.hosts.recorded import TraceHost
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.hosts.steady import BatchChange, ProcessorCandidate, SteadyBatch
from lpkit_conformance.subject.calls import Observation, PluginError, SeenRow, calling, checked
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.traces.schema import Apply, V2Step
from lpkit_conformance.vllm_api.runners import V2

CONTEXT = (
    "expanded_idx_mapping",
    "idx_mapping",
    "idx_mapping_np",
    "expanded_local_pos",
    "input_ids",
    "pos",
    "seq_lens_upper_bound_np",
)
"""The fields of ``LogitsContext``."""


class V2Driver(Driver):
    """Slots that stay, and a gate that decides if ``apply`` is called.

    Args:
        slots: of the engine; by default as many as ``config`` has requests.
        poison: overwrite retired ``.gpu`` tensors, for slots that the driver creates.

    Attributes:
        slots: the slots whose changes :meth:`begin` reports.
    """

    shares = ("add_request", "apply_staged_writes", "apply")
    declined: frozenset[int] = frozenset()
    """Slots of requests for which ``add_request`` returned False."""

    def __init__(
        self, cls: Any, config: Any, device: torch.device, slots: V2Slots | None = None, *, poison: bool = False
    ) -> None:
        size, model = config.scheduler_config.max_num_seqs, config.model_config
        if slots is None:
            slots = V2Slots(size, model.max_model_len, device, vocab_size=model.vocab_size, poison=poison)
        self.slots = slots
        with calling("__init__"):
            self.processor = cls(config, self._buffers())
        self._gate = V2Gate(size, model.vocab_size)
        self._device = device

    def _buffers(self) -> LogitsProcRequestState:
        """Sampling states of a separate engine, through which processors find their neighbours."""
        return LogitsProcRequestState.from_request_state(self.slots.state)

    def begin(self, leaving: Iterable[str] = (), entering: Iterable[Request] = (), swaps: Swaps = ()) -> None:
        for request, slot in self.slots.change(leaving, entering):
            self.enter(slot, request.params)
        self.flush()

    def enter(self, slot: int, params: SamplingParams) -> None:
        """Call ``add_request`` once."""
        answer = self.call("add_request", slot, params)
        if not isinstance(answer, bool | np.bool_):  # the engine asks for its truth
            raise PluginError("add_request", f"returned {answer!r} instead of True or False")
        self._gate.enter(slot, params, bool(answer))
        self.declined = self.declined - {slot} if answer else self.declined | {slot}

    def declines(self, request: str) -> bool:
        return request in self.slots and self.slots.slot(request) in self.declined

    def flush(self) -> None:
        """Call ``apply_staged_writes`` once."""
        self.call("apply_staged_writes")

    def step(self, before: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        return self.apply(before, self._rows(requests))

    def context(self, requests: Sequence[Request]) -> tuple[Any, ...]:
        return (make_context(self._rows(requests), self._device),)

    def _rows(self, requests: Sequence[Request]) -> list[V2Row]:
        return [
            V2Row(self.slots.slot(request.request_id), request.total_len - 1, request.last_token_id)
            for request in requests
        ]

    def shared(self, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
        state = self.slots.state
        arguments: dict[str, Any] = {
            "req_states.all_token_ids.gpu": state.all_token_ids.gpu.clone(),
            "req_states.total_len.gpu": state.total_len.gpu.clone(),
            "req_states.prompt_len.np": state.prompt_len.np.copy(),
            "req_states.prefill_len.np": state.prefill_len.np.copy(),
        }
        if method == "apply":
            for name in CONTEXT:
                value = getattr(args[1], name)
                arguments[f"ctx.{name}"] = value.clone() if isinstance(value, torch.Tensor) else value.copy()
        return arguments

    def apply(self, before: torch.Tensor, rows: Sequence[V2Row], **context: Any) -> torch.Tensor:
        """Call ``apply`` if the gate is open for these rows; ``context``: further arguments of ``make_context``."""
        return self.apply_to(before, make_context(rows, self._device, **context))

    def apply_to(self, before: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Call ``apply`` if the gate is open for the requests of ``ctx``."""
        return self.edit_copy(before, ctx) if self._gate.is_open(ctx.idx_mapping_np) else before

    def commit(self, request: Request, tokens: Sequence[int]) -> None:
        super().commit(request, tokens)
        self.slots.commit(self.slots.slot(request.request_id), tokens)


class V2Ranks(V2Driver):
    """Ranks that share a batch. Each has an instance that gets all requests; a row goes to its slot's owner."""

    def __init__(self, cls: Any, config: Any, device: torch.device, ranks: int) -> None:
        super().__init__(cls, config, device)
        with calling("__init__"):
            self._instances = [self.processor, *(cls(config, self._buffers()) for _ in range(ranks - 1))]

    def call(self, method: str, *args: Any) -> Any:
        owner = int(args[1].idx_mapping_np[0]) % len(self._instances) if method == "apply" else None
        answers = []
        for rank, instance in enumerate(self._instances):
            if owner in (None, rank):
                self.processor = instance
                answers.append(super().call(method, *args))
        return answers[0]


def keep_buffers(slots: V2Slots) -> None:
    """Bring the lengths of prompts up to date in place from now on, as vLLM does not."""
    for buffer in (slots.prompt_len, slots.prefill_len):
        buffer.flush = partial(buffer.gpu.copy_, buffer.cpu)  # type: ignore[assignment, method-assign]


@dataclass(frozen=True)
class Manner:
    """Unusual engine behaviour, within the rules.

    Attributes:
        shuffle: rows in a random order each step.
        poison: overwrite the retired ``prompt_len.gpu`` and ``prefill_len.gpu``.
        split: ``apply`` calls per step, as large verifications are split.
        padding: zeros behind the host bounds, as under full CUDA graphs.
        mapping: dtype of the row mapping.
        trim: verify fewer drafts than were scheduled, as adaptive verification does. Only the device knows the number:
            the host bounds stay as scheduled.
        ranks: number of ranks that share the batch, as with batch-sharded sampling. Each rank has an instance that
            receives all requests. It sees the rows of the requests whose slot modulo ``ranks`` is the rank's number.
    """

    shuffle: bool = True
    poison: bool = False
    split: int = 1
    padding: int = 0
    mapping: torch.dtype = torch.int64
    trim: bool = False
    ranks: int = 1


class V2Host(Host):
    """Programs on V2."""

    driver: V2Driver

    def __init__(self, subject: Subject, max_num_seqs: int | None = None, manner: Manner | None = None) -> None:
        self.manner = manner or Manner()
        super().__init__(subject, max_num_seqs)
        self._late = self.config.scheduler_config.async_scheduling
        self._rejected: dict[str, tuple[int, int]] = {}  # by request: in which step, and how many
        self._rng = random.Random(f"rows {subject.setup.seed}")

    def drive(self, config: Any) -> V2Driver:
        """Return a driver with an instance of the plugin, or with one per rank."""
        if self.manner.ranks > 1:
            return V2Ranks(self.subject.plugin.cls, config, self.subject.setup.device, self.manner.ranks)
        return V2Driver(self.subject.plugin.cls, config, self.subject.setup.device, poison=self.manner.poison)

    def position(self, row: int, request: str) -> int:
        return self.driver.slots.slot(request)

    def anew(self, alter: Callable[[Request], Request | None] = lambda request: request) -> V2Driver:
        subject, slots = self.subject, self.driver.slots
        driver = V2Driver(subject.plugin.cls, subject.setup.config(self.max_num_seqs), subject.setup.device, slots)
        for active in self.pool.running.values():
            if request := alter(active.request):
                driver.enter(slots.slot(active.id), request.params)
        driver.flush()
        return driver

    def _begin(self) -> None:
        for active in self.pool.entered:
            self._rejected.pop(active.id, None)
        super()._begin()

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        actives = list(self.pool.running.values())
        if not actives:
            return
        if self.manner.shuffle:
            self._rng.shuffle(actives)
        calls = list(self._calls(actives))
        counts = {active.id: self._drafts(active, drafts) for active in actives}
        tokens = {active.id: self.pool.emit(active, min(accepted, counts[active.id]) + 1) for active in actives}
        for call in calls:
            yield self._apply(call, counts, tokens, drafts)
        for active in actives:
            if active.chunks:
                active.chunks -= 1
            else:
                scheduled = drafts if self.manner.trim else counts[active.id]
                self._rejected[active.id] = (self.step, scheduled + 1 - len(tokens[active.id]))
                self._commit(active, tokens[active.id])

    def _calls(self, actives: list[ActiveRequest]) -> Iterator[list[ActiveRequest]]:
        """Return the requests in each ``apply`` call of a step."""
        for rank in range(self.manner.ranks):
            owned = [active for active in actives if self.driver.slots.slot(active.id) % self.manner.ranks == rank]
            size = -(-len(owned) // self.manner.split)
            for start in range(0, len(owned), size or 1):
                yield owned[start : start + size]

    def _drafts(self, active: ActiveRequest, most: int) -> int:
        """Return the number of verified drafts of a request: some requests have one draft less than others."""
        return max(most - (crc32(f"{active.logits_key} {self.step}".encode()) % 4 == 0), 0)

    def _unknown(self, active: ActiveRequest) -> int:
        """Drafts that were rejected in the last step: under asynchronous scheduling the host counts them still."""
        step, count = self._rejected.get(active.id, (0, 0))
        return count if self._late and step == self.step - 1 else 0

    def _wrong_draft(self, active: ActiveRequest, position: int, right: int) -> int:
        """Return a draft that is rejected: a placeholder, or a token that the plugin may wait for."""
        drawn = crc32(f"{active.logits_key} {position} wrong".encode())
        return -1 if drawn % 3 == 0 else misleading(self.subject, drawn, right, otherwise=-1)

    def _apply(
        self, actives: list[ActiveRequest], counts: dict[str, int], tokens: dict[str, list[int]], scheduled: int = 0
    ) -> Observation:
        rows: list[V2Row] = []
        seen: list[SeenRow] = []
        keys: list[tuple[str, int]] = []
        bounds: list[int] = []
        for active in actives:
            request, slot = active.request, self.driver.slots.slot(active.id)
            total = request.total_len
            if active.chunks:
                pos = max(total - active.chunks - 1, 0)
                rows.append(V2Row(slot, pos, request.token_at(pos)))
                seen.append(SeenRow(active.id, pos + 1, discarded=True))
                keys.append((active.logits_key, pos + 1))
                bounds.append(pos + 1)
                continue
            drafts = counts[active.id]
            for local in range(drafts + 1):
                right = local < len(tokens[active.id])
                if local == 0:
                    token = request.last_token_id
                elif right:
                    token = tokens[active.id][local - 1]
                else:
                    token = self._wrong_draft(active, total + local, tokens[active.id][-1])
                rows.append(V2Row(slot, total - 1 + local, token, local))
                seen.append(SeenRow(active.id, total + local, discarded=not right, local=local))
                keys.append((active.logits_key if right else f"{active.logits_key} rejected", total + local))
            most = scheduled if self.manner.trim else drafts
            bounds.append(total + most + self._unknown(active))
        before = self.subject.model.rows(keys)
        manner = self.manner
        after = self.driver.apply(before, rows, bounds=bounds, padding=manner.padding, mapping_dtype=manner.mapping)
        return Observation(self.step, verified(self.subject, seen, after, tokens), before, after)


class V2TraceHost(TraceHost):
    """Replays recorded slots, flushes and rows.

    A draft is right where the recorded draft was, unless the plugin forbids it: its request then falls behind.
    """

    def _drive(self) -> V2Driver:
        return V2Driver(self.subject.plugin.cls, self.config(), self.subject.setup.device, poison=True)

    def _change(self, driver: V2Driver, step: V2Step) -> None:
        for name in step.freed:
            driver.slots.free(name)
        for item in step.added:
            request = self.requests[item.request].request
            driver.enter(driver.slots.add(request), request.params)
        if step.added:
            driver.slots.flush()
        if step.flush:
            driver.flush()

    def _applies(self, driver: V2Driver, step: V2Step) -> Iterator[tuple[Observation, Iterable[int]]]:
        for call in step.applies:
            actives = [self.requests[request] for request in call.rows]
            seen = [self._seen(call, row, active) for row, active in enumerate(actives)]
            keys = [(active.logits_key, row.position) for active, row in zip(actives, seen, strict=True)]
            before = self.subject.model.rows(keys)
            rows = [
                V2Row(driver.slots.slot(item.request), item.position - 1, self._input(call, row, item), item.local)
                for row, item in enumerate(seen)
            ]
            after = driver.apply(before, rows, bounds=self._bounds(call, seen))
            yield Observation(step.step, tuple(seen), before, after), [row.slot for row in rows]

    def _seen(self, call: Apply, row: int, active: ActiveRequest) -> SeenRow:
        """A row behind all that its request has, or where the prompt that is not complete was recorded to be."""
        total, local = active.request.total_len, call.local[row]
        if active.id not in call.discarded:
            return SeenRow(active.id, total + local, local >= len(self.tokens[active.id]), local)
        # Moved by the difference between our prompt and the recorded one.
        moved = call.pos[row] + active.request.prompt_len + active.begun - self.trace.requests[active.id].prompt_len
        return SeenRow(active.id, min(max(moved, 0), total - 2) + 1, True)

    def _input(self, call: Apply, row: int, item: SeenRow) -> int:
        request = self.requests[item.request].request
        if item.local == 0:
            return request.token_at(item.position - 1)
        tokens = self.tokens[item.request]
        if not item.discarded:
            return tokens[item.local - 1]
        recorded, newest = call.inputs[row], call.inputs[row - item.local]
        if recorded == -1:
            return -1
        # A drafter that has found nothing repeats the newest token.
        number = item.position if recorded != newest else None
        return misleading(self.subject, number, tokens[-1], request.last_token_id)

    def _bounds(self, call: Apply, seen: Sequence[SeenRow]) -> list[int]:
        """Per request what is visible to its last row, and what the engine's bound was above it."""
        last = {row.request: (row, pos) for row, pos in zip(seen, call.pos, strict=True)}
        recorded = dict(zip(call.requests, call.bounds, strict=False))
        return [row.position + recorded[request] - (pos + 1) for request, (row, pos) in last.items()]


class V2Candidate(ProcessorCandidate):
    """A class on V2: ``add_request`` for each new request, ``apply_staged_writes`` and ``apply``."""

    host = V2
    driver: V2Driver

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:
        if not self.made:
            self.driver = V2Driver(self.cls, steady.config(self.device), self.device, steady.slots)
            self.made = True
        self._entered = [(slot, self.parameters(uses)) for slot, uses in change.entered]
        self._ctx = steady.context(self.device)

    def follow(self) -> None:
        # Without the engine's share of the work, which `enter` does as well.
        with calling("add_request"):
            for slot, params in self._entered:
                self.driver.processor.add_request(slot, params)
        self.rest()

    def rest(self) -> None:
        self.driver.flush()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return checked(self.driver.edit(logits, self._ctx), logits)


PARTS = HostParts(V2Driver, V2Host, V2TraceHost, V2Candidate, V2Engine)
