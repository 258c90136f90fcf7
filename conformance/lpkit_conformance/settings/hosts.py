"""The hosts that a plugin can be judged on: a row each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lpkit_conformance.vllm_api.runners import V1, V2, Runner


@dataclass(frozen=True)
class HostRow:
    """One way of driving a plugin; the module of this name in ``hosts`` is how.

    Attributes:
        name: what users write, in settings and on the command line.
        interface: which of vLLM's interfaces it drives, as :func:`lpkit.loading.interfaces_of` names it.
        base: full name of vLLM's base class for that interface.
        position: what a request's position in the batch is called.
        told_by: the method that gets new requests; blamed when a request gets another's state.
    """

    name: str
    interface: Runner
    base: str
    position: str
    told_by: str


_ROWS = (
    HostRow(V1, V1, "vllm.v1.sample.logits_processor.LogitsProcessor", "row", "update_state"),
    HostRow(V2, V2, "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor", "slot", "add_request"),
)

HOSTS = {row.name: row for row in _ROWS}


def hosts_of(interfaces: Iterable[str]) -> tuple[str, ...]:
    """The hosts that drive a class with these interfaces."""
    found = frozenset(interfaces)
    return tuple(row.name for row in _ROWS if row.interface in found)
