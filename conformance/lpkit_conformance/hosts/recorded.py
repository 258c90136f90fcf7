"""Replays recorded traces: the engine's own batch changes and rows, with the plugin's cases as the requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lpkit_conformance.hosts.base import Driver
from lpkit_conformance.hosts.drafts import verified
from lpkit_conformance.hosts.requests import known_as, make_active
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.settings.cases import VARIANTS
from lpkit_conformance.subject.calls import Observation
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.traces import Trace
from lpkit_conformance.traces.patterns import RECORDED, users
from lpkit_conformance.traces.schema import V1Step

LENGTHS = (9, 110, 5, 30, 2, 60, 17)
"""Prompt lengths of the few simulated requests that play all traces.

Each simulated request is also run alone, with its own variant and without the plugin. The number of lengths is prime
to the patterns' periods.
"""


def assign_requests(subject: Subject, trace: Trace, pattern: str) -> dict[str, Arrive]:
    """The simulated request that plays each request of the trace: with the arguments that it had in a server, if the
    trace has their values and a case has them."""
    watch = trace.settings.get("watch", {})
    recorded = watch["arguments"] if watch.get("values") else {}
    given = {number: subject.cases[number].fields.get("extra_args") for number in (0, *subject.others)}
    names = list(trace.requests)
    arrivals, served = {}, 0
    for i, (name, uses) in enumerate(zip(names, users(pattern, trace.settings, names), strict=True)):
        character = i % len(LENGTHS)
        turn = served if pattern == RECORDED else character  # a server's first user plays the case itself
        own = [number for number, arguments in given.items() if name in recorded and arguments == recorded[name]]
        variant = (own or [turn % VARIANTS])[0] if uses else None
        served += uses
        arrivals[name] = Arrive(name, variant, LENGTHS[character], character=f"t{character}")
    return arrivals


def reached(subject: Subject, played: Iterable[tuple[Trace, str]]) -> dict[Arrive, int]:
    """The largest number of output tokens of a request in these traces and patterns, by order of arrival."""
    lengths: dict[Arrive, int] = {}
    for trace, pattern in played:
        lens = trace.output_lens
        for name, arrived in assign_requests(subject, trace, pattern).items():
            player = known_as(arrived)
            lengths[player] = max(lengths.get(player, 0), lens[name])
    return lengths


class TraceHost(ABC):
    """Drives one instance through a trace.

    Rows, timing and numbers of generated tokens come from the trace. Prompts and tokens come from the subject, so that
    a case which needs certain tokens gets them, and a few different requests serve all traces.

    Args:
        subject: the plugin; its host must be the trace's runner.
        pattern: as :func:`~lpkit_conformance.traces.patterns.users` takes it.

    Attributes:
        places: by step, the row or slot of every request that got logits.
        tokens: the tokens that the requests commit at the end of the step.
    """

    driver_class: type[Driver]

    def __init__(self, subject: Subject, trace: Trace, pattern: str) -> None:
        self.subject = subject
        self.trace = trace
        self.tokens: dict[str, list[int]] = {}
        self.places: dict[int, dict[str, int]] = {}
        self.requests, lens = {}, trace.output_lens
        for name, arrived in assign_requests(subject, trace, pattern).items():
            most = subject.most_outputs(arrived.variant)
            if most is not None and lens[name] > most:  # the case rules this request out
                arrived = replace(arrived, variant=None)
            self.requests[name] = make_active(subject, arrived)

    def config(self) -> Any:
        """The plugin's ``vllm_config``, as in the recorded engine."""
        config = self.subject.setup.config(self.trace.max_num_seqs)
        config.scheduler_config.async_scheduling = bool(self.trace.settings.get("async_scheduling"))
        if speculation := self.trace.settings.get("speculative_config"):
            config.speculate(speculation["num_speculative_tokens"])
        return config

    def run(self) -> Iterator[Observation]:
        """Every ``apply`` of the trace."""
        driver = self._drive()
        for step in self.trace.steps:
            self._change(driver, step)
            self._want(step.tokens)
            for seen, places in self._applies(driver, step):
                yield self._settle(seen, places)
            for name, ids in self.tokens.items():
                driver.commit(self.requests[name].request, ids)
            self.tokens.clear()

    def _drive(self) -> Any:
        """Return the driver of the instance."""
        return self.driver_class(self.subject.plugin.cls, self.config(), self.subject.setup.device)

    @abstractmethod
    def _change(self, driver: Any, step: Any) -> None:
        """Report the changes of a recorded step to the plugin."""

    @abstractmethod
    def _applies(self, driver: Any, step: Any) -> Iterator[tuple[Observation, Iterable[int]]]:
        """Make the recorded calls of ``apply``; yield each with the rows or slots of its rows."""

    def _want(self, recorded: Mapping[str, Sequence[int]]) -> None:
        """Begin a step in which requests commit as many tokens as were ``recorded``, from the tokens that their
        model wants."""
        for name, ids in recorded.items():
            active = self.requests[name]
            n = len(active.request.output_token_ids)
            self.tokens[name] = self.subject.model.emitted(active.logits_key, active.variant, n + len(ids), n)

    def _settle(self, seen: Observation, places: Iterable[int]) -> Observation:
        """Keep where everyone is, and let the plugin choose the tokens that come of rows."""
        for item, place in zip(seen.rows, places, strict=True):
            self.places.setdefault(seen.step, {}).setdefault(item.request, place)
        rows = Counter(item.request for item in seen.rows)
        chosen = {name: self.tokens[name][: rows[name]] for name in rows if name in self.tokens}
        judged = verified(self.subject, list(seen.rows), seen.after, chosen)
        # Where the engine skipped ``apply``, more tokens were committed than there are rows.
        self.tokens.update({name: ids + self.tokens[name][rows[name] :] for name, ids in chosen.items()})
        return replace(seen, rows=judged)


class ListTraceHost(TraceHost):
    """A replay on a runner whose output lists the plugin reads: the engine sometimes takes tokens back from them."""

    def _change(self, driver: Any, step: V1Step) -> None:
        for request, length in step.lists.items():
            active = self.requests[request]
            del active.request.output_token_ids[active.begun + length :]
