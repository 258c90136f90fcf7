"""Token lists belong to the engine: what is around a call of a plugin to see that it leaves them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lpkit.runtime import Request

from lpkit_conformance.hosts.base import Watch
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.findings import at_fault
from lpkit_conformance.results import Failed

SHORT = 40
"""Tokens of a list that a report shows whole."""

AROUND = 5
"""Tokens of a longer one that it shows."""


def leaving_lists(subject: PluginUnderTest, requests: Callable[[], Iterable[Request]], engine: str = "") -> Watch:
    """A watch that raises ``Failed`` once a call changes the prompt or the output list of one of the requests.

    ``requests`` is asked at each call; ``engine``: what is special about it, for the report.
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
    """A list; of a long one how long it is, and where it begins to differ from the other."""
    if max(len(ids), len(other)) <= SHORT:
        return str(ids)
    start = next((n for n, (one, its) in enumerate(zip(ids, other, strict=False)) if one != its), len(other))
    return f"{len(ids):,} tokens; {ids[start : start + AROUND]} at {start:,}"
