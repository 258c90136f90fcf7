"""Evidence in the author's terms: what a departure from the oracle, or an exception, says about the plugin."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.exceptions import read
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.instruments.author_lines import is_authors
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Swap
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.subject import Subject

CAUSES = {
    "lost": (
        "the plugin left the row of a request that uses it unchanged: what it keeps for this row is missing, or is "
        "what it kept for another request or another step"
    ),
    "stale": "the plugin edited the row of a request that does not use it: state of an earlier request is still there",
    "out of step": (
        "alone, the plugin leaves this row unchanged; in the batch it edited it: its state is ahead of the tokens or "
        "behind them, or belongs to another request"
    ),
    "stray": (
        "the plugin edited the row of a request that does not use it, and no other request had that row before: it "
        "edits more rows than those of its own requests, or takes its arguments from another row"
    ),
    "wrong": (
        "the plugin edited the row with the wrong arguments or history: state of another request, or state that "
        "counts calls instead of tokens"
    ),
}

ALONE = {
    "lost": (
        "the plugin left the row unchanged, although no other request came near it: what it keeps of the request is "
        "missing or out of date, or it read too early what was not there yet"
    ),
    "out of step": (
        "in a private instance the plugin leaves this row unchanged, and no other request came near it here: its state "
        "is ahead of the tokens or behind them"
    ),
    "wrong": (
        "no other request came near it: the plugin's state is ahead of the tokens or behind them, because it counts "
        "calls or steps, or is not what the tokens so far make it"
    ),
}
"""The same where the operations have one request only."""

READ = (
    "a new instance that is told of this step's requests alone gives the same row: what `apply` reads is wrong (which "
    "row is whose, tokens, lengths), or what the plugin keeps outside of the instance, and nothing else that it keeps"
)
"""Whatever became of the row."""


def departure(mismatch: Mismatch, source: dict[str, str], operations: tuple[str, ...] = ()) -> Finding:
    """A finding for a row that is not what its request gets alone."""
    return Finding(
        summary=f"request {mismatch.request} got different logits in the batch than alone",
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
        logits=mismatch.logits,
        cause=CAUSES[mismatch.kind],
    )


def cause_of(mismatch: Mismatch, ops: Sequence[Op]) -> str:
    """What the operations leave of the usual causes."""
    kind = mismatch.kind
    if kind == "stale":
        kind = _kind_of_stale(mismatch.request, ops)
    alone = sum(isinstance(op, Arrive) for op in ops) == 1
    return ALONE.get(kind, CAUSES[kind]) if alone else CAUSES[kind]


def _kind_of_stale(request: str, ops: Sequence[Op]) -> str:
    """Why a row was edited that the plugin leaves unchanged in the solo run."""
    if any(isinstance(op, Arrive) and op.request == request and op.variant is not None for op in ops):
        return "out of step"
    return "stale" if any(isinstance(op, Finish | Preempt | Swap) for op in ops) else "stray"


def scenario_of_trace(subject: Subject, trace: str, pattern: str) -> dict[str, Any]:
    """What `lpkit replay` needs to replay a recorded trace, but for target, check and host."""
    return {**settings_of(subject), "trace": trace, "pattern": pattern}


def settings_of(subject: Subject) -> dict[str, Any]:
    """The part of a scenario that does not depend on what is run."""
    return {
        "case": subject.setup.case.to_json(),
        "seed": subject.setup.seed,
        "vocab_size": subject.setup.vocab_size,
        "max_num_seqs": subject.setup.max_num_seqs,
    }


def raised(cls: Any, error: PluginError, operations: tuple[str, ...] = ()) -> Finding:
    """A finding for a plugin that raised, or returned an invalid value; it has a fix if the error leaves no doubt."""
    reading = read(error.exception, error.summary, getattr(cls, "__name__", ""))
    return Finding(
        summary=f"{error.method} {error.summary}",
        where={"method": error.method},
        expected="no exception (one here would stop the engine for everyone)",
        got=error.summary,
        operations=operations,
        cause=reading.cause,
        fix=error.fix or reading.fix,
        location=error.location or method_location(cls, error.method),
        exception=error.exception,
    )


HOOKS: dict[str, tuple[str, ...]] = {
    "apply": ("process", "edit", "new_req_logits_processor", "admit"),
    "is_argmax_invariant": ("process", "edit"),
    "validate_params": ("Params", "new_req_logits_processor", "admit"),
}
"""What an author writes where lpkit or vLLM has the method; other methods tell of requests."""

TOLD = ("admit", "new_req_logits_processor", "process", "edit", "apply")


def method_location(cls: Any, name: str) -> str:
    """``file:line`` of a method, or of what the author wrote for it where lpkit or vLLM has the method itself."""
    return next(filter(None, (own_line(cls, each) for each in (name, *HOOKS.get(name, TOLD)))), "")


def at_fault(subject: Subject, name: str) -> str:
    """``file:line`` of the author's method; for ``apply`` of a request-level adapter, of the callable that edits."""
    callable_line = "" if name != "apply" or own_line(subject.plugin.cls, name) else _callable_line(subject)
    return callable_line or method_location(subject.plugin.cls, name)


def _callable_line(subject: Subject) -> str:
    """Of what an adapter makes for a request of the case; empty for other classes, and if it makes nothing."""
    if not own_line(subject.plugin.cls, "new_req_logits_processor"):
        return ""
    with contextlib.suppress(Exception):  # whatever the plugin raises: a line is being looked for
        made = drive(subject).processor.new_req_logits_processor(subject.params(0))
        while isinstance(made, functools.partial):
            made = made.func
        called = made if inspect.isroutine(made) else type(made).__call__
        path = inspect.getsourcefile(called) or ""
        return f"{path}:{inspect.getsourcelines(called)[1]}" if is_authors(path) else ""
    return ""


def own_line(cls: Any, name: str) -> str:
    """``file:line`` of a method, if it is the author's own and Python knows where it is."""
    if not isinstance(cls, type):
        return ""
    try:
        method = inspect.unwrap(getattr(cls, name))
        path = Path(inspect.getsourcefile(method) or "")
        return f"{path}:{inspect.getsourcelines(method)[1]}" if is_authors(str(path)) else ""
    except (AttributeError, OSError, TypeError):
        return ""
