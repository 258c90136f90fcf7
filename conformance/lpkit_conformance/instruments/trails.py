"""The author's lines that run, with the values that they see: the line from which on two runs differ."""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch

from lpkit_conformance.instruments.author_lines import following, syntax_of

MOST_SEEN = 10_000
"""Events that are kept; processes of plugins differ early."""

MOST_ITEMS, MOST_DEPTH = 64, 3
"""Items of a container that are compared, and containers in containers."""

LEAST_ADDRESS = 2**32
"""Keys of a dict from which on they may be an ``id``, which no decision is based on yet."""


class Seen(NamedTuple):
    """A line that is about to run, or the return of a function.

    Attributes:
        values: what the call can change: its variables, attributes of ``self``, and the value that it returns.
        given: data of the module and the class, by the names that the function uses.
    """

    frame: int
    file: str
    line: int
    values: dict[str, Any]
    given: dict[str, Any]


Values = tuple[dict[str, Any], dict[str, Any]]
"""See :class:`Seen`."""


def texts(frame: FrameType, returned: dict[str, Any]) -> Values:
    """Return what can be compared with another process; ``returned``: the function's result as ``return``, if known."""
    this, names = frame.f_locals.get("self"), frame.f_code.co_names
    kept = getattr(this, "__dict__", {})
    values = {**frame.f_locals, **{f"self.{name}": kept[name] for name in names if name in kept}, **returned}
    classes = {name: value for base in reversed(type(this).__mro__) for name, value in vars(base).items()}
    given = {name: frame.f_globals[name] for name in names if name in frame.f_globals}
    given |= {f"self.{name}": classes[name] for name in names if name in classes}
    return _texts(values), _texts(given)


def lines(frame: FrameType, returned: dict[str, Any]) -> Values:
    """Return no values: the lines are compared."""
    return {}, {}


@contextmanager
def trail(noted: Callable[[FrameType, dict[str, Any]], Values | None] = texts) -> Iterator[list[Seen]]:
    """Follow the author's lines; yield the list that gets the events; ``noted`` returns None to leave one out."""
    seen: list[Seen] = []
    frames: dict[FrameType, int] = {}

    def note(frame: FrameType, event: str, returned: Any) -> None:
        if event in ("line", "return") and len(seen) < MOST_SEEN:
            values = noted(frame, {"return": returned} if event == "return" else {})
            if values is not None:
                number = frames.setdefault(frame, len(frames))
                seen.append(Seen(number, frame.f_code.co_filename, frame.f_lineno, *values))

    with following(note):
        yield seen


def parting(here: list[Seen], there: list[Seen]) -> tuple[str, str]:
    """Return the name of what differs between two runs, and ``file:line`` of the line that takes it; else empty.

    Where the line itself makes the difference, the name is that of the variable it sets, if any. Data of a module or a
    class has its definition's line.
    """
    pairs = list(zip(here, there, strict=False))
    parted = next((n for n, (ours, theirs) in enumerate(pairs) if ours[2:4] != theirs[2:4]), None)
    if parted is None:
        return "", ""
    ours, theirs = pairs[parted]
    kept = [name for name in ours.values if name.startswith("self.") and ours.values[name] != theirs.values.get(name)]
    if parted == 0 and kept:
        word = re.compile(rf"{re.escape(kept[0])}\b")
        places = dict.fromkeys(f"{line.file}:{line.line}" for line in here if word.search(text_of(line)))
        return kept[0], next((place for place in places if word.match(changed_by(place))), [*places, ""][0])
    ran_before = [pair for pair in pairs[:parted] if pair[0].frame == ours.frame] or pairs[max(parted - 1, 0) : parted]
    returned = "return" in ours.values and ours.line == theirs.line
    line, others = (ours, theirs) if returned or not ran_before else ran_before[-1]
    names = [name for name, value in line.given.items() if others.given.get(name) != value and name in text_of(line)]
    if names:
        return names[0], definition(line.file, names[0]) or f"{line.file}:{line.line}"
    place = f"{line.file}:{line.line}"
    return "" if returned else set_by(place), place


def text_of(line: Seen) -> str:
    return linecache.getline(line.file, line.line)


def branching(here: list[Seen], there: list[Seen]) -> str:
    """Return ``file:line`` of the last line before two runs take different ways; empty if they take one."""
    ways = zip(here, here[1:], there[1:], strict=False)
    return next((f"{last.file}:{last.line}" for last, ours, theirs in ways if ours[:3] != theirs[:3]), "")


def set_by(place: str) -> str:
    """Return the variable or the attribute that the line ``file:line`` sets; empty if it sets none, or several."""
    file, _, number = place.rpartition(":")
    sets = re.match(r"\s*((?:self\.)?\w+)(?:\[.*\])? [-+*]?= ", linecache.getline(file, int(number or 0)))
    return sets[1] if sets else ""


def changed_by(place: str) -> str:
    """Return what the line ``file:line`` changes in place, or else sets; empty if it does neither."""
    file, _, number = place.rpartition(":")
    text = linecache.getline(file, int(number or 0))
    calls = re.search(r"\b([\w.]+)(?:\[[^]]*\])?\.(?:\w+_|append|extend|insert|pop|remove|clear|sort|reverse)\(", text)
    calls = re.search(r"\b(?:next\(|del )([\w.]+)[\[)]", text) or calls
    return calls[1] if calls else set_by(place)


def definition(file: str, name: str, owner: str = "") -> str:
    """``file:line`` of what gives a name to a module, or to its class ``owner``; empty if it does not do so once."""
    tree = syntax_of(file)
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef if "." in name else ast.Module)]
    bare_name = name.rpartition(".")[2]
    lines = [
        min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))])
        for scope in scopes
        for node in scope.body
        if owner in ("", getattr(scope, "name", ""))
        and (
            getattr(node, "name", "") == bare_name
            or (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and any(isinstance(part, ast.Name) and part.id == bare_name for part in ast.walk(node))
            )
        )
    ]
    return f"{file}:{lines[0]}" if len(lines) == 1 else ""


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: text for name, value in values.items() if (text := _text(value))}


def _text(value: Any, depth: int = 0) -> str:
    """Return what can be compared with another process's value; empty for objects. Sets are compared without order."""
    if isinstance(value, torch.Tensor):
        rounded = value.detach().double().mul(1e4).round().nan_to_num(nan=7e7)
        return f"{list(value.shape)} {hashlib.sha256(rounded.cpu().numpy().tobytes()).hexdigest()}"
    if isinstance(value, torch.Generator):
        return str(value.initial_seed())
    if isinstance(value, int | float | str | bytes | bool | None):
        return repr(value)[:200]
    if depth < MOST_DEPTH and type(value).__module__.startswith("lpkit."):  # columns
        return _text(getattr(value, "__dict__", {}), depth + 1)
    if depth < MOST_DEPTH and isinstance(value, dict):
        entries = [*value.items()]  # at once: a thread of the author's may add some meanwhile
        keys = ["" if isinstance(key, int) and key > LEAST_ADDRESS else _text(key, depth + 1) for key, _ in entries]
        return str([*zip(keys, [_text(item, depth + 1) for _, item in entries], strict=True)][:MOST_ITEMS])
    if depth < MOST_DEPTH and isinstance(value, list | tuple | set | frozenset):
        texts = [_text(item, depth + 1) for item in [*value]]
        return str((sorted(texts) if isinstance(value, set | frozenset) else texts)[:MOST_ITEMS])
    return ""
