"""Objects that several requests' entries have in common, and hosts on which each entry has copies of its own."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from types import CellType, FunctionType
from typing import Any

from lpkit_conformance.explanation.advice import text_at
from lpkit_conformance.explanation.changes import MakeHost, changed
from lpkit_conformance.explanation.state import attributes, is_authors_object
from lpkit_conformance.hosts import Host, PluginError
from lpkit_conformance.instruments.author_lines import syntax_of
from lpkit_conformance.instruments.module_state import CACHED, owners
from lpkit_conformance.instruments.trails import changed_by
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.subject import Subject

MOST_NESTED = 2
"""Objects in objects of the author's in which entries of requests are looked for."""

Memo = dict[int, Any]
"""Copies by the ``id`` of the original; ``copy.deepcopy`` lists the originals under the ``id`` of the memo itself."""


def shared_object(host: Host, ops: Sequence[Op]) -> str:
    """Return the attribute, or else the type, of an object that two requests' entries hold; empty without one."""
    shared: list[Any] = []

    def look() -> None:
        met: set[int] = set()
        for entries, key in _entries(host):
            memo = _live(host)
            with contextlib.suppress(Exception):  # what cannot be copied
                _copied(entries[key], memo)
                reached = memo.get(id(memo), [])
                shared.extend(part for part in reached if id(part) in met)
                met.update(map(id, reached))

    with contextlib.suppress(PluginError):
        _after_reports(host, look)
        for _ in host.run(ops):
            if shared:
                break
    named = [f"self.{name}" for name, value in attributes(host.processor) if any(value is part for part in shared)]
    return next(iter([*named, *(type(part).__name__ for part in shared)]), "")


def shared_variable(host: Host, name: str) -> str:
    """Return ``file:line`` of functions that two requests' entries are, and that share this variable; else empty.

    ``host``: one that has run.
    """
    met: set[int] = set()
    for entries, key in _entries(host):
        function = entries[key]
        if isinstance(function, FunctionType) and name in (names := function.__code__.co_freevars):
            cell = id((function.__closure__ or ())[names.index(name)])
            if cell in met:
                return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
            met.add(cell)
    return ""


def with_own_objects(make_host: MakeHost) -> MakeHost:
    """Return the same host, which puts a copy in the place of each entry as soon as the plugin has stored it."""

    def change(host: Host) -> None:
        kept: list[Any] = []

        def separate() -> None:
            for entries, key in _entries(host):
                if not any(entries[key] is item for item in kept):
                    with contextlib.suppress(Exception):  # what cannot be copied stays
                        entries[key] = _copied(entries[key], _live(host))
                    kept.append(entries[key])

        _after_reports(host, separate)

    return changed(make_host, change)


def returning_copies(make_host: MakeHost) -> MakeHost:
    """Return the same host; what ``functools`` caches for the author's functions is copied each time it is returned.

    The functions are the author's own again when the plugin's modules are restored.
    """

    def make(subject: Subject, size: int) -> Host:
        for owner in owners(subject.plugin.cls):
            for name, function in list(vars(owner).items()):
                if isinstance(function, CACHED):
                    setattr(owner, name, _copying(function))
        return make_host(subject, size)

    return make


def _copying(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(lambda *args, **named: copy.deepcopy(function(*args, **named)))


def changing_line(cls: type, function: str) -> str:
    """Return ``file:line`` that changes in place what a function has returned; empty without one."""
    file = inspect.getsourcefile(cls) or ""
    for scope in ast.walk(syntax_of(file)):
        if isinstance(scope, ast.FunctionDef):
            assigns = [node for node in ast.walk(scope) if isinstance(node, ast.Assign | ast.NamedExpr)]
            calls = [node for node in assigns if re.match(rf"(\w+\.)?{function}\(", ast.unparse(node.value))]
            targets = [node.target if isinstance(node, ast.NamedExpr) else node.targets[0] for node in calls]
            held = {ast.unparse(target) for target in targets}
            lines = (f"{file}:{number}" for number in range(scope.lineno, (scope.end_lineno or 0) + 1))
            for place in lines:
                if changed_by(place) in held and f"{function}(" not in text_at(place):
                    return place
    return ""


def _after_reports(host: Host, look: Callable[[], None]) -> None:
    """Call ``look`` behind each call in which the plugin may store what it keeps of requests."""
    call = host.driver.call

    def call_and_look(method: str, *args: Any) -> Any:
        result = call(method, *args)
        if method != "apply":
            look()
        return result

    host.driver.call = call_and_look  # type: ignore[method-assign]


def _entries(host: Host) -> list[tuple[Any, Any]]:
    """Return container and key of all that the plugin keeps by row or slot."""

    def within(owner: Any, depth: int) -> Iterator[tuple[Any, Any]]:
        for _, value in attributes(owner):
            if isinstance(value, dict) and all(type(key) is int for key in value):
                yield from ((value, key) for key in value)
            elif isinstance(value, list) and len(value) == host.max_num_seqs:
                yield from ((value, number) for number in range(len(value)))
            elif depth and is_authors_object(value):
                yield from within(value, depth - 1)

    return list(within(host.processor, MOST_NESTED))


def _live(host: Host) -> Memo:
    """Return a memo of what is not to be copied: the instance, and the engine's objects."""
    requests = [active.request for active in host.pool.requests.values()]
    engines = [part for item in requests for part in (item.params, item.output_token_ids, item.prompt_token_ids)]
    return {id(part): part for part in (host.processor, *engines)}


def _copied(entry: Any, memo: Memo) -> Any:
    """Return a copy of an entry; of a callable, with variables of its own."""
    if isinstance(entry, functools.partial):
        return functools.partial(
            _copied(entry.func, memo), *copy.deepcopy(entry.args, memo), **copy.deepcopy(entry.keywords, memo)
        )
    if isinstance(entry, FunctionType) and entry.__closure__:
        for cell in entry.__closure__:
            if id(cell) not in memo:
                memo[id(cell)] = CellType()
                memo[id(cell)].cell_contents = _copied(cell.cell_contents, memo)
        cells = tuple(memo[id(cell)] for cell in entry.__closure__)
        twin = FunctionType(entry.__code__, entry.__globals__, entry.__name__, entry.__defaults__, cells)
        twin.__kwdefaults__ = entry.__kwdefaults__
        return twin
    return copy.deepcopy(entry, memo)
