"""Ranks of a tensor-parallel engine: each runs the same steps and chooses each token by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

import torch

from lpkit_conformance.hosts import Host, Observation, default_host
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.hosts.v2 import V2Host
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step
from lpkit_conformance.settings.hosts import HOSTS, hosts_of
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V2

OPS: tuple[Op, ...] = (
    *(Arrive(f"r{i}", None if i == 2 else i, 5 + i) for i in range(5)),
    Step(4),
    Finish("r1"),
    Step(3),
)
"""The steps of every rank."""

RANKS = 2
"""Number of ranks of the tensor-parallel engine."""

Choice = tuple[int, str, int, str]
"""Step, request, the token that the rank chooses for it, and the fingerprint of the logits that it chose from."""

OWN = ", own slots"
"""Suffix of a host's name for the run in which a rank gets only the rows of its own slots."""


@dataclass(frozen=True)
class Parting:
    """The first choice in which two ranks differ.

    Attributes:
        host: on which runner, and whether each rank was shown its own slots only.
        step, request: where.
        tokens: of either rank; equal if only their logits differ.
    """

    host: str
    step: int
    request: str
    tokens: tuple[int, int]


def choices(subject: Subject, rank: int) -> dict[str, list[Choice]]:
    """Return the choices of this process as one of :data:`RANKS` ranks, by host.

    On V2 once more with the rows of the slots that it owns only, as sampling in shards has it.
    """
    chosen: dict[str, list[Choice]] = {}
    for host in hosts_of(subject.plugin.interfaces):
        there = subject.having(host=host)
        whole = default_host(there, there.setup.max_num_seqs)
        chosen[host] = _choices(whole)
        if HOSTS[host].interface == V2:
            chosen[host + OWN] = _choices(_OwnSlots(there, rank, whole.pool.requests))
    return chosen


@fact
def first_rank(subject: Subject) -> dict[str, list[Choice]]:
    """Return the choices of this process as the first rank."""
    return choices(subject, rank=0)


def parting(here: dict[str, list[Choice]], there: dict[str, list[Choice]]) -> Parting | None:
    """Return the first difference of two ranks; a different token is better evidence than different logits."""
    partings: list[Parting] = []
    for host in here:
        # Either rank alone has chosen for a slot that it owns; the other one needs what it would have chosen.
        ours, theirs = (_with_own(rank, host) for rank in (here, there))
        for (step, request, token, logits), (_, _, other, others) in zip(ours, theirs, strict=True):
            if logits != others:
                partings.append(Parting(host, step, request, (token, other)))
    return min(partings, key=lambda parting: (parting.tokens[0] == parting.tokens[1], parting.step), default=None)


def _with_own(rank: dict[str, list[Choice]], host: str) -> list[Choice]:
    """Return a rank's choices for the whole batch, with the choices of its own slots in place of the shared ones."""
    shown = rank[host] if host.endswith(OWN) else []
    of_owner = {(step, request): (step, request, token, logits) for step, request, token, logits in shown}
    whole = rank[host.removesuffix(OWN)]
    return [of_owner.get((step, request), (step, request, token, logits)) for step, request, token, logits in whole]


def _choices(host: Host) -> list[Choice]:
    chosen: list[Choice] = []
    for observation in host.run(OPS):
        tokens = (observation.after.float().cpu() + _noise(observation)).argmax(dim=1).tolist()
        for seen, row, token in zip(observation.rows, observation.after, tokens, strict=True):
            chosen.append((observation.step, seen.request, token, _fingerprint(row)))
    return sorted(chosen)


def _noise(observation: Observation) -> torch.Tensor:
    """Return noise that makes the largest logit a sample; it depends on request and position, as seeds do."""
    generator = torch.Generator()
    rows = []
    for seen in observation.rows:
        generator.manual_seed(crc32(f"{seen.request} {seen.position}".encode()))
        rows.append(torch.empty(observation.after.shape[1]).exponential_(generator=generator))
    return -torch.stack(rows).log()


class _OwnSlots(V2Host):
    """Shows the plugin the rows of the rank's own slots; the owners tell the others the tokens.

    ``Manner.ranks`` has all ranks in one process, where their instances share what a module or a class holds.

    Args:
        subject: the plugin and its requests.
        rank: of this process.
        requests: by name, the requests at the end of the run of the whole batch, with all their tokens.
    """

    def __init__(self, subject: Subject, rank: int, requests: Mapping[str, ActiveRequest]) -> None:
        super().__init__(subject)
        self._rank, self._requests = rank, requests

    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        actives = list(self.pool.running.values())
        tokens = {active.id: self._requests[active.id].committed[len(active.committed)] for active in actives}
        owned = [active for active in actives if self.driver.slots.slot(active.id) % RANKS == self._rank]
        if owned:
            yield self._apply(owned, dict.fromkeys(tokens, 0), {request: [token] for request, token in tokens.items()})
        for active in actives:
            self._commit(active, [tokens[active.id]])


def _fingerprint(row: torch.Tensor) -> str:
    """A fingerprint of processed logits; rounded: another process may pick another order of summation."""
    rounded = row.double().mul(1e4).round().nan_to_num(nan=7e7)
    return hashlib.sha256(rounded.cpu().numpy().tobytes()).hexdigest()
