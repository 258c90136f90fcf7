"""Watches the processors of one engine: follows its batch, samples steps, and compares what processors did.

A processor's methods are replaced on the instance, so its class, its name and its attributes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch

from lpkit_conformance.vllm_api.runners import V1, Runner
from lpkit_conformance.watch import evidence
from lpkit_conformance.watch.batches import ServedRequest, V1Follower, V2Follower
from lpkit_conformance.watch.budget import StepBudget
from lpkit_conformance.watch.numbers import CallTimes, ProcessCounts, ProcessorCounts, Violation
from lpkit_conformance.watch.reporter import Reporter, logger
from lpkit_conformance.watch.rules import EXCEPTION, RULES, RowSample, broken, described, not_logits
from lpkit_conformance.watch.settings import WatchSettings

MOST_ERRORS = 3
"""Errors of the watcher itself after which it switches itself off."""

OptIn = Callable[[Any], "bool | None"]
"""SamplingParams -> False if the request does not use the processor, else True, or None if that is not known."""


class WatchedProcessor:
    """A processor.

    Attributes:
        number: its position among the watched processors.
        opt_in: decides if a request uses it.
        reported: by kind of violation, the steps with a report.
    """

    def __init__(self, name: str, number: int, opt_in: OptIn, counts: ProcessorCounts) -> None:
        self.name, self.number, self.opt_in, self.counts = name, number, opt_in, counts
        self.reported: dict[str, list[int]] = {}

    def opted_out(self, request: ServedRequest) -> bool:
        """Return True if the request's rows must stay unchanged; False if that is not known."""
        answer = request.opted_out.get(self.number)
        if answer is None:
            answer = request.opted_out[self.number] = self.opt_in(request.params) is False
        return answer


class Watcher:
    """Shared by all watched processors of one engine.

    Attributes:
        active: False after too many errors of the watcher; processors then run as if unwatched.
    """

    def __init__(
        self,
        settings: WatchSettings,
        runner: Runner,
        server: evidence.ServerFacts,
        counts: ProcessCounts,
        reporter: Reporter,
    ) -> None:
        self.active = True
        self.budget = StepBudget(settings.budget, settings.rate)
        self.batch: V1Follower | V2Follower = V1Follower(settings.steps) if runner == V1 else V2Follower(settings.steps)
        self._settings, self._runner, self._server = settings, runner, server
        self._counts, self._reporter = counts, reporter
        self._sampling = False
        self._errors = 0
        counts.runner = runner

    def guarded(self, work: Callable[[], Any]) -> Any:
        """Do some of the watcher's own work, and count its time. An exception stops the watcher, not the engine."""
        start = perf_counter()
        try:
            return work()
        except Exception as error:
            self._counts.errors += 1
            self._errors += 1
            if self._errors >= MOST_ERRORS:
                self.active = self._counts.active = False
            logger.warning(
                "lpkit watch: an error of the watcher itself%s; serving is unaffected: %s",
                "" if self.active else ", which is off from now on",
                described(error, self._settings.values),
            )
            return None
        finally:
            self.budget.own_seconds += perf_counter() - start

    def begin_step(self) -> None:
        """Begin a step, and decide whether to sample it."""
        budget, counts = self.budget, self._counts
        self._sampling = budget.begin()
        counts.steps, counts.sampled = budget.steps, budget.sampled
        counts.step_seconds, counts.own_seconds = budget.step_seconds, budget.own_seconds

    def before(self, logits: Any, ctx: Any) -> RowSample | None:
        """Return rows to compare after ``apply``; None outside sampled steps."""
        if not self._sampling or not isinstance(logits, torch.Tensor) or logits.dim() != 2 or not logits.shape[0]:
            return None
        rows = self.budget.pick(logits.shape[0], self._settings.rows)
        return RowSample(logits, rows, *(() if ctx is None else (ctx.expanded_idx_mapping, ctx.pos)))

    def after(self, watched: WatchedProcessor, given: Any, got: Any, sample: RowSample | None) -> None:
        """Judge the result of ``apply``."""
        if wrong := not_logits(given, got):
            kind, expected, shown = wrong
            if self._counted(watched, kind):
                self._report(watched, kind, None, expected, shown)
            return
        if sample is None:
            return
        watched.counts.rows += len(sample.rows)

        def owner(row: int, slot: int | None) -> ServedRequest | None:
            if slot is not None:
                assert isinstance(self.batch, V2Follower)
                return self.batch.slots.get(slot)
            return self.batch.rows[row] if isinstance(self.batch, V1Follower) and row < len(self.batch.rows) else None

        def opted_out(row: int, slot: int | None) -> bool:
            request = owner(row, slot)
            return request is not None and watched.opted_out(request)

        def discarded(slot: int, position: int) -> bool:
            request = owner(0, slot)
            return request is not None and position + 1 < request.entered

        for kind, position, slot in broken(sample, got, opted_out, discarded):
            if not self._counted(watched, kind):
                continue
            row = sample.broken_row(kind, position, got)
            where = f"row {row.row}, token {row.column}"
            self._report(watched, kind, owner(row.row, slot), row.expected, f"{row.got} at {where}")

    def raised(
        self, watched: WatchedProcessor, method: str, params: Any, error: Exception, quarantined: bool = False
    ) -> None:
        """Report an exception of a processor. Unless it is ``quarantined``, it ends the engine: write at once."""
        then = ""
        if quarantined:
            without = "this request is" if params is not None else "this step is"
            then = "the processor is off from now on" if watched.counts.off else f"{without} served without it"
        if self._counted(watched, EXCEPTION) or watched.counts.off:
            request = None if params is None else ServedRequest(params, 1)
            got = f"{method} raised {described(error, self._settings.values)}"
            self._report(watched, EXCEPTION, request, "no exception", got, then)
        if not quarantined:
            self._reporter.flush()

    def _counted(self, watched: WatchedProcessor, kind: str) -> bool:
        """Count a violation; True if it is to be reported: the first of its step, and one of the first steps."""
        counts, steps = watched.counts.violations, watched.reported.setdefault(kind, [])
        counts[kind] = counts.get(kind, 0) + 1
        if self.budget.steps in steps or len(steps) >= max(self._settings.traces, 1):
            return False
        steps.append(self.budget.steps)
        return True

    def _report(
        self,
        watched: WatchedProcessor,
        kind: str,
        request: ServedRequest | None,
        expected: str,
        got: str,
        then: str = "",
    ) -> None:
        number = len(watched.reported[kind])
        violation = Violation(
            processor=watched.name,
            kind=kind,
            rule=RULES[kind],
            runner=self._runner,
            step=self.budget.steps,
            arguments={} if request is None else request.arguments(self._settings.values),
            expected=expected,
            got=got,
            then=then,
        )
        make = partial(
            evidence.to_trace,
            evidence.snapshot(self.batch),
            request,
            lambda other: not watched.opted_out(other),
            self._server,
            {"processor": watched.name, "kind": kind, "expected": expected, "got": got},
            self._settings.values,
        )
        self._reporter.violation(
            violation, make if number <= self._settings.traces else None, number == 1 or watched.counts.off
        )


def wrap_v1(processor: Any, watcher: Watcher, watched: WatchedProcessor, leads: bool) -> None:
    """Watch a processor on V1. ``leads``: it is the first processor that the engine calls in a step."""
    batch = watcher.batch
    assert isinstance(batch, V1Follower)

    def follow(update: Any) -> None:
        watcher.begin_step()
        batch.update(update)

    _wrap(processor, "update_state", watcher, watched, before=follow if leads else None)
    _wrap_apply(processor, watcher, watched, (lambda logits, ctx: batch.apply()) if leads else None)


def wrap_v2(processor: Any, watcher: Watcher, watched: WatchedProcessor, leads: bool, states: Any) -> None:
    """Watch a processor on V2, likewise. ``states``: the engine's request states."""
    batch = watcher.batch
    assert isinstance(batch, V2Follower)

    def enter(slot: int, params: Any) -> None:
        batch.add(slot, params, int(states.prompt_len.np[slot]), int(states.prefill_len.np[slot]))

    def begin() -> None:
        watcher.begin_step()
        batch.begin()

    def declined(result: Any, _: None, slot: int, params: Any) -> None:
        if not result and slot in batch.slots:
            batch.slots[slot].opted_out[watched.number] = True

    def follow(logits: Any, ctx: Any) -> None:
        batch.apply(ctx, logits.shape[0])

    _wrap(processor, "add_request", watcher, watched, before=enter if leads else None, after=declined)
    _wrap(processor, "apply_staged_writes", watcher, watched, before=begin if leads else None)
    _wrap_apply(processor, watcher, watched, follow if leads else None)


def _wrap_apply(
    processor: Any, watcher: Watcher, watched: WatchedProcessor, follow: Callable[[Any, Any], None] | None
) -> None:
    def before(logits: Any, ctx: Any = None) -> RowSample | None:
        if follow is not None:
            follow(logits, ctx)
        return watcher.before(logits, ctx)

    def after(result: Any, sample: RowSample | None, logits: Any, ctx: Any = None) -> None:
        watcher.after(watched, logits, result, sample)

    _wrap(processor, "apply", watcher, watched, before, after)


def _wrap(
    processor: Any,
    method: str,
    watcher: Watcher,
    watched: WatchedProcessor,
    before: Callable[..., Any] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Call ``before`` with a call's arguments, and ``after`` with its result, what ``before`` returned, and them."""
    original = getattr(processor, method)
    times = watched.counts.calls.setdefault(method, CallTimes())

    def call(*args: Any, **kwargs: Any) -> Any:
        if not watcher.active:
            return original(*args, **kwargs)
        noted = watcher.guarded(lambda: before(*args, **kwargs)) if before is not None else None
        start = perf_counter()
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            problem = error
            params = args[1] if method == "add_request" and len(args) > 1 else None
            watcher.guarded(lambda: watcher.raised(watched, method, params, problem))
            raise
        times.add(perf_counter() - start)
        if after is not None:
            watcher.guarded(lambda: after(result, noted, *args, **kwargs))
        return result

    object.__setattr__(processor, method, call)
