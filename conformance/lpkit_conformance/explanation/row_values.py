"""One request in the failing program and alone: where the author's code takes another way or computes another value."""

from __future__ import annotations

import ast
import contextlib
import copy
import linecache
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from lpkit import Rows

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import MakeHost, changed
from lpkit_conformance.explanation.findings import style_of
from lpkit_conformance.explanation.outside import containers_named, line_outside
from lpkit_conformance.explanation.reductions import over_rows
from lpkit_conformance.explanation.row_loops import row_loop
from lpkit_conformance.explanation.state import DATA, getattr_along, is_authors_object, short_text, size_of
from lpkit_conformance.hosts import Host
from lpkit_conformance.instruments.author_lines import is_authors, only_looks, parsed, syntax_of
from lpkit_conformance.instruments.trails import Seen, Values, definition, set_by, trail
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.subject.subject import Subject

CLOSE = 1e-4
"""Difference up to which batches of different sizes may compute a number."""

SOLO = 2
"""Requests that the engine of a solo run has room for."""

PLACES = ("index", "slots", "idx_mapping", "expanded_idx_mapping")
"""Attributes of arguments that say where the rows are; other batches have other places."""

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Functions that meet the values of all rows."""

OF_ALL = re.compile(r"\b(all|min|max)\(|^(?!.*\bnot\b).*\bany\(")
"""Matches a condition that a single row can decide for all rows."""

OF_TENSOR = re.compile(r"(?<!not )\b[\w.]+\.(any|all|max|min|amax|amin)\(\)")
"""Matches such a condition on a tensor."""

VALUES_OF_ALL = re.compile(r"\bself\.\w+\.(values|items)\(\)")
"""In a call, the values that an attribute has for all requests."""

PLAIN = (int, float, str, bool, type(None), list, tuple, set, dict)


class Apart(NamedTuple):
    """The first difference between the program and the solo run.

    Attributes:
        kind: a condition that asks data of the author's and is answered otherwise, one that asks such data of all rows,
            any other condition, a look-up in an attribute, a whole attribute, a variable, or one with padding as a
            value.
        line: ``file:line`` of the statement.
        name: of the data that it asks or looks up, or of the variable that it sets; empty for other conditions.
        here, alone: the values in short; empty if they are long.
        mixes: the call on this line that makes one value of all rows, if there is one.
        padded: the line that makes ids of padding, if there is one.
        source: the attribute with values of several requests that the variable is made of, if there is one.
        owned: True if the source is the author's own, and no object of the engine's.
    """

    kind: Literal["asked", "all", "way", "read", "held", "set", "padded"]
    line: str
    name: str
    here: str = ""
    alone: str = ""
    mixes: str = ""
    padded: tuple[Apart, ...] = ()
    source: str = ""
    owned: bool = False

    @property
    def state(self) -> str:
        """The attribute at fault, where it is the author's."""
        if self.kind == "all" and not self.name.startswith("self."):
            return ""
        return self.name if self.kind in ("all", "read", "held") else self.source if self.owned else ""

    @property
    def cause(self) -> str:
        """Return what is wrong, with the proof."""
        values = f": {self.here}, and {self.alone} alone" if self.here and self.alone else ""
        kind = "return" if self.name == "return" and self.kind != "padded" else self.kind
        source = f", made of `{self.source}`," if self.source else ""
        return advice.cause(kind, "apart").format(name=self.name, values=values, source=source)


class _Ids(NamedTuple):
    """Token ids; the rest of a buffer may hold other requests' ids, so only the padding is compared."""

    value: torch.Tensor


class _Placed(NamedTuple):
    """A value that may be the place of a row."""

    value: torch.Tensor


class _Place(NamedTuple):
    """Place of the request in what a function gets: its row among so many; -1 if all is the request's."""

    row: int
    rows: int
    places: Sequence[list[int]] = ()


def first_apart(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> Apart | None:
    """Return the first difference when the request enters, or else in the failing call of ``apply``; None without one.

    A loop over rows counts in the round of the row. Of ids that lpkit pads, it is the value that has none of -1 left.
    """
    with contextlib.suppress(Exception):  # whatever the plugin or its objects raise: a clue is being looked for
        trails = []
        mixing: dict[str, str] = {}
        host = make_host(subject, max_num_seqs)
        trails.append(_followed(host, ops, mismatch.request, mismatch.step, mismatch.row, mixing))
        active = host.pool.requests[mismatch.request]
        arrived, steps = active.arrived, active.steps_to(mismatch.position)
        several = sum(isinstance(op, Arrive) for op in ops) > 1
        size = max_num_seqs if several else SOLO  # another size is all that can differ from a request alone
        trails.append(_followed(make_host(subject, size), [arrived, Step(steps)], mismatch.request, steps, 0, {}))
        pairs = list(zip(*trails, strict=True))
        portable = style_of(subject.plugin.cls, subject.setup.host) == "portable"
        ways: list[Callable[[list[Seen], list[Seen]], Apart | None]] = [_first, partial(_first, shared=True)]
        padded = tuple(filter(None, (_padded(*pair) for pair in pairs * portable)))
        apart = next(filter(None, (way(*pair) for way in ways for pair in pairs)), *padded[:1] or [None])
        if apart and apart.kind == "set":
            apart = _with_source(apart, host)
        return apart and apart._replace(mixes=mixing.get(apart.line, ""), padded=padded)
    return None


def applying(
    make_host: MakeHost, apply: Callable[[Host, torch.Tensor, Callable[[torch.Tensor], Any]], Any]
) -> MakeHost:
    """Return the same host, which calls ``apply`` with the logits, and with what passes some to the plugin's own."""

    def change(host: Host) -> None:
        call = host.driver.call

        def call_changed(method: str, *args: Any) -> Any:
            if method != "apply":
                return call(method, *args)
            return apply(host, args[0], lambda logits: call(method, logits, *args[1:]))

        host.driver.call = call_changed  # type: ignore[method-assign]

    return changed(make_host, change)


def with_other_logits(make_host: MakeHost, mismatch: Mismatch) -> MakeHost:
    """Return the same host, on which the other rows of the failing call of ``apply`` have other logits."""

    def apply(host: Host, logits: torch.Tensor, call: Callable[[torch.Tensor], Any]) -> Any:
        if host.step == mismatch.step and len(host.pool.running) > 1:
            others = torch.arange(len(logits)) != mismatch.row
            logits[others] = logits[others].flip(1)
        return call(logits)

    return applying(make_host, apply)


def first_mixed(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> Apart | None:
    """Return the first difference in the failing call of ``apply`` where its other rows have other logits."""
    with contextlib.suppress(Exception):  # as above
        hosts = (make(subject, max_num_seqs) for make in (make_host, with_other_logits(make_host, mismatch)))
        edits = [_followed(host, ops, mismatch.request, mismatch.step, mismatch.row, {})[1] for host in hosts]
        return _first(edits[0], edits[1])
    return None


def _with_source(apart: Apart, host: Host) -> Apart:
    """Return the same with the attribute that its line reads, if only one of these has values of several requests."""
    file, _, number = apart.line.rpartition(":")
    attributes = [node for node in ast.walk(parsed(file, int(number))) if isinstance(node, ast.Attribute)]
    inside = {id(node.value) for node in attributes}
    sources: dict[str, Any] = {}
    for node in attributes:
        text, value = ast.unparse(node), host.processor
        if text.startswith("self.") and id(node) not in inside and isinstance(node.ctx, ast.Load):
            parts = text.split(".")[1:]
            if callable(getattr_along(value, parts)):
                parts = parts[:-1]
            if parts and _of_several(getattr_along(value, parts), host.max_num_seqs):
                sources[".".join(("self", *parts))] = getattr(value, parts[0])
    if len(sources) != 1:
        return apart
    name, root = next(iter(sources.items()))
    declared = type(root).__module__.startswith("lpkit.columns")
    return apart._replace(source=name, owned=declared or isinstance(root, DATA) or is_authors_object(root))


def _of_several(value: Any, size: int) -> bool:
    """Return True for what may have a value for each row or slot, as an object of the author's may inside."""
    return isinstance(value, dict) or size_of(value) in (size, size + 1) or is_authors_object(value)


def _followed(
    host: Host, ops: Sequence[Op], name: str, step: int, row: int, mixing: dict[str, str]
) -> tuple[list[Seen], list[Seen]]:
    """Return the lines that run when the request enters, and when its ``row`` is computed in a step.

    ``mixing`` gets the calls that make one value of all rows, by ``file:line``.
    """
    entry: list[Seen] = []
    edit: list[Seen] = []

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        active = host.pool.requests.get(name)
        noted, into = None, entry
        if method == "apply" and host.step == step:
            noted, into = _noting(partial(_row_in, args[0][row].clone(), row), host.max_num_seqs, mixing), edit
        elif method != "apply" and active is not None and not entry:
            noted = _noting(partial(_entry_in, active.request.params), host.max_num_seqs, {})
        followed: AbstractContextManager[list[Seen]] = trail(noted) if noted else nullcontext([])
        with followed as seen:
            yield
        into += seen

    with host.subject.as_imported(), host.driver.watched(watch):
        for _ in host.run(ops):
            if host.step == step:
                break
    return entry, edit


def _noting(
    place_in: Callable[[FrameType], _Place | None], size: int, mixing: dict[str, str]
) -> Callable[[FrameType, dict[str, Any]], Values | None]:
    """Return what a trail notes of the request; functions that get other requests, or none, are left out.

    ``size``: of a batch; what has an entry for each of its rows or slots is not compared as a whole.
    """
    places: dict[FrameType, _Place | None] = {}
    begun: dict[FrameType, dict[str, int]] = {}
    entered: set[FrameType] = set()

    def place_of(frame: FrameType | None) -> _Place | None:
        if frame is None or not is_authors(frame.f_code.co_filename):
            return None
        if frame not in places:
            caller = place_of(frame.f_back)
            caller = caller if caller and _goes_on(frame, caller) else None
            loop = row_loop(frame.f_back, caller.row, caller.rows) if frame.f_back and caller else None
            places[frame] = place_in(frame) or (None if loop and not loop.is_requests else caller)
        return places[frame]

    def noted(frame: FrameType, returned: dict[str, Any]) -> Values | None:
        place = place_of(frame) if frame.f_code.co_name not in COMPREHENSIONS else None
        loop = row_loop(frame, place.row, place.rows) if place else None
        if loop and loop.at_head and frame not in entered:  # what stands before the loop is for all rows
            entered.add(frame)
            loop = None
        if place is None or (loop and not loop.is_requests):
            return None
        given = {name: frame.f_locals[name] for name in _names(frame) if name in frame.f_locals}
        set_here = {name: value for name, value in frame.f_locals.items() if name not in given}
        values, read = {**set_here, **returned, **given}, dict[str, Any]()  # the first that differs is named
        if loop:  # what the last round has left is not the row's
            if loop.begins:
                begun[frame] = {name: id(value) for name, value in values.items()}
            values = {name: value for name, value in values.items() if id(value) != begun[frame].get(name)}
        alone = place.row < 0 or loop is not None
        call = "" if place.row < 0 else over_rows(frame, place.rows)
        if call and (not loop or VALUES_OF_ALL.search(call)):
            mixing[f"{frame.f_code.co_filename}:{frame.f_lineno}"] = call
        read |= containers_named(frame) if place.row < 0 else {}
        for text, code in _reads(frame.f_code.co_filename, frame.f_lineno):
            with contextlib.suppress(Exception):  # what the line itself will raise
                value = eval(code, frame.f_globals, frame.f_locals)
                if "[" in text or _of_row(value, place, alone, size):
                    read[text] = value
        return _parts(values, place, alone), _parts(read, place, alone)

    return noted


def _of_row(value: Any, place: _Place, alone: bool, size: int) -> bool:
    """Return True if the whole of an attribute, or its part for the row, is the same when the request is alone."""
    if isinstance(value, torch.Tensor) and not alone:
        return value.is_floating_point() and value.ndim > 0 and len(value) == place.rows
    sized = isinstance(value, list | torch.Tensor) and getattr(value, "ndim", 1) > 0 and len(value) in (size, size + 1)
    return alone and not sized and not isinstance(value, dict)


def _names(frame: FrameType) -> tuple[str, ...]:
    """Return the names of a function's arguments."""
    return frame.f_code.co_varnames[: frame.f_code.co_argcount]


def _arguments(frame: FrameType) -> list[Any]:
    return [frame.f_locals[name] for name in _names(frame) if name in frame.f_locals]


def _goes_on(frame: FrameType, place: _Place) -> bool:
    """Return True if a function gets nothing but what is its caller's, row by row."""
    given = _arguments(frame)
    sizes = {len(value) for value in given if getattr(value, "ndim", 0) > 0}
    return place.row < 0 or not (sizes - {place.rows} or any(isinstance(value, Rows) for value in given))


def _row_in(before: torch.Tensor, row: int, frame: FrameType) -> _Place | None:
    """Return the place of the ``row`` that comes as ``before`` in what a function gets."""
    given = _arguments(frame)
    mappings = [getattr(value, name) for value in given for name in PLACES if hasattr(value, name)]
    places = [value.tolist() for value in mappings if isinstance(value, torch.Tensor)]
    for value in given:
        if isinstance(value, Rows):
            rows = value.index.tolist()
            return _Place(rows.index(row), value.n, places) if row in rows else None
    for value in given:
        if isinstance(value, torch.Tensor) and value.shape[-1:] == before.shape:
            if value.ndim == 1 and torch.equal(value, before):
                return _Place(-1, 0)
            if value.ndim == 2 and (rows := (value == before).all(1).nonzero().flatten().tolist()):
                return _Place(row if row in rows else rows[0], len(value), places)
    return None


def _entry_in(params: Any, frame: FrameType) -> _Place | None:
    """Return a place without values if a function gets these parameters, or a request with them."""
    given = [part for value in _arguments(frame) for part in (value, getattr(value, "sampling_params", None))]
    return _Place(-1, -1) if any(value is params for value in given) else None


def _parts(values: Mapping[str, Any], place: _Place, alone: bool) -> dict[str, Any]:
    """Return what is the request's of each value, and can be compared; ``alone``: the code is for its row alone."""
    if place.rows < 0:
        return {}
    parts: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            whole = place.row < 0 or value.ndim == 0 or len(value) != place.rows
            part = value.clone() if whole else value[place.row].clone()
            if not whole and part.numel() > 1 and not part.is_floating_point() and part.dtype != torch.bool:
                parts[name] = _Ids(part)
                continue
            placed = _is_place(value, place) or (not whole and value.tolist() in place.places)
            parts[name] = _Placed(part) if placed else part
        elif isinstance(value, float) or (alone and _is_plain(value)):
            parts[name] = copy.deepcopy(value)
    return parts


def _is_place(value: torch.Tensor, place: _Place) -> bool:
    """Return True for row numbers, among them the request's own."""
    if value.ndim != 1 or value.is_floating_point() or value.dtype == torch.bool:
        return False
    rows = value.tolist()
    return place.row in rows and len({*rows}) == len(rows) and all(0 <= row < place.rows for row in rows)


def _is_plain(value: Any) -> bool:
    parts = [*value.items()] if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return type(value) in PLAIN and all(map(_is_plain, parts))


@cache
def _reads(file: str, line: int) -> list[tuple[str, Any]]:
    """Return text and code of what a line of one statement reads of the instance: look-ups, and whole attributes."""
    with contextlib.suppress(SyntaxError):
        nodes = [node for node in ast.walk(parsed(file, line)) if isinstance(getattr(node, "ctx", None), ast.Load)]
        looked = [node for node in nodes if isinstance(node, ast.Subscript) and only_looks(node)]
        looked = [node for node in looked if _of_instance(node.value)]
        inside = [node.value for node in looked]
        whole = [
            node for node in nodes if isinstance(node, ast.Attribute) and _of_instance(node) and node not in inside
        ]
        return [(ast.unparse(node), compile(ast.Expression(node), file, "eval")) for node in (*looked, *whole)]
    return []


def _of_instance(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _first(here: list[Seen], alone: list[Seen], shared: bool = False) -> Apart | None:
    """Return the first difference; ``shared``: also of containers of modules and classes, which may be caches."""
    last: dict[int, Seen] = {}
    latest: Seen | None = None
    for number, (seen, other) in enumerate(zip(here, alone, strict=False)):
        if seen[:3] != other[:3]:
            asked = filter(None, (latest, last.get(seen.frame)))  # a function that it calls may have run in between
            return next(filter(None, (_asked(line, here[:number]) for line in asked)), None)
        for name in filter(other.given.__contains__, seen.given):
            if (shared or name.startswith("self.")) and not _alike(seen.given[name], other.given[name]):
                base = name.partition("[")[0]
                return _apart("held" if base == name else "read", seen, base, seen.given[name], other.given[name])
        for name in filter(other.values.__contains__, seen.values):
            if not _alike(seen.values[name], other.values[name]):
                line = seen if name == "return" else last.get(seen.frame)
                if line is not None:
                    return _apart("set", line, name, seen.values[name], other.values[name])
                if outside := line_outside(seen, name):
                    return _apart("held", seen._replace(line=outside), name, seen.values[name], other.values[name])
                caller = f"{latest.file}:{latest.line}" if latest else ""  # which computes an argument
                return Apart("set", caller, set_by(caller) or name) if caller else None
        last[seen.frame] = latest = seen
    return None


def _padded(here: list[Seen], alone: list[Seen]) -> Apart | None:
    """Return the first variable with ids in place of the padding behind the row's own."""
    last: dict[int, Seen] = {}
    for seen, other in zip(here, alone, strict=False):
        for name, value in seen.values.items():
            right = getattr(other.values.get(name), "value", other.values.get(name))
            if (
                isinstance(value, _Ids)
                and isinstance(right, torch.Tensor)
                and (value.value[right.numel() :] >= 0).any()
            ):
                line = seen if name == "return" else last.get(seen.frame)
                return _apart("padded", line, name, value.value, right) if line else None
        last[seen.frame] = seen
    return None


def _apart(
    kind: Literal["read", "held", "set", "padded"], seen: Seen, name: str, here: Any, alone: Any
) -> Apart | None:
    if kind == "held" and not name.startswith("self."):
        owner, _, attribute = name.rpartition(".")
        defined = definition(seen.file, f"self.{attribute}" if owner else attribute, owner)
        line = int(defined.rpartition(":")[2] or seen.line)
        return Apart(kind, f"{seen.file}:{line}", name, short_text(here), short_text(alone))
    if linecache.getline(seen.file, seen.line).lstrip().startswith(("for ", "while ")):
        return None
    texts = [short_text(value.value if isinstance(value, _Placed) else value) for value in (here, alone)]
    return Apart(kind, f"{seen.file}:{seen.line}", name, texts[0], texts[1])


def _asked(seen: Seen, before: list[Seen]) -> Apart | None:
    """Return the condition that was answered otherwise, with what it asks of that which the author's code keeps.

    Of a condition that fills a cache, the line that makes the key.
    """
    for node in ast.walk(syntax_of(seen.file)):
        if isinstance(node, ast.If) and node.lineno == seen.line:
            called = [part.func for part in ast.walk(node.test) if isinstance(part, ast.Call)]
            asks = [part for part in ast.walk(node.test) if part not in called]
            looked = [part for part in asks if isinstance(part, ast.Compare)]
            inside = [part.comparators[0] for part in looked if isinstance(part.ops[0], ast.In | ast.NotIn)]
            kept = [ast.unparse(part) for part in (*filter(_of_instance, asks), *inside)]
            stored = [ast.unparse(part) for part in ast.walk(node) if isinstance(getattr(part, "ctx", None), ast.Store)]
            keys = [
                key for key in (ast.unparse(part.left) for part in looked) if kept and f"{kept[0]}[{key}]" in stored
            ]
            line = next((earlier.line for earlier in before[::-1] if keys and _sets(earlier, seen, keys[0])), seen.line)
            if (kept and OF_ALL.search(ast.unparse(node.test))) or OF_TENSOR.search(ast.unparse(node.test)):
                return Apart("all", f"{seen.file}:{seen.line}", kept[0] if kept else ast.unparse(node.test))
            return Apart("asked" if kept else "way", f"{seen.file}:{line}", kept[0] if kept else "")
    return None


def _sets(line: Seen, other: Seen, name: str) -> bool:
    """Return True if a line of the same call as ``other`` sets this variable."""
    text = linecache.getline(line.file, line.line).lstrip()
    return line.frame == other.frame and text.startswith(f"{name} = ")


def _alike(left: Any, right: Any) -> bool:
    """Return True for equal values, of tensors where both have entries. Positions and token ids count as equal."""
    if isinstance(left, _Ids | _Placed) and type(left) is type(right):
        return True
    left, right = (value.value if isinstance(value, _Placed) else value for value in (left, right))
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        left, right = (value.reshape(value.shape[_leading(value) :]) for value in (left, right))
        if left.ndim != right.ndim or left.dtype != right.dtype:
            return True  # of all requests
        common = tuple(slice(0, min(sizes)) for sizes in zip(left.shape, right.shape, strict=True))
        return torch.allclose(left[common].double(), right[common].double(), CLOSE, CLOSE, equal_nan=True)
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=CLOSE, abs_tol=CLOSE) or (math.isnan(left) and math.isnan(right))
    return type(left) is not type(right) or bool(left == right)


def _leading(value: torch.Tensor) -> int:
    """Return the number of dimensions of size 1 at the beginning."""
    return next((n for n, size in enumerate(value.shape) if size != 1), value.ndim)
