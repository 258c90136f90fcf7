"""Data of the engine that a plugin must not change: a watch that compares it before and after each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from lpkit.runtime import Request

from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts.base import Watch
from lpkit_conformance.instruments.trails import changed_by
from lpkit_conformance.results import Failed
from lpkit_conformance.subject.subject import Subject

SHORT = 40
"""Tokens of a list that a report shows whole."""

AROUND = 5
"""Tokens that a report shows of a longer list."""


def leaving(
    subject: Subject,
    shared: Callable[[str, tuple[Any, ...]], Mapping[str, Any]],
    report: str,
    fix: str,
    follow: bool = False,
) -> Watch:
    """Return a watch that raises ``Failed`` when a call changes data of the engine.

    Args:
        subject: the plugin that is called.
        shared: returns copies of the data for a method and its arguments, by name.
        report, fix: the words of the finding, with ``{method}`` and ``{name}``.
        follow: copies and compares the data at each of the author's lines, too: slow, and the finding names the line.
    """

    @contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        before = shared(method, args)
        followed = Writes(subject.plugin.cls)
        with followed.around(method, args, partial(shared, method, args)) if follow and before else nullcontext():
            yield
        after = shared(method, args) if before else {}
        for name, value in before.items():
            if not _same(value, after[name]):
                changed = changed_by(str(followed.last or ""))
                cause = advice.cause("engine-data").format(name=name, variable=f" (`{changed}`)" if changed else "")
                raise Failed(
                    report.format(method=method, name=name),
                    {"method": method},
                    _shown(value, after[name]),
                    _shown(after[name], value),
                    cause=cause,
                    fix=fix.format(name=name),
                    location=str(followed.last or "") or method_location(subject.plugin.cls, method),
                    state=changed,
                )

    return watch


def leaving_lists(
    subject: Subject, requests: Callable[[], Iterable[Request]], engine: str = "", follow: bool = False
) -> Watch:
    """Return a watch of the requests' token lists; ``engine``: its special feature, for the report."""

    def lists(method: str, args: tuple[Any, ...]) -> dict[str, list[int]]:
        return {
            f"the {label} token list of {request.request_id}": list(ids)
            for request in requests()
            for label, ids in (("output", request.output_token_ids), ("prompt", request.prompt_token_ids))
            if ids is not None
        }

    within = f"in an engine with {engine}, " if engine else ""
    return leaving(subject, lists, within + "{method} changed {name}", advice.fix("token-list"), follow)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return bool(np.array_equal(left, right))
    # Lists of tuples that hold live lists: the items must be the same objects.
    return len(left) == len(right) and all(
        a is b or (type(a) is int and a == b) for a, b in zip(left, right, strict=True)
    )


def _shown(value: Any, other: Any) -> str:
    """Describe a value; of a long list or an array the size, and the place where it begins to differ from the other."""
    if isinstance(value, torch.Tensor | np.ndarray):
        numbers, its = torch.as_tensor(value), torch.as_tensor(other)
        if numbers.numel() <= SHORT:
            return str(numbers.tolist())
        *row, start = (numbers != its).nonzero()[0].tolist()
        size = " x ".join(map(str, numbers.shape))
        return f"{size}; {numbers[tuple(row)][start : start + AROUND].tolist()} at {[*row, start]}"
    if not isinstance(value, list) or max(len(value), len(other)) <= SHORT:
        return str(value)[:200]
    start = next((n for n, (numbers, its) in enumerate(zip(value, other, strict=False)) if numbers != its), len(other))
    return f"{len(value):,} tokens; {value[start : start + AROUND]} at {start:,}"
