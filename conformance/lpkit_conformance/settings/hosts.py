"""The hosts that a plugin can be judged on: a row each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lpkit_conformance.vllm_api.runners import V1, V2, Runner

EXPORT: Final = "export"


@dataclass(frozen=True)
class HostRow:
    """One way of driving a plugin, implemented by the module of this name in ``hosts``.

    Attributes:
        name: the name in settings and on the command line.
        interface: the vLLM interface that it drives, as :func:`lpkit.loading.interfaces_of` names it.
        base: full name of vLLM's base class for that interface.
        position: the word for a request's position in the batch.
        told_by: the method that receives new requests; blamed when a request gets another's state.
        asked_for: True if only the user, the project or a selected check can choose it.
    """

    name: str
    interface: Runner
    base: str
    position: str
    told_by: str
    asked_for: bool = False


_V1_BASE = "vllm.v1.sample.logits_processor.LogitsProcessor"

_ROWS = (
    HostRow(V1, V1, _V1_BASE, "row", "update_state"),
    HostRow(V2, V2, "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor", "slot", "add_request"),
    HostRow(EXPORT, V1, _V1_BASE, "row", "update_state", asked_for=True),
)

HOSTS = {row.name: row for row in _ROWS}

RUNNER_HOSTS = tuple(row.name for row in _ROWS if not row.asked_for)
"""vLLM's runners: what a plugin is judged on by default, and what ``all`` means."""


def in_words(hosts: Iterable[str]) -> str:
    """Return names of hosts as a sentence lists them; empty if there are none."""
    words = ["the export host" if host == EXPORT else host.upper() for host in hosts]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def hosts_of(interfaces: Iterable[str], wanted: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return the hosts that drive a class with these interfaces.

    Args:
        interfaces: as :func:`lpkit.loading.interfaces_of` names them.
        wanted: names of hosts; None: the hosts that need not be asked for.
    """
    implemented, names = frozenset(interfaces), RUNNER_HOSTS if wanted is None else tuple(wanted)
    return tuple(row.name for row in _ROWS if row.interface in implemented and row.name in names)
