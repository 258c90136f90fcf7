"""Replays recorded traces: the engine's own batch changes and rows, with the plugin's cases as the requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import product

import torch

from lpkit_conformance.hosts.base import Driver
from lpkit_conformance.hosts.calls import Observation, SeenRow
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import known_as, make_active
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.settings.cases import VARIANTS
from lpkit_conformance.traces import Trace
from lpkit_conformance.traces.patterns import users

LENGTHS = (9, 110, 5, 30, 2, 60, 17)
"""Prompt lengths of the few characters that all traces are played with, as each has to be run alone too, with its own
variant and without the plugin. As many as are prime to the patterns' periods."""


def assign_requests(trace: Trace, pattern: str) -> dict[str, Arrive]:
    """Who plays which request of the trace."""
    names = list(trace.requests)
    found = {}
    for i, (name, uses) in enumerate(zip(names, users(pattern, trace.settings, names), strict=True)):
        character = i % len(LENGTHS)
        variant = character % VARIANTS if uses else None
        found[name] = Arrive(name, variant, LENGTHS[character], character=f"t{character}")
    return found


def reached(played: Iterable[Trace], patterns: Iterable[str]) -> dict[Arrive, int]:
    """The most output tokens that anyone gets who plays in these traces; by how they arrive, names left out."""
    found: dict[Arrive, int] = {}
    for trace, pattern in product(played, tuple(patterns)):
        lens = trace.output_lens
        for name, arrived in assign_requests(trace, pattern).items():
            player = known_as(arrived)
            found[player] = max(found.get(player, 0), lens[name])
    return found


class TraceHost(ABC):
    """Drives one instance through a trace.

    Rows, timing and numbers of generated tokens are the trace's; prompts and tokens are the subject's, so that a
    case which needs certain tokens gets them, and a few different requests serve all traces.

    Args:
        subject: the plugin; its host must be the trace's runner.
        trace: what to replay.
        pattern: as :func:`~lpkit_conformance.traces.patterns.users` takes it.

    Attributes:
        places: by step, the row or slot of every request that got logits.
    """

    def __init__(self, subject: PluginUnderTest, trace: Trace, pattern: str) -> None:
        self.subject = subject
        self.trace = trace
        self._rows: dict[tuple[str, int], torch.Tensor] = {}
        self.places: dict[int, dict[str, int]] = {}
        self.requests = {
            name: make_active(subject, arrived) for name, arrived in assign_requests(trace, pattern).items()
        }

    @abstractmethod
    def run(self) -> Iterator[Observation]:
        """Every ``apply`` of the trace."""

    def _note(self, step: int, seen: Iterable[SeenRow], after: torch.Tensor, places: Iterable[int]) -> None:
        """Keep where everyone is, and the rows that tokens are going to come of."""
        for row, (item, place) in enumerate(zip(seen, places, strict=True)):
            self.places.setdefault(step, {}).setdefault(item.request, place)
            if not item.discarded:
                self._rows[item.request, item.position] = after[row : row + 1]

    def _commit(self, driver: Driver, request: str, count: int) -> None:
        active = self.requests[request]
        for _ in range(count):
            tokens = [self.subject.emit(active.logits_key, active.variant, len(active.request.output_token_ids))]
            row = self._rows.pop((request, active.request.total_len), None)
            if row is not None:
                tokens = self.subject.sampled(tokens, row)
            driver.commit(active.request, tokens)
