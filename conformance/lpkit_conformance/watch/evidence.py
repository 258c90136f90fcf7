"""Turns the last steps before a violation into a trace (``lpkit.trace/1``), which ``lpkit check --trace`` replays.

A trace holds no token of a user: its token ids are made up. Lengths, rows, slots and updates are the server's. The
first steps stand for all steps before the kept ones: they give requests the outputs that they had by then, and requests
that resume later the outputs that they resume with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        v1, prompts = _v1(kept, names, server.settings["max_num_seqs"])
    else:
        steps, base = kept
        v2, prompts = _v2(steps, base, names, server.settings["max_num_seqs"])
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
            name: TraceRequest(prompts[name], names.tokens(name, 0, prompts[name]))
            for name in names.by_request.values()
        },
        v1_steps=v1,
        v2_steps=v2,
    )
    validate(trace)
    return trace


def _v1(steps: Sequence[KeptV1Step], names: _Names, max_num_seqs: int) -> tuple[tuple[V1Step, ...], dict[str, int]]:
    if not steps:
        raise TraceError("no step was kept")
    traced: list[V1Step] = []
    have: dict[str, int] = {}
    prompts: dict[str, int] = {}

    def enter(row: int, request: ServedRequest) -> Added:
        name = names.of(request)
        prompts[name] = request.prompt_len
        return Added(row, name, have.setdefault(name, 0))

    def commit(made: Mapping[ServedRequest, int]) -> dict[str, tuple[int, ...]]:
        tokens = {}
        for request, count in made.items():
            name = names.of(request)
            if count > 0:
                start = prompts[name] + have[name]
                have[name] += count
                tokens[name] = names.tokens(name, start, start + count)
        return tokens

    def serve(made: Mapping[ServedRequest, int], before: int) -> None:
        """Add a step whose requests replace the previous ``before`` rows, and which commits these tokens."""
        added = tuple(enter(row, request) for row, request in enumerate(made))
        update = Update(len(added), tuple(range(before - 1, len(added) - 1, -1)), added, ())
        rows, tokens = tuple(map(names.of, made)), commit(made)
        discarded = frozenset(rows) - set(tokens) if tokens else frozenset()
        traced.append(V1Step(len(traced), update, rows, bool(tokens), discarded, tokens))

    first = steps[0]
    resumed = {request: request.had for step in steps[1:] for _, request in step.added if request.had}
    rows = 0
    for group in _groups(list(resumed), max_num_seqs):
        serve({request: resumed[request] for request in group}, rows)
        rows = len(group)
    serve(dict(zip(first.rows, first.before, strict=True)), rows)
    for number, step in enumerate(steps):
        update = None
        if step.updated and number:
            added = tuple(enter(row, request) for row, request in step.added)
            update = Update(len(step.rows), step.removed, added, step.moved)
        unknown = {names.of(request): count for request, count in step.unknown.items()}
        line = V1Step(len(traced), update, tuple(map(names.of, step.rows)), step.applied, placeholders=unknown)
        if step.applied:
            # The tokens of the last step do not exist yet: assume one per row.
            after = [count + 1 for count in step.before] if step.after is None else step.after
            tokens = commit({r: now - then for r, then, now in zip(step.rows, step.before, after, strict=True)})
            line = replace(line, tokens=tokens, discarded=frozenset(line.rows) - set(tokens))
        traced.append(line)
    return tuple(traced), prompts


def _groups(requests: list[ServedRequest], size: int) -> Iterator[list[ServedRequest]]:
    """Yield the requests in groups that fit into a batch."""
    yield from (requests[start : start + size] for start in range(0, len(requests), size))


def _v2(
    steps: Sequence[KeptV2Step], base: Mapping[int, ServedRequest], names: _Names, max_num_seqs: int
) -> tuple[tuple[V2Step, ...], dict[str, int]]:
    lengths: dict[ServedRequest, list[int]] = {}  # the visible lengths of each request's rows, in order
    # Requests of the base that are in no call have left.
    slots = dict(base)
    calls: list[list[tuple[list[ServedRequest], list[int]]]] = []
    for step in steps:
        slots.update(step.added)
        calls.append([])
        for call in step.calls:
            if call is None:
                raise TraceError("with rows of drafts, only the device knows how many rows a request has")
            owners = [slots[slot] for slot in call[0].tolist()]
            bounds = call[1].tolist()
            calls[-1].append((owners, bounds))
            for request, bound in zip(owners, bounds, strict=True):
                lengths.setdefault(request, []).append(bound)
    before = {request: slot for slot, request in base.items() if request in lengths}
    prompts: dict[ServedRequest, int] = {}
    earlier: dict[ServedRequest, int] = {}  # outputs from before a request's first row
    for request, bounds in lengths.items():
        prompts[request], earlier[request] = request.prompt_len, request.had
        if bounds[0] > request.entered:
            # Tokens of steps without `apply` count as prompt if the request has come with a prompt only.
            if request.had or request in before:
                earlier[request] = bounds[0] - request.prompt_len
            else:
                prompts[request] = bounds[0]
    prefills = {request: prompts[request] + earlier[request] for request in lengths}
    staying = {request: slot for request, slot in before.items() if lengths[request][0] > request.entered}
    traced: list[V2Step] = []
    owner: dict[int, ServedRequest] = {}

    def place(entering: Mapping[ServedRequest, int], prefills: Mapping[ServedRequest, int]) -> tuple[Any, Any]:
        freed = tuple(names.of(owner.pop(slot)) for slot in entering.values() if slot in owner)
        added = tuple(Placement(names.of(r), slot, prompts[r], prefills[r]) for r, slot in entering.items())
        owner.update((slot, request) for request, slot in entering.items())
        return freed, added

    def serve(entering: Mapping[ServedRequest, int]) -> None:
        """Add a step in which requests enter with their prompts and commit their earlier outputs."""
        freed, added = place(entering, prompts)
        requests = list(entering)
        call = _call(requests, [prompts[request] for request in requests], prompts, names)
        tokens = {names.of(r): names.tokens(names.of(r), prompts[r], prefills[r]) for r in requests}
        traced.append(V2Step(len(traced), freed, added, True, (call,), tokens))

    for group in _groups([r for r in lengths if earlier[r] and r not in staying], max_num_seqs):
        serve({request: slot for slot, request in enumerate(group)})
    left = tuple(names.of(request) for request in owner.values())
    owner.clear()
    if staying:
        serve(staying)
        traced[-1] = replace(traced[-1], freed=left)
        left = ()
    for number, step in enumerate(steps):
        entering = [] if number else [(slot, r) for r, slot in before.items() if r not in staying]
        entering += [(slot, request) for slot, request in step.added if request in lengths]
        if len({slot for slot, _ in entering}) < len(entering):
            raise TraceError("a slot was taken twice in one step")
        freed, added = place({request: slot for slot, request in entering}, prefills)
        applies, tokens = [], {}
        for owners, bounds in calls[number]:
            applies.append(_call(owners, bounds, prefills, names))
            for request, bound in zip(owners, bounds, strict=True):
                lengths[request].pop(0)
                if bound >= prefills[request]:
                    after = lengths[request][0] if lengths[request] else bound + 1
                    tokens[names.of(request)] = names.tokens(names.of(request), bound, after)
        traced.append(V2Step(len(traced), left + freed, added, True, tuple(applies), tokens))
        left = ()
    return tuple(traced), {names.of(request): length for request, length in prompts.items()}


def _call(
    owners: list[ServedRequest], bounds: list[int], prefills: Mapping[ServedRequest, int], names: _Names
) -> Apply:
    rows = tuple(map(names.of, owners))
    return Apply(
        rows=rows,
        pos=tuple(bound - 1 for bound in bounds),
        local=(0,) * len(rows),
        inputs=tuple(names.token(name, bound - 1) for name, bound in zip(rows, bounds, strict=True)),
        bounds=tuple(bounds),
        discarded=frozenset(names.of(r) for r, bound in zip(owners, bounds, strict=True) if bound < prefills[r]),
    )
