"""The history of an attribute in a failing program: what each call of the author's lines changed in it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from inspect import getattr_static
from types import FrameType
from typing import Any

import numpy as np
import torch

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.findings import constructed, line_of_moves
from lpkit_conformance.explanation.history import Change, StateHistory, is_field, updating
from lpkit_conformance.explanation.state import (
    MISSING,
    Keys,
    Parts,
    State,
    getattr_along,
    is_authors_object,
    parts_of,
    short_text,
    state_of,
)
from lpkit_conformance.explanation.timeline import steps_of
from lpkit_conformance.explanation.writes import (
    Line,
    author_calling,
    inherited,
    stack,
    watching,
)
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.hosts.base import Host
from lpkit_conformance.hosts.v1 import V1Driver
from lpkit_conformance.hosts.v2 import V2Driver
from lpkit_conformance.instruments.module_state import owners
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.subject import Subject


def with_history(
    finding: Finding,
    subject: Subject,
    ops: Sequence[Op],
    size: int,
    mismatch: Mismatch,
    make_host: MakeHost,
    kept: bool = False,
    proven: bool = False,
) -> Finding:
    """Return the finding with the lines that wrote its state, and with why the state is wrong if they tell.

    ``kept``: a new instance with the same requests is right. ``proven``: the cause of the finding is an experiment's.
    """
    history = history_of(subject, ops, size, mismatch, make_host, finding.state)
    if history is None:
        return finding
    reason = history.kept() if kept else history.reason(mismatch.step, finding.location, proven)
    if reason:
        cause = "; ".join(filter(None, (finding.cause, reason.cause)))
        line = str(reason.line or finding.location)
        finding = replace(finding, cause=cause, fix=reason.fix or finding.fix, location=line, vague=False)
    elif not proven and (caller := _caller(history, finding, subject.plugin.cls)):
        finding = replace(finding, location=caller)
    texts = history.texts()
    shown = len(texts) > 1 or not any(f" line {finding.location.rpartition(':')[2]} " in text for text in texts)
    return replace(finding, written=texts if shown else ())


def _caller(history: StateHistory, finding: Finding, cls: type) -> str:
    """Return ``file:line`` of the plugin's own method that let an object set its own parts for one request, where the
    finding blames the object's method; else empty."""
    last = history.changes[-1] if history.changes else None
    if last is None or not last.path or finding.state != history.name:
        return ""
    helper, *callers = last.lines
    if finding.location not in helper.of_function:
        return ""
    methods = {getattr(value, "__code__", None) for base in cls.__mro__ for value in vars(base).values()}
    return next((str(line) for line in callers if line.code in methods), "") if helper.code not in methods else ""


def history_of(
    subject: Subject, ops: Sequence[Op], size: int, mismatch: Mismatch, make_host: MakeHost, state: str
) -> StateHistory | None:
    """Return the history of the attribute of an instance that is, or holds, ``state``; None for anything else."""
    name = state.partition("[")[0]
    if not name:
        return None
    request, file = mismatch.request, getattr(sys.modules.get(subject.plugin.cls.__module__), "__file__", "")
    entered = [step for step, _, events in steps_of(ops) if any(getattr(op, "request", "") == request for op in events)]
    cls = subject.plugin.cls
    history = StateHistory(
        name, request, entered=entered, file=file, moves=line_of_moves(cls), inherited=inherited(cls)
    )
    history.part = state.partition("]")[2]
    try:
        with contextlib.suppress(PluginError), subject.as_imported():
            host = make_host(subject, size)
            with host.driver.watched(_Follower(history, host).around):
                for seen in host.run(ops):
                    if seen.shows(mismatch.step, mismatch.request):
                        break
    except Exception:  # whatever the plugin's objects raise when they are looked at: a clue is being looked for
        return None
    return history


class _Follower:
    """Notes the changes that the calls of an instance make."""

    def __init__(self, history: StateHistory, host: Host) -> None:
        self.history = history
        self.host = host
        self.number = 0
        self._alike = False  # since the constructor, entries are one object
        self._last: Parts | None = None
        self._shared = State.of(object(), list(owners(type(host.driver.processor))))

    def value(self) -> Any:
        """Return the attribute of the instance, of its class or module, or of each request's callable."""
        processor, (first, *fields) = self.host.driver.processor, self.history.name.split(".")
        made = getattr_static(processor, fields[0], MISSING) if fields else MISSING
        if first != "self" or made is MISSING or isinstance(made, cached_property | property):
            kept = self._shared.get(self.history.name)
            return self._of_callables() if kept is MISSING else kept
        return getattr_along(processor, fields)

    def _held(self) -> dict[int, str]:
        """Return the requests of the batch by row or slot."""
        driver = self.host.driver
        if isinstance(driver, V1Driver):
            return dict(enumerate(item.request_id for item in driver.batch.requests))
        slots = driver.slots if isinstance(driver, V2Driver) else None
        return {slots.slot(name): name for name in self.host.pool.requests if name in slots} if slots else {}

    def _of_callables(self) -> Any:
        """Return the value of each callable's attribute or variable, by row or slot."""
        kept = [kept for kept in vars(self.host.driver.processor).values() if isinstance(kept, dict)]
        calls = [item for entries in kept for item in entries.items() if callable(item[1])]
        base, fields = ".".join(self.history.name.split(".")[:2]), self.history.name.split(".")[2:]
        values = {position: getattr_along(state_of("", call, 0).get(base), fields) for position, call in calls}
        self.history.per_callable = any(value is not MISSING for value in values.values())
        return values if self.history.per_callable else MISSING

    @contextlib.contextmanager
    def around(self, method: str, args: tuple[Any, ...]) -> Iterator[None]:
        history, step = self.history, self.host.step
        self._alike = any(_shared_entries(self.value())) if not self.number else self._alike
        self.number += 1
        number = self.number
        history.held[step] = self._held()
        if active := self.host.pool.requests.get(history.request):
            history.outputs[step] = len(active.request.output_token_ids)
            if method == "update_state" and args[0] is not None and len(args[0].moved) == 1:
                history.added[step] = {row: params is active.request.params for row, params, *_ in args[0].added}
        lines: tuple[Line, ...] = ()
        history.follows |= self._last not in (None, parts_of(self.value()))
        if method != "apply":
            history.calls.setdefault(step, []).append(number)

        def changed(value: Any, before: Parts, now: Parts) -> None:
            if lines:
                paths, shared = _changed(before, now), list(_shared_entries(value))
                for path in paths:
                    text = _text(_at(value, path)) if path in now else None
                    history.changes.append(Change(step, method, number, lines, path, text))
                hit = {path[0] for path in paths if path}
                if self._alike and any(len(hit & keys) > 1 for keys in shared):
                    history.made = constructed(type(self.host.driver.processor), history.name)
                history.shared = {keys: history.shared.get(keys, (step, lines[0])) for keys in shared}

        def note(frame: FrameType, event: str) -> None:
            nonlocal lines
            current: FrameType | None = frame if event == "line" else author_calling(frame)
            if event != "call" and current is not None:
                lines = tuple(stack(current))
            if event == "line" and method != "apply":
                history.ran.setdefault(step, {})[frame.f_code.co_filename, frame.f_lineno] = None
            if event == "line" and method == "update_state" and updating(lines).number > history.first_move > 0:
                history.moved_by[step] = lines[0]

        try:
            with watching(self.value, changed, note):
                yield
        finally:
            value = self.value()
            self._last = parts_of(value)
            history.objects = dict(_objects(value))
            for position, request in self._held().items():
                if (held := history.objects.get(position)) is not None:
                    history.holders.setdefault(id(held), (held, request))


def _changed(before: Parts, now: Parts) -> list[Keys]:
    """Return the outermost parts that differ; missing parts come first."""
    gone = [path for path in before if path not in now]
    other = [path for path in now if path not in before or before[path] != now[path]]
    within = {*gone, *(path for path in other if path not in before)}
    outermost = [path for path in [*gone, *other] if not any(path[:length] in within for length in range(len(path)))]
    inner = {path[:length] for path in outermost for length in range(len(path))}
    return [path for path in outermost if path not in inner]


def _at(value: Any, path: Keys) -> Any:
    for key in path:
        value = getattr(value, key[1:], MISSING) if is_field(key) else value[key]
    return value


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    return f"{value:g}" if isinstance(value, float) else short_text(value)


def _entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys and the parts of a dict or a list; of anything else none."""
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def _objects(value: Any) -> Iterator[tuple[int, Any]]:
    """Yield the author's objects that a container holds, with their keys."""
    return ((key, part) for key, part in _entries(value) if type(key) is int and is_authors_object(part))


def _shared_entries(value: Any) -> Iterator[frozenset[Any]]:
    """Yield the keys of entries that are one object, which can change, or one memory."""
    if isinstance(value, torch.Tensor) and value.ndim > 1 and len(value) > 1 and not value.stride(0):
        return iter([frozenset(range(len(value)))])
    keys: dict[int, list[Any]] = {}
    for key, part in _entries(value):
        if isinstance(part, list | dict | set | torch.Tensor) or is_authors_object(part):
            keys.setdefault(id(part), []).append(key)
    return (frozenset(same) for same in keys.values() if len(same) > 1)
