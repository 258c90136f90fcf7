"""Evidence in the author's terms: what a departure from the oracle, or an exception, says about the plugin."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpkit_conformance.hosts import PluginError
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.instruments.author_lines import is_authors
from lpkit_conformance.oracle.compare import Mismatch
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Swap
from lpkit_conformance.results import Finding

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


def departure(
    subject: PluginUnderTest, mismatch: Mismatch, source: dict[str, str], operations: tuple[str, ...], fix: str
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


def kind_of_stale(request: str, ops: Iterable[Op]) -> str:
    """Why a row was edited that is left alone when its request is: what the operations allow."""
    ops = list(ops)
    if any(isinstance(op, Arrive) and op.request == request and op.variant is not None for op in ops):
        return "out of step"
    return "stale" if any(isinstance(op, Finish | Preempt | Swap) for op in ops) else "stray"


def trace_finding(subject: PluginUnderTest, trace: str, pattern: str, mismatch: Mismatch, fix: str) -> Finding:
    """A finding for a row of a recorded trace."""
    finding = departure(subject, mismatch, {"trace": trace, "pattern": pattern}, (), fix)
    return replace(finding, scenario=scenario_of_trace(subject, trace, pattern))


def scenario_of_trace(subject: PluginUnderTest, trace: str, pattern: str) -> dict[str, Any]:
    """The same for a recorded trace."""
    return {**settings_of(subject), "trace": trace, "pattern": pattern}


def settings_of(subject: PluginUnderTest) -> dict[str, Any]:
    return {
        "case": json.loads(subject.case.text),
        "seed": subject.seed,
        "vocab_size": subject.vocab_size,
        "max_num_seqs": subject.max_num_seqs,
    }


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
