"""Engines other than vLLM: rows with their tokens and nothing else, through the small host of ``lpkit.export``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lpkit.export.host import ExportHost, follow
from lpkit.history.on_host import V1Row
from lpkit.runtime import Request, V1Engine
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.hosts.base import Driver, Host, Swaps
from lpkit_conformance.hosts.parts import HostParts
from lpkit_conformance.hosts.recorded import ListTraceHost
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.hosts.steady import BatchChange, ProcessorCandidate, SteadyBatch
from lpkit_conformance.settings.hosts import EXPORT
from lpkit_conformance.subject.calls import Observation, PluginError, SeenRow, calling, checked
from lpkit_conformance.traces.schema import V1Step


@dataclass(frozen=True)
class Shown:
    """A row as an engine shows it.

    Attributes:
        params: of its request; requests with equal parameters share one object.
        prompt: token ids.
        outputs: token ids so far.
        name: identifies the row in later steps; None: only the tokens identify it.
    """

    params: SamplingParams
    prompt: list[int]
    outputs: list[int]
    name: str | None = None


Row = tuple[SeenRow, Shown, str]
"""The row for the checks, the row as shown, and the key of its logits."""


class _Watched(ExportHost):
    """The host of ``lpkit.export``, with every call of its processor routed through the driver."""

    def __init__(self, driver: ExportDriver, cls: Any, config: Any, device: torch.device) -> None:
        self._driver = driver
        model = config.model_config
        super().__init__(cls, model.get_vocab_size(), device, tokenizer=model.lpkit_tokenizer)

    def construct(self, config: Any) -> _Calls:
        with calling("__init__"):
            self._driver.processor = super().construct(config)
        return _Calls(self._driver)


class _Calls:
    """The object that the export host calls in place of the processor."""

    def __init__(self, driver: ExportDriver) -> None:
        self._driver = driver

    def is_argmax_invariant(self) -> bool:
        with calling("is_argmax_invariant"):
            self._driver.invariant = bool(self._driver.processor.is_argmax_invariant())
        return self._driver.invariant

    def update_state(self, update: Any) -> None:
        self._driver.call("update_state", update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        before = logits.clone()
        return checked(self._driver.call("apply", logits), before)


class ExportDriver(Driver):
    """Requests by name, each with all of its tokens, at every step; the configuration is that of the export host.

    Attributes:
        order: the requests in the batch, by row.
    """

    asks_claim = True

    def __init__(self, cls: Any, config: Any, device: torch.device) -> None:
        try:
            self._host = _Watched(self, cls, config, device)
        except TypeError as error:  # the host's own: what the plugin raises is a PluginError
            summary = f"cannot be exported: {error}"
            raise PluginError("__init__", summary, exception="TypeError", fix="derive it from lpkit's bases") from error
        self.order: list[Request] = []
        self._rows: list[V1Row] = []
        self._named: dict[str, V1Row] = {}
        self._params: dict[int, tuple[SamplingParams, SamplingParams]] = {}
        self._equal: dict[str, SamplingParams] = {}

    def begin(self, leaving: Iterable[str] = (), entering: Iterable[Request] = (), swaps: Swaps = ()) -> None:
        gone = set(leaving)
        self.order = [request for request in self.order if request.request_id not in gone]
        self.order += entering
        for first, second in swaps:
            self.order[first], self.order[second] = self.order[second], self.order[first]
        self._named = {name: row for name, row in self._named.items() if name not in gone}

    def shown(self, request: Request, name: str | None = None) -> Shown:
        """The row of a request."""
        prompt = request.prompt_token_ids or []
        return Shown(self._one_object(request.params), prompt, request.output_token_ids, name)

    def step(self, before: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        return self.show(before, [self.shown(request, request.request_id) for request in requests])

    def show(self, before: torch.Tensor, rows: Sequence[Shown]) -> torch.Tensor:
        """Run one step of an engine with these rows."""
        return self.processed(before, self.rows_for(rows)).clone()

    def rows_for(self, rows: Sequence[Shown]) -> list[V1Row]:
        """Return last step's rows for the requests that continue, and new rows for the others."""
        before = list(self._rows)
        free = dict.fromkeys(before)
        shown = []
        for place, item in enumerate(rows):
            if item.name is not None:
                last = self._named.get(item.name)
            else:
                likely = [row for row in (*before[place : place + 1], *free) if row in free]
                last = next((row for row in likely if _goes_on(row, item)), None)
            row = follow(last, item.params, item.prompt, item.outputs)
            free.pop(row, None)
            if item.name is not None:
                self._named[item.name] = row
            shown.append(row)
        return shown

    def processed(self, logits: torch.Tensor, rows: Sequence[V1Row]) -> torch.Tensor:
        """Return the processed logits for these rows."""
        self._rows = list(rows)
        with torch.inference_mode():
            return self._host.process(logits, rows)

    def edit(self, logits: torch.Tensor, *context: Any) -> Any:
        """Return the result of ``apply`` for the rows shown last, or for the batch if no rows were shown."""
        if not self._rows:
            self.step(torch.zeros_like(logits), self.order)
        return super().edit(logits)

    def _one_object(self, params: SamplingParams) -> SamplingParams:
        """Return the shared object for all equal parameters: an exported processor receives them once."""
        kept = self._params.get(id(params))
        if kept is None:
            kept = params, self._equal.setdefault(repr(params), params)
            self._params[id(params)] = kept  # which keeps the object, and so its id
        return kept[1]


def _goes_on(row: V1Row, item: Shown) -> bool:
    outputs = row.output_ids
    return row.params is item.params and row.prompt_ids == item.prompt and outputs == item.outputs[: len(outputs)]


class ExportProgramHost(Host):
    """Programs on the export host, rows by their names. A partial prefill shows no row, and drafts are left out."""

    driver_class = ExportDriver
    driver: ExportDriver

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        actives = self._past_prefill()
        if actives:
            seen = self._call([self._row(active) for active in actives])
            wanted = [self.pool.emit(active)[0] for active in actives]
            yield seen
            for active, token in zip(actives, self.subject.model.sampled(wanted, seen.after), strict=True):
                self._commit(active, [token])

    def _past_prefill(self) -> list[ActiveRequest]:
        """The requests that get a token in this step, by row."""
        sampled = []
        for active in (self.pool.requests[request.request_id] for request in self.driver.order):
            if active.chunks:
                active.chunks -= 1
            else:
                sampled.append(active)
        return sampled

    def _row(self, active: ActiveRequest) -> Row:
        seen = SeenRow(active.id, active.request.total_len)
        return seen, self.driver.shown(active.request, active.id), active.logits_key

    def _call(self, rows: Sequence[Row]) -> Observation:
        before = self.subject.model.rows([(key, seen.position) for seen, _, key in rows])
        after = self.driver.show(before, [shown for _, shown, _ in rows])
        return Observation(self.step, tuple(seen for seen, _, _ in rows), before, after)


class ExportTraceHost(ListTraceHost):
    """The rows of runs that were recorded on V1; who came, left and moved shows in nothing else."""

    driver_class = ExportDriver

    def _applies(self, driver: ExportDriver, step: V1Step) -> Iterator[tuple[Observation, Iterable[int]]]:
        actives = [self.requests[request] for request in step.rows if request not in step.discarded]
        if step.applied and actives:
            before = self.subject.model.rows([(active.logits_key, active.request.total_len) for active in actives])
            after = driver.step(before, [active.request for active in actives])
            rows = tuple(SeenRow(active.id, active.request.total_len) for active in actives)
            yield Observation(step.step, rows, before, after), range(len(rows))


class ExportCandidate(ProcessorCandidate):
    """A class behind the export host: rows are known again by their names, and the differences worked out."""

    host = EXPORT
    driver: ExportDriver

    def prepare(self, steady: SteadyBatch, change: BatchChange) -> None:
        if not self.made:
            self.driver, self.made = ExportDriver(self.cls, steady.config(self.device), self.device), True
            self._sent: dict[str, SamplingParams] = {}
        names = {request.request_id for request in steady.rows}
        self._sent = {name: params for name, params in self._sent.items() if name in names}
        for request in steady.rows:
            if request.request_id not in self._sent:
                self._sent[request.request_id] = self.parameters(bool(request.params))
        self._shown = [
            Shown(self._sent[row.request_id], row.prompt_token_ids or [], row.output_token_ids, row.request_id)
            for row in steady.rows
        ]

    def follow(self) -> None:
        self._rows = self.driver.rows_for(self._shown)

    def rest(self) -> None:
        self._rows = self.driver.rows_for(self._shown)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return self.driver.processed(logits, self._rows)


PARTS = HostParts(ExportDriver, ExportProgramHost, ExportTraceHost, ExportCandidate, V1Engine)
