"""Runs programs on a subject and turns the first departure from the oracle into a finding."""

from __future__ import annotations

import contextlib
import inspect
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lpkit_conformance.hosts import Observation, PluginError, V1Host, V2Host
from lpkit_conformance.hosts.plugin_under_test import Subject
from lpkit_conformance.hosts.v2 import Manner
from lpkit_conformance.instruments.author_lines import is_authors
from lpkit_conformance.oracle.picture import draw, film
from lpkit_conformance.oracle.solo import Mismatch, Replay, compare
from lpkit_conformance.programs.as_json import program_to_json
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Program, Step, Swap
from lpkit_conformance.results import Failed, Finding, Skipped

SHRINK_SECONDS = 4.0

Host = V1Host | V2Host
MakeHost = Callable[[Subject, int], Host]

CAUSES = {
    "lost": (
        "the plugin left the row of a request that uses it alone: its state was dropped, or stayed at the row the "
        "request had before"
    ),
    "stale": "the plugin edited a row whose request does not ask for it: an earlier occupant's state is still there",
    "out of step": (
        "the plugin edited the row of a request that uses it where it would leave that request alone: its state is "
        "ahead of the tokens or behind them, or is another request's"
    ),
    "stray": (
        "the plugin edited a row whose request does not ask for it, and which nobody else has had: it edits more rows "
        "than those of its own requests, or takes its arguments from a neighbour"
    ),
    "wrong": (
        "the plugin edited the row with other arguments or another history: state of another request, or state that "
        "counts calls instead of tokens"
    ),
}


def default_host(subject: Subject, max_num_seqs: int) -> Host:
    return V1Host(subject, max_num_seqs) if subject.host == "v1" else V2Host(subject, max_num_seqs)


def verify(
    subject: Subject, programs: Iterable[Program], fix: str = "", make_host: MakeHost = default_host
) -> str | None:
    """Hold every program against the replay of its requests.

    Raises:
        Failed: with the shrunk program, on the first row that differs or when the plugin raises.
        Skipped: if the plugin never changed a logit.
    """
    replay = replay_of(subject)
    acted = False
    rows = 0
    if subject.program is not None:
        programs = [subject.program]
    for program in programs:
        mismatch, lives_acted, judged = _run(subject, program, replay, make_host)
        acted |= lives_acted
        rows += judged
        if mismatch is not None:
            raise Failed(_finding(subject, program, mismatch, replay, make_host, fix))
    if not acted:
        raise Skipped("never active: the plugin changed no logit of any request")
    return f"{rows} rows"


def replay_of(subject: Subject) -> Replay:
    """The subject's replay, shared by all checks that use it."""
    if subject.replay is None:
        subject.replay = Replay(subject)
    found = subject.replay
    assert isinstance(found, Replay)
    return found


def _run(
    subject: Subject, program: Program, replay: Replay, make_host: MakeHost
) -> tuple[Mismatch | PluginError | None, bool, int]:
    seen: list[Observation] = []
    try:
        host = make_host(subject, program.max_num_seqs)
        seen.extend(host.run(program.ops))
        acted = replay.prepare(host.world.requests)
    except PluginError as error:
        return error, False, 0
    judged = 0
    for observation in seen:
        judged += sum(not row.discarded for row in observation.rows)
        mismatch = compare(observation, replay)
        if mismatch is not None:
            return mismatch, acted, judged
    return None, acted, judged


def _finding(
    subject: Subject,
    program: Program,
    mismatch: Mismatch | PluginError,
    replay: Replay,
    make_host: MakeHost,
    fix: str,
) -> Finding:
    def fails(ops: Sequence[Op]) -> Mismatch | PluginError | None:
        smaller = Program(program.name, tuple(ops), program.max_num_seqs)
        found = _run(subject, smaller, replay, make_host)[0]
        return found if type(found) is type(mismatch) else None

    ops, mismatch = shrink(single_steps(program.ops), mismatch, fails)
    ops = joined_steps(ops)
    small = Program(program.name, tuple(ops), program.max_num_seqs)
    operations = collapse(ops)
    if isinstance(mismatch, PluginError):
        finding = raised(mismatch, operations, fix)
        culprit = None
    else:
        finding = departure(subject, mismatch, {"program": program.name}, operations, fix)
        if mismatch.kind == "stale":
            finding = replace(finding, cause=CAUSES[_kind_of_stale(mismatch.request, ops)])
        culprit = (mismatch.step, mismatch.request)
    frames, plain = film(subject, ops, program.max_num_seqs, make_host)
    picture = draw(frames, plain, "row" if subject.host == "v1" else "slot", culprit)
    return replace(finding, picture=picture, scenario=scenario_of(subject, small, make_host))


def _kind_of_stale(request: str, ops: Iterable[Op]) -> str:
    """Why a row was edited that is left alone when its request is: what the operations allow."""
    ops = list(ops)
    if any(isinstance(op, Arrive) and op.request == request and op.variant is not None for op in ops):
        return "out of step"
    return "stale" if any(isinstance(op, Finish | Preempt | Swap) for op in ops) else "stray"


def single_steps(ops: Iterable[Op]) -> list[Op]:
    """``step x3`` as three steps, so that shrinking can drop some of them."""
    return [
        Step() if isinstance(op, Step) else op for op in ops for _ in range(op.count if isinstance(op, Step) else 1)
    ]


def joined_steps(ops: Iterable[Op]) -> list[Op]:
    """Neighbouring steps as one operation."""
    found: list[Op] = []
    for op in ops:
        if found and isinstance(op, Step) and isinstance(found[-1], Step):
            found[-1] = Step(found[-1].count + op.count)
        else:
            found.append(op)
    return found


def scenario_of(subject: Subject, program: Program, make_host: MakeHost) -> dict[str, Any]:
    """Everything that `lpkit replay` needs, but for target, check and host."""
    manner: Manner | None = None
    with contextlib.suppress(PluginError):
        manner = getattr(make_host(subject, program.max_num_seqs), "manner", None)
    return {
        **_settings(subject),
        "manner": {key: str(value) for key, value in asdict(manner).items()} if manner else {},
        "program": program_to_json(program),
    }


def scenario_of_trace(subject: Subject, trace: str, pattern: str) -> dict[str, Any]:
    """The same for a recorded trace."""
    return {**_settings(subject), "trace": trace, "pattern": pattern}


def _settings(subject: Subject) -> dict[str, Any]:
    return {
        "case": json.loads(subject.case.text),
        "seed": subject.seed,
        "vocab_size": subject.vocab_size,
        "max_num_seqs": subject.max_num_seqs,
    }


def trace_finding(subject: Subject, trace: str, pattern: str, mismatch: Mismatch, fix: str) -> Finding:
    """A finding for a row of a recorded trace."""
    finding = departure(subject, mismatch, {"trace": trace, "pattern": pattern}, (), fix)
    return replace(finding, scenario=scenario_of_trace(subject, trace, pattern))


def departure(
    subject: Subject, mismatch: Mismatch, source: dict[str, str], operations: tuple[str, ...], fix: str
) -> Finding:
    """A finding for a row that is not what its request gets alone."""
    method = "update_state" if subject.host == "v1" else "add_request"
    return Finding(
        summary=f"request {mismatch.request} got other logits in the batch than alone",
        where={
            "request": mismatch.request,
            "row": str(mismatch.row),
            "step": str(mismatch.step),
            "tokens so far": str(mismatch.position),
            "token id": str(mismatch.token),
            **source,
        },
        expected=f"{mismatch.expected:g}",
        got=f"{mismatch.got:g}",
        operations=operations,
        cause=CAUSES[mismatch.kind],
        fix=fix,
        place=method_place(subject.cls, method),
    )


def raised(error: PluginError, operations: tuple[str, ...] = (), fix: str = "") -> Finding:
    """A finding for a plugin that raised or returned nonsense."""
    return Finding(
        summary=f"{error.method} {error.summary}",
        where={"method": error.method},
        expected="the engine goes on: an exception here ends it for every request",
        got=error.summary,
        operations=operations,
        cause="an unexpected argument, a state that is missing, or a row that is gone",
        fix=fix or "check what the method assumes about rows and arguments",
        place=error.place,
    )


def method_place(cls: Any, name: str) -> str:
    """``file:line`` of a method, as far as Python knows it."""
    try:
        method = inspect.unwrap(getattr(cls, name))
        path = Path(inspect.getsourcefile(method) or "")
        # A method of a base class of the SDK or of vLLM is not where an author should look.
        if not is_authors(str(path)):
            method, path = cls, Path(inspect.getsourcefile(cls) or "")
        return f"{path}:{inspect.getsourcelines(method)[1]}"
    except (AttributeError, OSError, TypeError):
        return ""


def shrink(
    ops: list[Op], outcome: Any, fails: Callable[[Sequence[Op]], Any], seconds: float = SHRINK_SECONDS
) -> tuple[list[Op], Any]:
    """Delta debugging: drop operations while the failure stays, largest pieces first."""
    deadline = time.monotonic() + seconds
    size = max(len(ops) // 2, 1)
    while True:
        start = 0
        shrunk = False
        while start < len(ops) and time.monotonic() < deadline:
            candidate = ops[:start] + ops[start + size :]
            found = fails(candidate) if candidate else None
            if found is not None:
                ops, outcome, shrunk = candidate, found, True
            else:
                start += size
        if time.monotonic() >= deadline or (size == 1 and not shrunk):
            return ops, outcome
        if not shrunk:
            size = max(size // 2, 1)
