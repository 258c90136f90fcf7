"""One request in the failing program and alone: where the author's code takes another way or computes another value."""

from __future__ import annotations

import ast
import contextlib
import copy
import linecache
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from lpkit import Rows

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.exceptions import only_looks, parsed
from lpkit_conformance.explanation.state import short_text
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts import Host
from lpkit_conformance.instruments.author_lines import is_authors
from lpkit_conformance.instruments.trails import Seen, Values, trail
from lpkit_conformance.programs.generate import Op, Step
from lpkit_conformance.subject.subject import Subject

CLOSE = 1e-4
"""Difference up to which batches of different sizes may compute a number."""

PLACES = ("index", "slots", "idx_mapping", "expanded_idx_mapping")
"""Attributes of arguments that say where the rows are; other batches have other places."""

PLAIN = (int, float, str, type(None), list, tuple, set, dict)


class Apart(NamedTuple):
    """The first difference between the program and the solo run.

    Attributes:
        kind: a condition that asks data of the author's and is answered otherwise, any other condition, a look-up in an
            attribute, or a variable.
        line: ``file:line`` of the statement.
        name: of the data that it asks or looks up, or of the variable that it sets; empty for other conditions.
        here, alone: the values in short; empty if they are long.
    """

    kind: Literal["asked", "way", "read", "set"]
    line: str
    name: str
    here: str = ""
    alone: str = ""

    @property
    def cause(self) -> str:
        """Return what is wrong, with the proof."""
        values = f": {self.here}, and {self.alone} alone" if self.here and self.alone else ""
        return advice.cause("return" if self.name == "return" else self.kind, "apart").format(
            name=self.name, values=values
        )


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

    A loop over all requests hides it.
    """
    with contextlib.suppress(Exception):  # whatever the plugin or its objects raise: a clue is being looked for
        trails = []
        host = make_host(subject, max_num_seqs)
        trails.append(_followed(host, ops, mismatch.request, mismatch.step, mismatch.row))
        arrived = host.pool.requests[mismatch.request].arrived
        steps = mismatch.position - arrived.prompt_len + 1
        trails.append(_followed(make_host(subject, max_num_seqs), [arrived, Step(steps)], mismatch.request, steps, 0))
        found = next(filter(None, (_first(here, alone) for here, alone in zip(*trails, strict=True))), None)
        column = getattr(host.processor, found.name.removeprefix("self."), None) if found else None
        if found and found.kind == "read" and type(column).__module__.startswith("lpkit."):  # looked up as it should be
            writes = Writes(subject.plugin.cls, found.name, host.position(mismatch.row, mismatch.request))
            again = make_host(subject, max_num_seqs)
            with subject.as_imported(), again.driver.watched(partial(writes.around, value=lambda: None)):
                list(again.run(ops))
            found = found._replace(line=writes.line or found.line)
        return found
    return None


def _followed(host: Host, ops: Sequence[Op], name: str, step: int, row: int) -> tuple[list[Seen], list[Seen]]:
    """Return the lines that run when the request enters, and when its ``row`` is computed in a step."""
    entry: list[Seen] = []
    edit: list[Seen] = []

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        active = host.pool.requests.get(name)
        noted, into = None, entry
        if method == "apply" and host.step == step:
            noted, into = _noting(partial(_row_in, args[0][row].clone(), row)), edit
        elif method != "apply" and active is not None and not entry:
            noted = _noting(partial(_entry_in, active.request.params))
        followed: AbstractContextManager[list[Seen]] = trail(noted) if noted else nullcontext([])
        with followed as seen:
            yield
        into += seen

    with host.subject.as_imported(), host.driver.watched(watch):
        for _ in host.run(ops):
            if host.step == step:
                break
    return entry, edit


def _noting(place_in: Callable[[FrameType], _Place | None]) -> Callable[[FrameType, dict[str, Any]], Values | None]:
    """Return what a trail notes of the request; functions that get other requests, or none, are left out."""
    places: dict[FrameType, _Place | None] = {}

    def place_of(frame: FrameType | None) -> _Place | None:
        if frame is None or not is_authors(frame.f_code.co_filename):
            return None
        if frame not in places:
            places[frame] = place_in(frame) or (None if _gets_rows(frame) else place_of(frame.f_back))
        return places[frame]

    def noted(frame: FrameType, returned: dict[str, Any]) -> Values | None:
        place = place_of(frame)
        if place is None:
            return None
        values, read = {**frame.f_locals, **returned}, {}
        for text, code in _reads(frame.f_code.co_filename, frame.f_lineno):
            with contextlib.suppress(Exception):  # what the line itself will raise
                read[text] = eval(code, frame.f_globals, frame.f_locals)
        return _parts(values, place), _parts(read, place)

    return noted


def _arguments(frame: FrameType) -> list[Any]:
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return [frame.f_locals[name] for name in names if name in frame.f_locals]


def _gets_rows(frame: FrameType) -> bool:
    return any(isinstance(value, Rows) or getattr(value, "ndim", 0) > 0 for value in _arguments(frame))


def _row_in(before: torch.Tensor, row: int, frame: FrameType) -> _Place | None:
    """Return the place of the ``row`` that comes as ``before`` in what a function gets."""
    given = _arguments(frame)
    found = [getattr(value, name) for value in given for name in PLACES if hasattr(value, name)]
    places = [value.tolist() for value in found if isinstance(value, torch.Tensor)]
    for value in given:
        if isinstance(value, Rows):
            own = value.index.tolist()
            return _Place(own.index(row), value.n, places) if row in own else None
    for value in given:
        if isinstance(value, torch.Tensor) and value.shape[-1:] == before.shape:
            if value.ndim == 1 and torch.equal(value, before):
                return _Place(-1, 0)
            if value.ndim == 2 and row < len(value) and torch.equal(value[row], before):
                return _Place(row, len(value), places)
    return None


def _entry_in(params: Any, frame: FrameType) -> _Place | None:
    """Return a place without values if a function gets these parameters, or a request with them."""
    given = [part for value in _arguments(frame) for part in (value, getattr(value, "sampling_params", None))]
    return _Place(-1, -1) if any(value is params for value in given) else None


def _parts(values: Mapping[str, Any], place: _Place) -> dict[str, Any]:
    """Return what is the request's of each value, and can be compared."""
    if place.rows < 0:
        return {}
    found = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            whole = place.row < 0 or value.ndim == 0 or len(value) != place.rows
            part = value.clone() if whole else value[place.row].clone()
            if not whole and part.ndim and not part.is_floating_point() and part.dtype != torch.bool:
                continue  # token ids, behind which a buffer may hold those of others
            placed = not (whole or value.is_floating_point()) and value.tolist() in place.places
            found[name] = _Placed(part) if placed else part
        elif isinstance(value, float) or (place.row < 0 and type(value) in PLAIN):
            found[name] = copy.deepcopy(value)
    return found


@cache
def _reads(file: str, line: int) -> list[tuple[str, Any]]:
    """Return the name and the code of each look-up in an attribute of the instance in a line of one statement."""
    with contextlib.suppress(SyntaxError):
        nodes = [node for node in ast.walk(parsed(file, line)) if isinstance(node, ast.Subscript)]
        nodes = [node for node in nodes if isinstance(node.ctx, ast.Load) and only_looks(node)]
        kept = [node for node in nodes if isinstance(node.value, ast.Attribute) and _of_instance(node.value)]
        return [(ast.unparse(node.value), compile(ast.Expression(node), file, "eval")) for node in kept]
    return []


def _of_instance(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _first(here: list[Seen], alone: list[Seen]) -> Apart | None:
    last: dict[int, Seen] = {}
    latest: Seen | None = None
    for one, other in zip(here, alone, strict=False):
        if one[:3] != other[:3]:
            return _asked(latest) if latest else None
        for name in one.given.keys() & other.given.keys():
            if not _alike(one.given[name], other.given[name]):
                return _apart("read", one, name, one.given[name], other.given[name])
        for name in one.values.keys() & other.values.keys():
            if not _alike(one.values[name], other.values[name]):
                line = one if name == "return" else last.get(one.frame)
                return _apart("set", line, name, one.values[name], other.values[name]) if line else None
        last[one.frame] = latest = one
    return None


def _apart(kind: Literal["read", "set"], seen: Seen, name: str, here: Any, alone: Any) -> Apart | None:
    if linecache.getline(seen.file, seen.line).lstrip().startswith(("for ", "while ")):
        return None
    values = (short_text(value.value if isinstance(value, _Placed) else value) for value in (here, alone))
    return Apart(kind, f"{seen.file}:{seen.line}", name, *values)


def _asked(seen: Seen) -> Apart | None:
    """Return the condition that was answered otherwise, with what it asks of that which the author's code keeps."""
    with contextlib.suppress(SyntaxError):
        tree = parsed(seen.file, seen.line)
        if isinstance(tree.body[0], ast.If):
            nodes = list(ast.walk(tree.body[0].test))
            looked = [node for node in nodes if isinstance(node, ast.Compare)]
            inside = [node.comparators[0] for node in looked if isinstance(node.ops[0], ast.In | ast.NotIn)]
            kept = [*filter(_of_instance, nodes), *inside]
            kind: Literal["asked", "way"] = "asked" if kept else "way"
            return Apart(kind, f"{seen.file}:{seen.line}", ast.unparse(kept[0]) if kept else "")
    return None


def _alike(one: Any, other: Any) -> bool:
    """Return True for equal values; of tensors, in the part that both have. Places are alike."""
    if isinstance(one, _Placed) and isinstance(other, _Placed):
        return True
    one, other = (value.value if isinstance(value, _Placed) else value for value in (one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        one, other = (value.reshape(value.shape[_leading(value) :]) for value in (one, other))
        if one.ndim != other.ndim or one.dtype != other.dtype:
            return True  # of all requests
        common = tuple(slice(0, min(sizes)) for sizes in zip(one.shape, other.shape, strict=True))
        return torch.allclose(one[common].double(), other[common].double(), CLOSE, CLOSE, equal_nan=True)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or (math.isnan(one) and math.isnan(other))
    return type(one) is not type(other) or bool(one == other)


def _leading(value: torch.Tensor) -> int:
    """Return the number of dimensions of size 1 at the beginning."""
    return next((n for n, size in enumerate(value.shape) if size != 1), value.ndim)
