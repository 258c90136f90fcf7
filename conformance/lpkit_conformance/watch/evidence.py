"""Turns the last steps before a violation into a trace (``lpkit.trace/1``), which ``lpkit check --trace`` replays.

A trace holds no token of a user: its token ids are made up. Lengths, rows, slots and updates are the server's. On V1,
the first step stands for all steps before the kept ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces import (
    Added,
    Apply,
    EngineInfo,
    Placement,
    Trace,
    TraceRequest,
    Update,
    V1Step,
    V2Step,
    validate,
)
from lpkit_conformance.vllm_api.runners import V1, V2
from lpkit_conformance.watch.batches import KeptV1Step, KeptV2Step, ServedRequest, V1Follower, V2Follower

WORKLOAD = "watch"


@dataclass(frozen=True)
class ServerFacts:
    """The server, for a trace's header. ``settings``: those that decide how its engine calls processors."""

    version: str
    runner_class: str
    settings: Mapping[str, Any]


class _Names:
    """Names for requests, in their order in the trace, and made-up tokens."""

    def __init__(self, vocab_size: int) -> None:
        self.by_request: dict[ServedRequest, str] = {}
        self._vocab_size = vocab_size

    def of(self, request: ServedRequest) -> str:
        return self.by_request.setdefault(request, f"r{len(self.by_request)}")

    def token(self, name: str, position: int) -> int:
        return (31 * int(name[1:]) + 7 * position) % self._vocab_size

    def tokens(self, name: str, start: int, end: int) -> tuple[int, ...]:
        return tuple(self.token(name, position) for position in range(start, end))


def snapshot(batch: V1Follower | V2Follower) -> Any:
    """Return what a batch holds now, for a trace that another thread makes later."""
    if isinstance(batch, V1Follower):
        steps = list(batch.steps)
        return [*steps[:-1], replace(steps[-1], after=None)] if steps else []
    return [replace(step, calls=list(step.calls)) for step in batch.steps], dict(batch.base)


def to_trace(
    kept: Any,
    culprit: ServedRequest | None,
    users: Any,
    server: ServerFacts,
    violation: Mapping[str, Any],
    values: bool,
) -> Trace:
    """Return the trace of a :func:`snapshot`, whose last step is the step of the violation.

    Args:
        culprit: the request whose row is wrong; None if the whole step is.
        users: request -> True if it uses the processor.
        violation: the processor, the kind, what was expected and what it gave, for the header.
        values: write the values of arguments.

    Raises:
        TraceError: the format cannot express the steps, for example rows of drafts.
    """
    names = _Names(server.settings["vocab_size"])
    v1: tuple[V1Step, ...] = ()
    v2: tuple[V2Step, ...] = ()
    if isinstance(kept, list):
        v1, prompts = _v1(kept, names)
    else:
        steps, base = kept
        v2, prompts = _v2(steps, base, names)
    watch = {
        **violation,
        "request": None if culprit is None else names.by_request.get(culprit),
        "step": len(v1 or v2) - 1,
        "values": values,
        "uses": {name: bool(users(request)) for request, name in names.by_request.items()},
        "arguments": {name: request.arguments(values) for request, name in names.by_request.items()},
    }
    trace = Trace(
        runner=V1 if v1 else V2,
        workload=WORKLOAD,
        engine=EngineInfo("vllm", server.version, "engine", server.runner_class),
        settings={**server.settings, "watch": watch},
        token_ids="remapped",
        requests={
            name: TraceRequest(name, prompts[name], names.tokens(name, 0, prompts[name]))
            for name in names.by_request.values()
        },
        v1_steps=v1,
        v2_steps=v2,
    )
    validate(trace)
    return trace


def _v1(steps: Sequence[KeptV1Step], names: _Names) -> tuple[tuple[V1Step, ...], dict[str, int]]:
    if not steps:
        raise TraceError("no step was kept")
    traced: list[V1Step] = []
    have: dict[str, int] = {}
    prompts: dict[str, int] = {}

    def enter(row: int, request: ServedRequest, outputs: int) -> Added:
        name = names.of(request)
        # The outputs that a request resumes with count as prompt: its earlier steps may not be kept.
        prompts[name] = request.prompt_len + outputs
        have[name] = 0
        return Added(row, name, 0)

    def commit(request: ServedRequest, count: int) -> tuple[int, ...]:
        name = names.of(request)
        start = prompts[name] + have[name]
        have[name] += count
        return names.tokens(name, start, start + count)

    def unknown(step: KeptV1Step) -> dict[str, int]:
        # Outputs that a request came with count as prompt.
        counts = {names.of(r): min(count, have[names.of(r)]) for r, count in step.unknown.items()}
        return {name: count for name, count in counts.items() if count}

    first = steps[0]
    added = tuple(enter(row, request, 0) for row, request in enumerate(first.rows))
    traced.append(V1Step(0, Update(len(added), (), added, ()), tuple(map(names.of, first.rows)), any(first.before)))
    if any(first.before):
        start = dict(zip(first.rows, first.before, strict=True))
        traced[0] = replace(
            traced[0],
            tokens={names.of(r): commit(r, count) for r, count in start.items() if count},
            discarded=frozenset(names.of(r) for r, count in start.items() if not count),
        )
    for number, step in enumerate(steps):
        update = None
        if step.updated and number:
            lengths = dict(zip(step.rows, step.before, strict=True))
            update = Update(
                len(step.rows),
                step.removed,
                tuple(enter(row, request, lengths.get(request, 0)) for row, request in step.added),
                step.moved,
            )
        line = V1Step(len(traced), update, tuple(map(names.of, step.rows)), step.applied, placeholders=unknown(step))
        if step.applied:
            # The tokens of the last step do not exist yet: assume one per row.
            after = [count + 1 for count in step.before] if step.after is None else step.after
            made = {r: now - then for r, then, now in zip(step.rows, step.before, after, strict=True)}
            line = replace(
                line,
                tokens={names.of(r): commit(r, count) for r, count in made.items() if count > 0},
                discarded=frozenset(names.of(r) for r, count in made.items() if count <= 0),
            )
        traced.append(line)
    return tuple(traced), prompts


def _v2(
    steps: Sequence[KeptV2Step], base: Mapping[int, ServedRequest], names: _Names
) -> tuple[tuple[V2Step, ...], dict[str, int]]:
    lengths: dict[ServedRequest, list[int]] = {}  # the visible lengths of each request's rows, in order
    for step in steps:
        for call in step.calls:
            if call is None:
                raise TraceError("with rows of drafts, only the device knows how many rows a request has")
    # Requests of the base that are in no call have left.
    slots = dict(base)
    calls: list[list[tuple[list[ServedRequest], list[int]]]] = []
    for step in steps:
        slots.update(step.added)
        calls.append([])
        for call in step.calls:
            assert call is not None
            owners = [slots[slot] for slot in call[0].tolist()]
            bounds = call[1].tolist()
            calls[-1].append((owners, bounds))
            for request, bound in zip(owners, bounds, strict=True):
                lengths.setdefault(request, []).append(bound)
    # A request enters with the length at its first complete row: tokens of steps without `apply` count as prompt.
    prompts: dict[ServedRequest, int] = {}
    for request, bounds in lengths.items():
        whole = [bound for bound in bounds if bound >= request.prompt_len]
        prompts[request] = whole[0] if len(whole) == len(bounds) else request.prompt_len
    traced: list[V2Step] = []
    owner: dict[int, ServedRequest] = {}
    entered = {request: slot for slot, request in base.items()}
    for number, step in enumerate(steps):
        entering = [(slot, request) for request, slot in entered.items() if request in lengths] if number == 0 else []
        entering += [(slot, request) for slot, request in step.added if request in lengths]
        freed = [names.of(owner.pop(slot)) for slot, _ in entering if slot in owner]
        added = []
        for slot, request in entering:
            if slot in owner:
                raise TraceError("a slot was taken twice in one step")
            owner[slot] = request
            added.append(Placement(names.of(request), slot, prompts[request], prompts[request]))
        applies, tokens = [], {}
        for owners, bounds in calls[number]:
            applies.append(_call(owners, bounds, prompts, names))
            for request, bound in zip(owners, bounds, strict=True):
                lengths[request].pop(0)
                if bound >= prompts[request]:
                    after = lengths[request][0] if lengths[request] else bound + 1
                    tokens[names.of(request)] = names.tokens(names.of(request), bound, after)
        traced.append(V2Step(number, tuple(freed), tuple(added), True, tuple(applies), tokens))
    return tuple(traced), {names.of(request): length for request, length in prompts.items()}


def _call(owners: list[ServedRequest], bounds: list[int], prompts: Mapping[ServedRequest, int], names: _Names) -> Apply:
    rows = tuple(map(names.of, owners))
    return Apply(
        rows=rows,
        pos=tuple(bound - 1 for bound in bounds),
        local=(0,) * len(rows),
        inputs=tuple(names.token(name, bound - 1) for name, bound in zip(rows, bounds, strict=True)),
        bounds=tuple(bounds),
        discarded=frozenset(names.of(r) for r, bound in zip(owners, bounds, strict=True) if bound < prompts[r]),
    )
