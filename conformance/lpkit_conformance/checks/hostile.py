"""Hosts of engines with unusual but legal behaviour, each for the programs of one check."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from lpkit.runtime import V2Slots
from lpkit.runtime.engine.v1_async import PLACEHOLDER

from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.hosts.v2 import V2Driver, V2Host
from lpkit_conformance.instruments.in_flight import InFlight
from lpkit_conformance.subject.calls import Observation
from lpkit_conformance.subject.subject import Subject


class LateTokens(V1Host):
    """V1 under async scheduling: at ``update_state`` the newest token is a placeholder, at ``apply`` it is real."""

    def _begin(self) -> None:
        held = {}
        for active in self.pool.running.values():
            outputs = active.request.output_token_ids
            if outputs:
                held[active.id] = outputs[-1]
                outputs[-1] = PLACEHOLDER
        super()._begin()
        for request, token in held.items():
            self.pool.requests[request].request.output_token_ids[-1] = token


class Shrinking(V1Host):
    """V1 after failed KV loads: sometimes a list loses its newest tokens, which are then generated again."""

    def _begin(self) -> None:
        if self.step % 4 == 3:
            for active in self.pool.running.values():
                # One more than the token that no `apply` has seen yet.
                del active.request.output_token_ids[-2:]
        super()._begin()


class NeverRepaired(V1Host):
    """V1 under async scheduling with an installed plugin: requests named ``u...`` keep their placeholders.

    The result for them is undefined, so their rows are judged only while they have no output.
    """

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        for seen in super()._sample(drafts, accepted):
            rows = []
            for row in seen.rows:
                active = self.pool.requests[row.request]
                outputs = active.request.output_token_ids
                unknown = active.id.startswith("u")
                late = unknown and row.position > active.request.prompt_len
                rows.append(replace(row, discarded=row.discarded or late))
                if unknown:
                    outputs[:] = [PLACEHOLDER] * len(outputs)
            yield replace(seen, rows=tuple(rows))


class HostAhead(V2Host):
    """Begins the device's steps, and calls the plugin within the device's model."""

    def __init__(self, subject: Subject, flight: InFlight, device: torch.device) -> None:
        self._flight, self._device = flight, device
        super().__init__(subject)

    def drive(self, config: Any) -> V2Driver:
        model = config.model_config
        slots = V2Slots(
            config.scheduler_config.max_num_seqs,
            model.max_model_len,
            self.subject.setup.device,
            vocab_size=model.vocab_size,
        )
        slots.state = dataclasses.replace(slots.state, device=self._device)
        with self.watch("__init__"):
            return V2Driver(self.subject.plugin.cls, config, self.subject.setup.device, slots)

    def watch(self, method: str, args: tuple[Any, ...] = ()) -> InFlight:
        """Return the context around a call of the plugin."""
        self._flight.method = method
        return self._flight

    def _begin(self) -> None:
        self._flight.begin(self.step + 1)
        super()._begin()
