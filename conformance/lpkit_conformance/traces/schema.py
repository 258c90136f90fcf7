"""Schema of a recorded trace: one frozen dataclass per kind of record (format: ``docs/explanation/traces.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field

from lpkit_conformance.vllm_api.runners import V1, Runner

SCHEMA = "lpkit.trace/1"

MoveKind = Literal["->", "<->"]

Name = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class _Record:
    """A record with a default for a field: a file may leave the field out."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class TraceRequest(_Record):
    """A request. ``prompt``: its ``prompt_len`` token ids, None for embedded prompts."""

    prompt_len: Positive
    prompt: tuple[Whole, ...] | None


@dataclass(frozen=True)
class EngineInfo(_Record):
    """Origin of the trace. ``driver``: "engine", or "input_batch" when only vLLM's batch was driven."""

    name: Name
    version: Name
    driver: Literal["engine", "input_batch"]
    runner_class: Name


@dataclass(frozen=True)
class Added(_Record):
    """V1: ``request`` enters at ``row`` with an output list of ``outputs`` tokens (not 0 on a resume).

    ``fresh``: the list is a new object, not the request's earlier list.
    """

    row: Whole
    request: Name
    outputs: Whole
    fresh: bool = False


class Move(NamedTuple):
    """V1: rows that move; a JSON array."""

    source: Whole
    target: Whole
    kind: MoveKind

    @classmethod
    def of(cls, moved: tuple[int, int, Any]) -> Move:
        """Return an entry of a ``BatchUpdate``'s ``moved``."""
        source, target, direction = moved
        return cls(int(source), int(target), "<->" if direction.name == "SWAP" else "->")


@dataclass(frozen=True)
class Update(_Record):
    """V1: one ``BatchUpdate``, every list in the order the engine sent it."""

    batch_size: Whole
    removed: tuple[Whole, ...]
    added: tuple[Added, ...]
    moved: tuple[Move, ...]


@dataclass(frozen=True)
class V1Step(_Record):
    """One call of ``update_state`` and, where ``applied``, the ``apply`` that followed it.

    ``rows``: requests by row, after the update. ``discarded``: rows whose sampled token the engine discards.
    ``tokens``: tokens that the step committed, by request. ``lists``: lengths of output lists that the engine cut
    before the update. ``placeholders``: by request, the number of its last outputs that were -1 during the update. The
    engine fills in those tokens before ``apply``.
    """

    step: Whole
    update: Update | None
    rows: tuple[Name, ...]
    applied: bool
    discarded: frozenset[Name] = frozenset()
    tokens: Mapping[Name, tuple[Whole, ...]] = field(default_factory=dict)
    lists: Mapping[Name, Whole] = field(default_factory=dict)
    placeholders: Mapping[Name, Positive] = field(default_factory=dict)


@dataclass(frozen=True)
class Placement(_Record):
    """V2: ``request`` enters ``slot``; ``prefill_len`` is the prompt plus the outputs it resumes with."""

    request: Name
    slot: Whole
    prompt_len: Positive
    prefill_len: Positive


@dataclass(frozen=True)
class Apply(_Record):
    """V2: one call of ``apply``. ``bounds`` has one entry per request, all other fields have one per row.

    ``rows``: the request that owns each row. ``pos``, ``local``, ``inputs``, ``bounds``: the context's ``pos``,
    ``expanded_local_pos``, ``input_ids`` and ``seq_lens_upper_bound_np``.
    """

    rows: tuple[Name, ...]
    pos: tuple[Whole, ...]
    local: tuple[Whole, ...]
    inputs: tuple[Annotated[int, Field(ge=-1)], ...]
    bounds: tuple[Whole, ...]
    discarded: frozenset[Name] = frozenset()

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests of this call in batch order (the context's ``idx_mapping``)."""
        return tuple(dict.fromkeys(self.rows))


@dataclass(frozen=True)
class V2Step(_Record):
    """One step: slots freed, requests placed, ``apply_staged_writes`` where ``flush``, then the ``apply`` calls."""

    step: Whole
    freed: tuple[Name, ...]
    added: tuple[Placement, ...]
    flush: bool
    applies: tuple[Apply, ...]
    tokens: Mapping[Name, tuple[Whole, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Header(_Record):
    """Fields of a trace's first line. ``requests``: by id in the trace."""

    runner: Runner
    workload: Name
    engine: EngineInfo
    settings: Mapping[str, Any]
    token_ids: Literal["remapped", "verbatim"]
    requests: Mapping[Name, TraceRequest]


@dataclass(frozen=True)
class Trace(Header):
    """A recorded run. ``steps`` holds ``V1Step`` or ``V2Step`` objects, according to ``runner``."""

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
