"""``LPKIT_QUARANTINE``: an engine goes on without a processor that raises, for one request or for good.

vLLM ends its engine for all requests if a processor raises. Here, the processor is built again, and the requests of the
batch enter it one after the other. A request with which it raises is served without it from then on. If it raises
without any request's arguments, the step is served without it. After several exceptions, it is off for good.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from lpkit_conformance.vllm_api.runners import V1, V2, Runner
from lpkit_conformance.watch.numbers import ProcessorCounts
from lpkit_conformance.watch.rules import not_logits

Report = Callable[[str, Any, Exception], None]
"""Called with the method that raised, the ``SamplingParams`` of the request at fault or None, and the exception."""


class _Request:
    """A request in the batch: its parameters, and on V1 its prompt and outputs.

    ``without``: it is served without the processor.
    """

    __slots__ = ("params", "tokens", "without")

    def __init__(self, params: Any, *tokens: Any) -> None:
        self.params, self.tokens, self.without = params, tokens, False

    def shown(self, without: bool) -> Any:
        """Return the parameters that the processor gets; without a request's own arguments if ``without``."""
        if not (without or self.without):
            return self.params
        params = copy.copy(self.params)
        params.extra_args = None
        return params


class Quarantine(ABC):
    """Stands between an engine and one processor; :meth:`install` replaces the instance's methods.

    Args:
        build: makes another instance, as the engine made this one.
        most: exceptions after which the processor is off for good.
        counts: of the processor; updated.
    """

    methods: tuple[str, ...]

    def __init__(self, build: Callable[[], Any], most: int, counts: ProcessorCounts, report: Report) -> None:
        self._build, self._most, self._counts, self._report = build, most, counts, report
        self._requests: dict[int, _Request] = {}
        self._call: Mapping[str, Callable[..., Any]] = {}

    def install(self, processor: Any) -> None:
        """Replace the methods of an instance. Raises AttributeError if they cannot be replaced."""
        self._use(processor)
        for name in self.methods:
            object.__setattr__(processor, name, getattr(self, name))

    def _use(self, processor: Any) -> None:
        self._call = {name: getattr(processor, name) for name in self.methods}

    def apply(self, logits: Any, *ctx: Any) -> Any:
        """Call the processor; return the logits from before the call if it raises."""
        if self._counts.off:
            return logits
        before = logits.clone()

        def attempt(call: Mapping[str, Callable[..., Any]], given: Any) -> Any:
            result = call["apply"](given, *ctx)
            if wrong := not_logits(before, result):
                raise TypeError(f"apply returned {wrong[2]}, not {wrong[1]}")
            return result

        try:
            result = attempt(self._call, logits)
        except Exception as error:
            result = self._recovered("apply", error, lambda call: attempt(call, before.clone()))
            if result is None:
                return before
        if any(request.without for request in self._requests.values()):
            rows = self._rows_without(logits.shape[0], *ctx)
            result[rows] = before[rows]
        return result

    def _recovered(self, method: str, error: Exception, attempt: Callable[[Mapping[str, Any]], Any]) -> Any:
        """Count an exception, and build the processor again; return the result of ``attempt``, None if that raises.

        A processor whose ``update_state`` or ``apply_staged_writes`` raises is off then: it no longer fits the batch.
        """
        self._count()
        quarantined = {id(request) for request in self._requests.values() if request.without}
        result = None if self._counts.off else self._rebuilt(attempt)
        self._counts.off |= result is None and method != "apply"
        new = [r.params for r in self._requests.values() if r.without and id(r) not in quarantined]
        self._report(method, new[0] if new else None, error)
        return result

    def _count(self) -> None:
        self._counts.exceptions += 1
        self._counts.off = self._counts.exceptions >= self._most

    def _rebuilt(self, attempt: Callable[[Mapping[str, Any]], Any]) -> Any:
        while True:
            try:
                processor = self._build()
                self._enter(processor, self._requests, without=True)
                call = {name: getattr(processor, name) for name in self.methods}
                result = attempt(call)
            except Exception:
                return None
            for place, request in self._requests.items():
                try:
                    if not request.without:
                        self._enter(processor, {place: request}, without=False)
                        result = attempt(call)
                except Exception:
                    request.without = True
                    self._counts.quarantined += 1
                    break
            else:
                self._use(processor)
                return result

    @abstractmethod
    def _enter(self, processor: Any, requests: Mapping[int, _Request], without: bool) -> None:
        """Let requests enter, in place of those in their rows or slots."""

    @abstractmethod
    def _rows_without(self, rows: int, *ctx: Any) -> Any:
        """Return an index of the rows whose requests are served without the processor."""


class V1Quarantine(Quarantine):
    """Rows of V1."""

    methods = ("update_state", "apply")

    def update_state(self, update: Any) -> None:
        """Follow the batch, and pass the update on."""
        if update is not None:
            process_dict_updates(self._requests, update, _Request)
        if self._counts.off:
            return
        try:
            self._call["update_state"](update)
        except Exception as error:
            self._recovered("update_state", error, lambda call: True)

    def _enter(self, processor: Any, requests: Mapping[int, _Request], without: bool) -> None:
        added = [(row, request.shown(without), *request.tokens) for row, request in requests.items()]
        processor.update_state(BatchUpdate(len(self._requests), [], added, []))

    def _rows_without(self, rows: int, *ctx: Any) -> Any:
        return [row for row, request in self._requests.items() if request.without and row < rows]


class V2Quarantine(Quarantine):
    """Slots of V2. A request that left keeps its slot here until another takes it: V2 does not report it."""

    methods = ("add_request", "apply_staged_writes", "apply")
    _broken: tuple[str, Exception] | None = None

    def add_request(self, slot: int, params: Any) -> bool:
        """Let a request enter; False if it is served without the processor."""
        request = self._requests[slot] = _Request(params)
        if self._counts.off:
            return False
        try:
            return self._broken is not None or bool(self._call["add_request"](slot, params))
        except Exception as error:
            request.without = True
            self._counts.quarantined += 1
            self._count()
            self._report("add_request", params, error)
        try:
            self._call["add_request"](slot, request.shown(True))
        except Exception as error:
            self._broken = "add_request", error  # tokens of new requests are known at the next call
        return False

    def apply_staged_writes(self) -> None:
        """Pass the call on."""
        if self._counts.off:
            return
        broken, self._broken = self._broken, None
        if broken is None:
            try:
                self._call["apply_staged_writes"]()
                return
            except Exception as error:
                broken = "apply_staged_writes", error
        self._recovered(*broken, lambda call: True)

    def _enter(self, processor: Any, requests: Mapping[int, _Request], without: bool) -> None:
        for slot, request in requests.items():
            processor.add_request(slot, request.shown(without))
        processor.apply_staged_writes()

    def _rows_without(self, rows: int, *ctx: Any) -> Any:
        slots = ctx[0].expanded_idx_mapping
        held = [slot for slot, request in self._requests.items() if request.without]
        return torch.isin(slots, torch.tensor(held, dtype=slots.dtype, device=slots.device))


QUARANTINES: Mapping[Runner, type[Quarantine]] = {V1: V1Quarantine, V2: V2Quarantine}
