"""Token lists belong to the engine: a watch around each call of a plugin that detects changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lpkit.runtime import Request

from lpkit_conformance.explanation.findings import at_fault
from lpkit_conformance.hosts.base import Watch
from lpkit_conformance.results import Failed
from lpkit_conformance.subject.subject import Subject

SHORT = 40
"""Tokens of a list that a report shows whole."""

AROUND = 5
"""Tokens that a report shows of a longer list."""


def leaving_lists(subject: Subject, requests: Callable[[], Iterable[Request]], engine: str = "") -> Watch:
    """Return a watch that raises ``Failed`` when a call changes the prompt or the output list of a request.

    ``requests`` is called at each call; ``engine``: its special feature, for the report.
    """

    @contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        known = [
            (request.request_id, label, ids, list(ids))
            for request in requests()
            for label, ids in (("output", request.output_token_ids), ("prompt", request.prompt_token_ids))
            if ids is not None
        ]
        yield
        for request, label, ids, before in known:
            if ids != before:
                within = f"in an engine with {engine}, " if engine else ""
                raise Failed(
                    f"{within}{method} changed the {label} token list of {request}",
                    {"method": method, "request": request},
                    _shown(before, ids),
                    _shown(ids, before),
                    fix="copy a token list before you change it",
                    location=at_fault(subject, method),
                )

    return watch


def _shown(ids: list[int], other: list[int]) -> str:
    """Describe a list; of a long list its length, and the position where it begins to differ from the other."""
    if max(len(ids), len(other)) <= SHORT:
        return str(ids)
    start = next((n for n, (one, its) in enumerate(zip(ids, other, strict=False)) if one != its), len(other))
    return f"{len(ids):,} tokens; {ids[start : start + AROUND]} at {start:,}"
