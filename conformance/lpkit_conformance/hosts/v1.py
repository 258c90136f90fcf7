"""V1: the persistent batch, ``update_state`` before and ``apply`` after every forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lpkit.runtime import Request, V1Batch, V1Engine
from lpkit.runtime.engine.v1_async import PLACEHOLDER
from lpkit.runtime.sampler.options import is_greedy
from lpkit.runtime.sampler.stages import apply_temperature
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate, MoveDirectionality

from lpkit_conformance.hosts.base import Driver, Host, Swaps
from lpkit_conformance.hosts.parts import HostParts
from lpkit_conformance.hosts.recorded import ListTraceHost
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.hosts.steady import BatchChange, ProcessorCandidate, SteadyBatch, update_with
from lpkit_conformance.subject.calls import Observation, SeenRow, calling, checked
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.traces.schema import Update, V1Step
from lpkit_conformance.vllm_api.runners import V1


class V1Driver(Driver):
    """Rows that move. An argmax-invariant processor runs after temperature, and not for a batch of greedy requests.

    Attributes:
        batch: the batch whose changes :meth:`begin` reports; empty if only :meth:`update` is used.
    """

    asks_claim = True
    shares = ("update_state",)

    def __init__(self, cls: Any, config: Any, device: torch.device) -> None:
        with calling("__init__"):
            self.processor = cls(config, device, device.type == "cuda")
        with calling("is_argmax_invariant"):
            self.invariant = bool(self.processor.is_argmax_invariant())
        self.batch = V1Batch(config.scheduler_config.max_num_seqs)

    def begin(self, leaving: Iterable[str] = (), entering: Iterable[Request] = (), swaps: Swaps = ()) -> None:
        self.update(self.batch.change(leaving, entering, swaps))

    def update(self, update: BatchUpdate | None) -> None:
        """Call ``update_state`` once."""
        self.call("update_state", update)

    def stage(self, raw: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
        return at_temperature(raw, params) if self.invariant else raw

    def shared(self, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
        (update,) = args
        if update is None:
            return {}
        return {f"BatchUpdate.{name}": list(getattr(update, name)) for name in ("removed", "added", "moved")}

    def step(self, before: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        if self.invariant and all(is_greedy(request.params) for request in requests):
            return before
        return self.edit_copy(before)


def at_temperature(raw: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Return the logits divided by the temperature of each row's request."""
    temperature = torch.tensor([item.temperature for item in params], dtype=torch.float32).to(raw.device)
    return apply_temperature(raw.clone(), temperature)


def greedy_rows(params: Sequence[SamplingParams], device: torch.device) -> torch.Tensor:
    """Return bool ``[rows, 1]``: the rows whose token is chosen before an argmax-invariant processor runs."""
    return torch.tensor([[is_greedy(item)] for item in params], device=device)


class V1Host(Host):
    """Programs on V1. Drafts are left out: V1 runs no custom processors with them."""

    driver_class = V1Driver
    driver: V1Driver

    def anew(self, alter: Callable[[Request], Request | None] = lambda request: request) -> V1Driver:
        driver: V1Driver = self.drive(self.subject.setup.config(self.max_num_seqs))
        driver.begin(entering=filter(None, map(alter, self.driver.batch.requests)))
        return driver

    def rewind(self) -> None:
        # The plugin reads its own lists, which are a token longer by now.
        for active in self.pool.running.values():
            if not active.chunks and active.request.output_token_ids:
                active.request.output_token_ids.pop()

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        requests = self.driver.batch.requests
        if not requests:
            return
        actives = [self.pool.requests[request.request_id] for request in requests]
        short = {active.id: active.chunks for active in actives if active.chunks}
        seen = observe(self.driver, self.subject, self.step, actives, short)
        before, after = seen.before, seen.after
        wanted = [self.pool.emit(active)[0] for active in actives]
        left = after
        if self.driver.invariant:
            left = torch.where(greedy_rows([request.params for request in requests], after.device), before, after)
        for active, token in zip(actives, self.subject.model.sampled(wanted, left), strict=True):
            if active.chunks:
                active.chunks -= 1
            else:
                self._commit(active, [token])
        yield seen


def observe(
    driver: V1Driver, subject: Subject, step: int, actives: Sequence[ActiveRequest], short: Mapping[str, int]
) -> Observation:
    """Run a forward pass.

    Args:
        actives: the requests by row.
        short: tokens that a request's row lacks, as in a partial prefill: its result is discarded.
    """
    requests = [active.request for active in actives]
    # The row of a partial prefill holds the logits of the chunk's last position.
    keys = [(active.logits_key, max(active.request.total_len - short.get(active.id, 0), 1)) for active in actives]
    before = driver.stage(subject.model.rows(keys), [request.params for request in requests])
    after = driver.step(before, requests)
    rows = []
    for active, request in zip(actives, requests, strict=True):
        # What an argmax-invariant processor does to a greedy request is discarded.
        discarded = active.id in short or (driver.invariant and is_greedy(request.params))
        rows.append(SeenRow(active.id, request.total_len, discarded))
    return Observation(step, tuple(rows), before, after)


class V1TraceHost(ListTraceHost):
    """Recorded ``BatchUpdate`` objects, rows, and placeholders for tokens that are not known during an update."""

    driver_class = V1Driver

    def _change(self, driver: V1Driver, step: V1Step) -> None:
        super()._change(driver, step)
        update = self._batch_update(step.update) if step.update else None
        with self._unknown(step.placeholders):
            driver.update(update)

    def _applies(self, driver: V1Driver, step: V1Step) -> Iterator[tuple[Observation, Iterable[int]]]:
        if step.applied:
            actives = [self.requests[request] for request in step.rows]
            short = dict.fromkeys(step.discarded, 1)
            yield observe(driver, self.subject, step.step, actives, short), range(len(actives))

    @contextmanager
    def _unknown(self, placeholders: Mapping[str, int]) -> Iterator[None]:
        """Replace the last outputs of each request with the given number of placeholders, within the context."""
        held = {}
        for name, count in placeholders.items():
            outputs = self.requests[name].request.output_token_ids
            held[name] = outputs[-count:]
            outputs[-count:] = [PLACEHOLDER] * count
        yield
        for name, tokens in held.items():
            self.requests[name].request.output_token_ids[-len(tokens) :] = tokens

    def _batch_update(self, update: Update) -> BatchUpdate:
        added = []
        for item in update.added:
            request = self.requests[item.request].request
            if item.fresh:
                request.output_token_ids = list(request.output_token_ids)
            added.append((item.row, request.params, request.prompt_token_ids, request.output_token_ids))
        moved = [(move.source, move.target, _MOVES[move.kind]) for move in update.moved]
        return BatchUpdate(update.batch_size, list(update.removed), added, moved)


_MOVES = {"->": MoveDirectionality.UNIDIRECTIONAL, "<->": MoveDirectionality.SWAP}


class V1Candidate(ProcessorCandidate):
    """A class on V1: ``update_state`` and ``apply``."""

    host = V1
    driver: V1Driver

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:
        if not self.made:
            self.driver, self.made = V1Driver(self.cls, steady.config(self.device), self.device), True
        self._update = update_with(change.update, self.parameters)

    def follow(self) -> None:
        self.driver.update(self._update)

    def rest(self) -> None:
        self.driver.processor.update_state(None)  # bare: this is the least that there is to time

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return checked(self.driver.edit(logits), logits)


PARTS = HostParts(V1Driver, V1Host, V1TraceHost, V1Candidate, V1Engine)
