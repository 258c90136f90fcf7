"""Two plugins as one processor on either runner, which keeps what each of them does to every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams
from lpkit.v1 import process_dict_updates

from lpkit_conformance.checks.together.pair import BOTH, PROGRAM, Pair
from lpkit_conformance.expectation.compare import first_difference
from lpkit_conformance.hosts import Observation, PluginError, SeenRow, default_host
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.hosts.v1 import at_temperature, greedy_rows
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.calls import checked

Edit = tuple[torch.Tensor, torch.Tensor]
"""Logits before and after a plugin."""


@dataclass
class RunPlugin:
    """A plugin in a run, and what it did.

    Attributes:
        make: returns its instance, from its constructor's arguments.
        claim: True if it told V1 that it keeps the argmax.
        answers: of each ``add_request``.
        edits: by the number of the step.
    """

    make: Callable[..., Any]
    processor: Any = None
    claim: bool = False
    answers: list[bool] = field(default_factory=list)
    edits: dict[int, Edit] = field(default_factory=dict)


class RunRow(NamedTuple):
    """One row of one step of a run: the numbers of step and row, what the host saw, and the row's request."""

    run: Run
    number: int
    nth: int
    seen: Observation
    row: SeenRow
    request: ActiveRequest

    @property
    def variant(self) -> int | None:
        """The arguments of the row's request."""
        return self.request.variant

    @property
    def greedy(self) -> bool:
        """True if the request is greedy."""
        return self.request.temperature < GREEDY_EPSILON

    @property
    def generated(self) -> list[int]:
        """The request's outputs so far."""
        return self.request.committed[: self.row.position - self.request.request.prompt_len]

    @property
    def probabilities(self) -> torch.Tensor:
        """The probabilities behind both plugins."""
        scaled = self.run.claimed or self.greedy
        return (self.seen.after[self.nth] / (1.0 if scaled else self.request.temperature)).softmax(-1)

    def counts(self, which: int) -> bool:
        """Return True if a plugin received the row, and its edit does not follow a greedy choice."""
        part = self.run.parts[which]
        return self.number in part.edits and not (part.claim and self.greedy)

    def edit(self, which: int) -> Edit:
        """Return the row before and after a plugin."""
        before, after = self.run.parts[which].edits[self.number]
        return before[self.nth], after[self.nth]

    def departure(self, which: int, again: RunRow) -> tuple[int, float, float] | None:
        """Return token, expected and actual logit where a plugin's edit differs from its edit in another run."""
        before, got = (row.unsqueeze(0) for row in self.edit(which))
        # V2 does not ask at all if no request of a batch is to be processed: the logits stay as they are.
        expected = again.edit(which)[1].unsqueeze(0) if again.counts(which) else before
        difference = first_difference(before, expected, got)
        return difference and difference[1:4]


@dataclass
class Run:
    """A program, carried out as far as possible.

    Attributes:
        order: indexes of the plugins, in the order of loading.
        parts: the plugins by index.
        seen: every step.
        requests: by name.
        current: the plugin called last.
        failure: the exception of that plugin which ended the run early.
    """

    order: tuple[int, ...]
    parts: dict[int, RunPlugin]
    seen: list[Observation] = field(default_factory=list)
    requests: dict[str, ActiveRequest] = field(default_factory=dict)
    current: int = 0
    failure: PluginError | None = None

    @property
    def sequence(self) -> tuple[int, ...]:
        """Order in which the engine applies the plugins: V1 applies those that claim argmax invariance later."""
        return tuple(sorted(self.order, key=lambda which: self.parts[which].claim))

    @property
    def claimed(self) -> bool:
        """True if all plugins claim argmax invariance: the logits of the run are then scaled by temperature."""
        return all(part.claim for part in self.parts.values())

    def rows(self, which: int | None = None) -> Iterator[RunRow]:
        """Yield the rows whose results count. Of a plugin: the rows that it received, if its edit is not discarded."""
        for number, seen in enumerate(self.seen):
            for index, row in enumerate(seen.rows):
                there = RunRow(self, number, index, seen, row, self.requests[row.request])
                if not row.discarded and (which is None or there.counts(which)):
                    yield there

    def by_position(self) -> dict[tuple[str, int], RunRow]:
        """Return the rows whose results count, by request and number of tokens."""
        return {(there.row.request, there.row.position): there for there in self.rows()}

    def acted(self, which: int) -> bool:
        """Return True if a plugin edited a request that uses both."""
        return any(there.variant in BOTH and not torch.equal(*there.edit(which)) for there in self.rows(which))


class Both:
    """The processor: each call goes to both plugins, with the engine's own arguments."""

    def __init__(self, run: Run, *args: Any) -> None:
        self._run = run
        self._params: dict[int, SamplingParams] = {}
        for part in self._parts():
            part.processor = part.make(*args)

    def is_argmax_invariant(self) -> bool:
        for part in self._parts():
            part.claim = bool(part.processor.is_argmax_invariant())
        return self._run.claimed

    def update_state(self, update: Any) -> None:
        process_dict_updates(self._params, update, lambda params, prompt, outputs: params)
        for part in self._parts():
            part.processor.update_state(update)

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        answers = []
        for part in self._parts():
            answers.append(bool(part.processor.add_request(slot, params)))
            part.answers.append(answers[-1])
        return any(answers)

    def apply_staged_writes(self) -> None:
        for part in self._parts():
            part.processor.apply_staged_writes()

    def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        for part in self._parts():
            late = part.claim and not self._run.claimed
            logits = self._apply_late(part, logits) if late else self._apply(part, logits, *context)
        return logits

    def _parts(self) -> Iterator[RunPlugin]:
        """Yield the plugins in the engine's order, and note which is called."""
        for which in self._run.sequence:
            self._run.current = which
            yield self._run.parts[which]

    def _apply(self, part: RunPlugin, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        before = logits.clone()
        after = checked(part.processor.apply(logits, *context), before)
        part.edits[len(self._run.seen)] = before, after.clone()
        return after  # the tensor itself: what the plugin keeps of it, the next one edits

    def _apply_late(self, part: RunPlugin, logits: torch.Tensor) -> torch.Tensor:
        """Apply a plugin that V1 calls after temperature, and not for a batch of greedy requests."""
        params = [self._params[row] for row in range(len(logits))]
        greedy = greedy_rows(params, logits.device)
        if bool(greedy.all()):
            return logits
        return torch.where(greedy, logits, self._apply(part, at_temperature(logits, params)))


class RecordedEdits:
    """A processor that repeats what a plugin did in a run; without ``edits`` it changes nothing."""

    def __init__(self, part: RunPlugin, edits: bool) -> None:
        self._claim, self._answers = part.claim, iter(part.answers)
        self._results = iter([after for _, after in part.edits.values()] if edits else ())

    def is_argmax_invariant(self) -> bool:
        return self._claim

    def update_state(self, update: Any) -> None:
        pass

    def add_request(self, slot: int, params: SamplingParams) -> bool:
        return next(self._answers, False)

    def apply_staged_writes(self) -> None:
        pass

    def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        return logits.copy_(next(self._results, logits))


def carry_out(
    pair: Pair,
    order: tuple[int, ...],
    ops: Iterable[Op] = PROGRAM,
    instead: Mapping[int, Callable[..., Any]] = MappingProxyType({}),
) -> Run:
    """Run a program on a pair.

    Args:
        pair: the plugins and their requests.
        order: indexes of the plugins, in which they are loaded.
        ops: the program.
        instead: what makes a processor in place of a plugin.
    """
    run = Run(order, {which: RunPlugin(instead.get(which, pair.plugins[which].cls)) for which in order})
    subject = pair.served_by(partial(Both, run))
    try:
        host = default_host(subject, subject.setup.max_num_seqs)
        run.requests = host.pool.requests
        for seen in host.run(ops):
            run.seen.append(seen)
    except PluginError as failure:
        run.failure = failure
    return run


def apart(pair: Pair, run: Run, kept: int, *, edits: bool = True) -> Run:
    """Return the same run with a plugin's replay in its place; without ``edits`` the replay changes nothing."""
    other = 1 - kept
    return carry_out(pair, run.order, instead={other: lambda *_: RecordedEdits(run.parts[other], edits)})
