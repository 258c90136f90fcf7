"""Schema of a recorded trace: one frozen dataclass per kind of record (format: ``docs/explanation/traces.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lpkit_conformance.vllm_api.runners import V1, Runner

SCHEMA = "lpkit.trace/1"

MoveKind = Literal["->", "<->"]

OPTIONAL: dict[str, Any] = {"optional": True}
"""Metadata of a field that a file may leave out."""

AT_LEAST_1: dict[str, Any] = {"least": 1}
"""Metadata of a field whose numbers are not 0."""


@dataclass(frozen=True)
class TraceRequest:
    """A request by its id in the trace. ``prompt``: its ``prompt_len`` token ids, None for embedded prompts."""

    request_id: str
    prompt_len: int = field(metadata=AT_LEAST_1)
    prompt: tuple[int, ...] | None


@dataclass(frozen=True)
class EngineInfo:
    """Origin of the trace. ``driver``: "engine", or "input_batch" when only vLLM's batch was driven."""

    name: str
    version: str
    driver: Literal["engine", "input_batch"]
    runner_class: str


@dataclass(frozen=True)
class Added:
    """V1: ``request`` enters at ``row`` with an output list of ``outputs`` tokens (not 0 on a resume).

    ``fresh``: the list is a new object, not the request's earlier list.
    """

    row: int
    request: str
    outputs: int
    fresh: bool = field(default=False, metadata=OPTIONAL)


class Move(NamedTuple):
    """V1: rows that move; a JSON array."""

    source: int
    target: int
    kind: MoveKind

    @classmethod
    def of(cls, moved: tuple[int, int, Any]) -> Move:
        """Return an entry of a ``BatchUpdate``'s ``moved``."""
        source, target, direction = moved
        return cls(int(source), int(target), "<->" if direction.name == "SWAP" else "->")


@dataclass(frozen=True)
class Update:
    """V1: one ``BatchUpdate``, every list in the order the engine sent it."""

    batch_size: int
    removed: tuple[int, ...]
    added: tuple[Added, ...]
    moved: tuple[Move, ...]


@dataclass(frozen=True)
class V1Step:
    """One call of ``update_state`` and, where ``applied``, the ``apply`` that followed it.

    ``rows``: requests by row, after the update. ``discarded``: rows whose sampled token the engine discards.
    ``tokens``: tokens that the step committed, by request. ``lists``: lengths of output lists that the engine cut
    before the update. ``placeholders``: by request, the number of its last outputs that were -1 during the update. The
    engine fills in those tokens before ``apply``.
    """

    step: int
    update: Update | None
    rows: tuple[str, ...]
    applied: bool
    discarded: frozenset[str] = frozenset()
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lists: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL)
    placeholders: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL | AT_LEAST_1)


@dataclass(frozen=True)
class Placement:
    """V2: ``request`` enters ``slot``; ``prefill_len`` is the prompt plus the outputs it resumes with."""

    request: str
    slot: int
    prompt_len: int = field(metadata=AT_LEAST_1)
    prefill_len: int = field(metadata=AT_LEAST_1)


@dataclass(frozen=True)
class Apply:
    """V2: one call of ``apply``. ``bounds`` has one entry per request, all other fields have one per row.

    ``rows``: the request that owns each row. ``pos``, ``local``, ``inputs``, ``bounds``: the context's ``pos``,
    ``expanded_local_pos``, ``input_ids`` and ``seq_lens_upper_bound_np``.
    """

    rows: tuple[str, ...]
    pos: tuple[int, ...]
    local: tuple[int, ...]
    inputs: tuple[int, ...] = field(metadata={"least": -1})
    bounds: tuple[int, ...]
    discarded: frozenset[str] = frozenset()

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests of this call in batch order (the context's ``idx_mapping``)."""
        return tuple(dict.fromkeys(self.rows))


@dataclass(frozen=True)
class V2Step:
    """One step: slots freed, requests placed, ``apply_staged_writes`` where ``flush``, then the ``apply`` calls."""

    step: int
    freed: tuple[str, ...]
    added: tuple[Placement, ...]
    flush: bool
    applies: tuple[Apply, ...]
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """A recorded run. ``steps`` holds ``V1Step`` or ``V2Step`` objects, according to ``runner``."""

    runner: Runner
    workload: str
    engine: EngineInfo
    settings: Mapping[str, Any]
    token_ids: Literal["remapped", "verbatim"]
    requests: Mapping[str, TraceRequest]
    v1_steps: tuple[V1Step, ...] = ()
    v2_steps: tuple[V2Step, ...] = ()
    path: str | None = None

    @property
    def name(self) -> str:
        return f"{self.runner}_{self.workload}"

    @property
    def steps(self) -> tuple[V1Step | V2Step, ...]:
        return self.v1_steps if self.runner == V1 else self.v2_steps

    @property
    def output_lens(self) -> dict[str, int]:
        """Tokens that each request generated."""
        made = dict.fromkeys(self.requests, 0)
        for step in self.steps:
            for request, tokens in step.tokens.items():
                made[request] += len(tokens)
        return made

    @property
    def max_num_seqs(self) -> int:
        return int(self.settings["max_num_seqs"])

    @property
    def max_model_len(self) -> int:
        return int(self.settings["max_model_len"])

    @property
    def vocab_size(self) -> int:
        return int(self.settings["vocab_size"])
