"""The watcher of one engine: follows its batch, decides which steps are sampled, and judges what processors did."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch

from lpkit_conformance.vllm_api.runners import V1, Runner
from lpkit_conformance.watch import evidence, invariants
from lpkit_conformance.watch.batch_v1 import V1Batch
from lpkit_conformance.watch.batch_v2 import V2Batch
from lpkit_conformance.watch.budget import Budget
from lpkit_conformance.watch.invariants import RULES, Sample
from lpkit_conformance.watch.reporter import Reporter, logger
from lpkit_conformance.watch.requests import Request, arguments
from lpkit_conformance.watch.settings import Settings
from lpkit_conformance.watch.tally import Seen, Tally, Violation
from lpkit_conformance.watch.uses import Judge

MOST_ERRORS = 3
"""Exceptions of the watcher itself after which it leaves the server alone."""


class Watched:
    """One processor. ``number``: its own; ``opted_in``: tells who uses it."""

    def __init__(self, name: str, number: int, opted_in: Judge, seen: Seen) -> None:
        self.name, self.number, self.opted_in, self.seen = name, number, opted_in, seen

    def opted_out(self, request: Request) -> bool:
        """Whether the request's rows must stay as they are; false where that cannot be known."""
        known = request.opted_out.get(self.number)
        if known is None:
            known = request.opted_out[self.number] = self.opted_in(request.params) is False
        return known


class Hub:
    """Shared by all watched processors of one engine.

    Args:
        settings: how to watch.
        runner: the engine's.
        server: what traces say of it.
        tally, reporter: of this process.

    Attributes:
        active: false after too many errors of the watcher: processors then run as if it was not there.
    """

    def __init__(
        self, settings: Settings, runner: Runner, server: evidence.Server, tally: Tally, reporter: Reporter
    ) -> None:
        self.active = True
        self.budget = Budget(settings.budget, settings.rate)
        self.batch: V1Batch | V2Batch = V1Batch(settings.steps) if runner == V1 else V2Batch(settings.steps)
        self._settings, self._runner, self._server = settings, runner, server
        self._tally, self._reporter = tally, reporter
        self._sampling = False
        self._errors = 0
        tally.runner = runner

    def guarded(self, work: Callable[[], Any]) -> Any:
        """Do some of the watcher's own work: its time is counted, and its exceptions end it, not the engine."""
        start = perf_counter()
        try:
            return work()
        except Exception:
            self._tally.errors += 1
            self._errors += 1
            if self._errors >= MOST_ERRORS:
                self.active = self._tally.active = False
            logger.warning(
                "lpkit watch: an error of the watcher itself%s; serving is unaffected",
                "" if self.active else ", which is off from now on",
                exc_info=True,
            )
            return None
        finally:
            self.budget.own_seconds += perf_counter() - start

    def begin_step(self) -> None:
        """A step begins."""
        budget, tally = self.budget, self._tally
        self._sampling = budget.begin()
        tally.steps, tally.sampled = budget.steps, budget.sampled
        tally.step_seconds, tally.own_seconds = budget.step_seconds, budget.own_seconds

    def before(self, watched: Watched, logits: Any, ctx: Any) -> Sample | None:
        """``apply`` is about to be called; what to compare its result with, in a sampled step."""
        if not self._sampling or not isinstance(logits, torch.Tensor) or logits.dim() != 2 or not logits.shape[0]:
            return None
        rows = self.budget.pick(logits.shape[0], self._settings.rows)
        return Sample(logits, rows, *(() if ctx is None else (ctx.expanded_idx_mapping, ctx.pos)))

    def after(self, watched: Watched, given: Any, got: Any, sample: Sample | None) -> None:
        """``apply`` returned."""
        if wrong := invariants.returned(given, got):
            kind, expected, found = wrong
            self.violated(watched, kind, None, expected, found)
            return
        if sample is None:
            return
        watched.seen.rows += len(sample.rows)

        def owner(row: int, slot: int | None) -> Request | None:
            if slot is not None:
                assert isinstance(self.batch, V2Batch)
                return self.batch.slots.get(slot)
            return self.batch.rows[row] if isinstance(self.batch, V1Batch) and row < len(self.batch.rows) else None

        def opted_out(row: int, slot: int | None) -> bool:
            request = owner(row, slot)
            return request is not None and watched.opted_out(request)

        def discarded(slot: int, position: int) -> bool:
            request = owner(0, slot)
            return request is not None and position + 1 < request.prompt_len

        for kind, position, slot in invariants.departures(sample, got, opted_out, discarded):
            if self._counted(watched, kind) > max(self._settings.traces, 1):
                continue
            departure = sample.departure(kind, position, got)
            where = f"row {departure.row}, token {departure.column}"
            request = owner(departure.row, slot)
            self._tell(watched, kind, request, departure.expected, f"{departure.got} at {where}")

    def violated(self, watched: Watched, kind: str, params: Any, expected: str, got: str) -> None:
        """A rule was broken by a whole call."""
        if self._counted(watched, kind) <= max(self._settings.traces, 1):
            request = None if params is None else Request(params, 1)
            self._tell(watched, kind, request, expected, got)

    def raised(self, watched: Watched, method: str, params: Any, error: Exception) -> None:
        """A method raised, which ends the engine: everything is written at once."""
        text = f"{method} raised {type(error).__name__}: {str(error)[:300]}"
        self.violated(watched, invariants.EXCEPTION, params, "no exception", text)
        self._reporter.flush()

    def _counted(self, watched: Watched, kind: str) -> int:
        counts = watched.seen.violations
        counts[kind] = counts.get(kind, 0) + 1
        return counts[kind]

    def _tell(self, watched: Watched, kind: str, request: Request | None, expected: str, got: str) -> None:
        """Tell of one of the first violations of its kind."""
        number = watched.seen.violations[kind]
        violation = Violation(
            processor=watched.name,
            kind=kind,
            rule=RULES[kind],
            runner=self._runner,
            step=self.budget.steps,
            arguments={} if request is None else arguments(request.params, self._settings.values),
            expected=expected,
            got=got,
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
        self._reporter.violation(violation, make if number <= self._settings.traces else None, number == 1)
