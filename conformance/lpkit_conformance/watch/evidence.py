"""The last steps before a violation as a trace of format ``lpkit.trace/1``, which ``lpkit check --trace`` plays again.

No token of a user is in it: a replay plays its own prompts and tokens, so ids are made up; lengths, rows, slots and
updates are the server's. The first step of a trace stands for all that came before the steps that were kept.
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
    Move,
    Placement,
    Trace,
    TraceRequest,
    Update,
    V1Step,
    V2Step,
    validate,
)
from lpkit_conformance.vllm_api.runners import V1, V2
from lpkit_conformance.watch import batch_v1, batch_v2
from lpkit_conformance.watch.requests import Request, arguments

WORKLOAD = "watch"


@dataclass(frozen=True)
class Server:
    """Where violations are found: what a trace's header says of it. ``settings``: those of its engine."""

    version: str
    runner_class: str
    settings: Mapping[str, Any]


class _Names:
    """Names for requests, in the order in which a trace tells of them, and made-up tokens."""

    def __init__(self, vocab_size: int) -> None:
        self._known: dict[int, tuple[str, Request]] = {}
        self._vocab_size = vocab_size

    def of(self, request: Request) -> str:
        if id(request) not in self._known:
            self._known[id(request)] = (f"r{len(self._known)}", request)
        return self._known[id(request)][0]

    @property
    def requests(self) -> list[tuple[str, Request]]:
        return list(self._known.values())

    def token(self, name: str, position: int) -> int:
        return (31 * int(name[1:]) + 7 * position) % self._vocab_size

    def tokens(self, name: str, start: int, end: int) -> tuple[int, ...]:
        return tuple(self.token(name, position) for position in range(start, end))


def snapshot(batch: batch_v1.V1Batch | batch_v2.V2Batch) -> Any:
    """What a batch holds now, for a trace that is made later, in another thread."""
    if isinstance(batch, batch_v1.V1Batch):
        steps = list(batch.steps)
        return [*steps[:-1], replace(steps[-1], after=None)] if steps else []
    return [replace(step, calls=list(step.calls)) for step in batch.steps], dict(batch.base)


def to_trace(
    kept: Any, culprit: Request | None, users: Any, server: Server, found: Mapping[str, Any], values: bool
) -> Trace:
    """The trace of what :func:`snapshot` kept, whose last step is the one of the violation.

    Args:
        kept: of a batch.
        culprit: the request whose row is wrong; None: the whole step is.
        users: request -> whether it uses the processor.
        server: where it was found.
        found: what was found, for the header.
        values: whether arguments keep their values.

    Raises:
        TraceError: the steps cannot be told in this format, as with rows of drafts.
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
        **found,
        "request": names.of(culprit) if culprit is not None and culprit in [r for _, r in names.requests] else None,
        "step": len(v1 or v2) - 1,
        "values": values,
        "uses": {name: bool(users(request)) for name, request in names.requests},
        "arguments": {name: arguments(request.params, values) for name, request in names.requests},
    }
    trace = Trace(
        runner=V1 if v1 else V2,
        workload=WORKLOAD,
        engine=EngineInfo("vllm", server.version, "engine", server.runner_class),
        settings={**server.settings, "watch": watch},
        token_ids="remapped",
        requests={
            name: TraceRequest(name, prompts[name], names.tokens(name, 0, prompts[name])) for name, _ in names.requests
        },
        v1_steps=v1,
        v2_steps=v2,
    )
    validate(trace)
    return trace


def _v1(steps: Sequence[batch_v1.Step], names: _Names) -> tuple[tuple[V1Step, ...], dict[str, int]]:
    if not steps:
        raise TraceError("no step was kept")
    told: list[V1Step] = []
    have: dict[str, int] = {}
    prompts: dict[str, int] = {}

    def enter(row: int, request: Request, outputs: int) -> Added:
        name = names.of(request)
        # What a request resumes with is told as prompt: its earlier steps may be out of sight.
        prompts[name] = request.prompt_len + outputs
        have[name] = 0
        return Added(row, name, 0)

    def commit(step: V1Step, request: Request, count: int) -> tuple[int, ...]:
        name = names.of(request)
        start = prompts[name] + have[name]
        have[name] += count
        return names.tokens(name, start, start + count)

    def unknown(step: batch_v1.Step) -> dict[str, int]:
        # Those that it came with are told as prompt.
        own = {names.of(r): min(count, have[names.of(r)]) for r, count in step.unknown.items()}
        return {name: count for name, count in own.items() if count}

    first = steps[0]
    added = tuple(enter(row, request, 0) for row, request in enumerate(first.rows))
    told.append(V1Step(0, Update(len(added), (), added, ()), tuple(map(names.of, first.rows)), any(first.before)))
    if any(first.before):
        start = dict(zip(first.rows, first.before, strict=True))
        told[0] = replace(
            told[0],
            tokens={names.of(r): commit(told[0], r, count) for r, count in start.items() if count},
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
                tuple(Move(source, target, "<->" if swap else "->") for source, target, swap in step.moved),
            )
        line = V1Step(len(told), update, tuple(map(names.of, step.rows)), step.applied, placeholders=unknown(step))
        if step.applied:
            # The tokens of the last step are not there yet: every row gets one.
            after = [count + 1 for count in step.before] if step.after is None else step.after
            made = {r: now - then for r, then, now in zip(step.rows, step.before, after, strict=True)}
            line = replace(
                line,
                tokens={names.of(r): commit(line, r, count) for r, count in made.items() if count > 0},
                discarded=frozenset(names.of(r) for r, count in made.items() if count <= 0),
            )
        told.append(line)
    return tuple(told), prompts


def _v2(
    steps: Sequence[batch_v2.Step], base: Mapping[int, Request], names: _Names
) -> tuple[tuple[V2Step, ...], dict[str, int]]:
    seen: dict[Request, list[int]] = {}  # the visible lengths of each request's rows, in order
    for step in steps:
        for call in step.calls:
            if call is None:
                raise TraceError("rows of drafts: how many a request has is known to the device alone")
    # Requests of the base that no call shows are gone, or were never seen.
    slots = dict(base)
    calls: list[list[tuple[list[Request], list[int]]]] = []
    for step in steps:
        slots.update(step.added)
        calls.append([])
        for call in step.calls:
            assert call is not None
            owners = [slots[slot] for slot in call[0].tolist()]
            bounds = call[1].tolist()
            calls[-1].append((owners, bounds))
            for request, bound in zip(owners, bounds, strict=True):
                seen.setdefault(request, []).append(bound)
    # A request enters with what its first whole row shows: earlier tokens, where `apply` was skipped, count as prompt.
    prompts: dict[Request, int] = {}
    for request, bounds in seen.items():
        whole = [bound for bound in bounds if bound >= request.prompt_len]
        prompts[request] = whole[0] if len(whole) == len(bounds) else request.prompt_len
    told: list[V2Step] = []
    place: dict[int, Request] = {}
    entered: dict[Request, int] = {slot_request: slot for slot, slot_request in base.items()}
    for number, step in enumerate(steps):
        entering = [(slot, request) for request, slot in entered.items() if request in seen] if number == 0 else []
        entering += [(slot, request) for slot, request in step.added if request in seen]
        freed = [names.of(place.pop(slot)) for slot, _ in entering if slot in place]
        added = []
        for slot, request in entering:
            if slot in place:
                raise TraceError("a slot was taken twice in one step")
            place[slot] = request
            added.append(Placement(names.of(request), slot, prompts[request], prompts[request]))
        applies, tokens = [], {}
        for owners, bounds in calls[number]:
            applies.append(_call(owners, bounds, prompts, names))
            for request, bound in zip(owners, bounds, strict=True):
                seen[request].pop(0)
                if bound >= prompts[request]:
                    after = seen[request][0] if seen[request] else bound + 1
                    tokens[names.of(request)] = names.tokens(names.of(request), bound, after)
        told.append(V2Step(number, tuple(freed), tuple(added), True, tuple(applies), tokens))
    return tuple(told), {names.of(request): length for request, length in prompts.items()}


def _call(owners: list[Request], bounds: list[int], prompts: Mapping[Request, int], names: _Names) -> Apply:
    rows = tuple(map(names.of, owners))
    return Apply(
        rows=rows,
        pos=tuple(bound - 1 for bound in bounds),
        local=(0,) * len(rows),
        inputs=tuple(names.token(name, bound - 1) for name, bound in zip(rows, bounds, strict=True)),
        bounds=tuple(bounds),
        discarded=frozenset(names.of(r) for r, bound in zip(owners, bounds, strict=True) if bound < prompts[r]),
    )
