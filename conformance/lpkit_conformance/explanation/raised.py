"""An exception of the plugin's, with the line that raised it and the values that the line read."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import reprlib
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from lpkit_conformance.instruments.author_lines import is_authors, only_looks, parsed, syntax_of, value_of

MOST_VALUES = 3
"""Variables of a line that a cause names."""

DEPTH, MOST_PARTS = 8, 4096
"""Levels of dicts, lists and attributes in which a request's arguments are looked for, and values of a level."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def unless_unreadable(default: Any) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Let a function return ``default`` if it raises.

    So it does without a line, at a part of a longer statement, or with names that the line has changed since.
    """

    def decorate(look: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(look)
        def looked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            result: _T = default
            with contextlib.suppress(Exception):
                result = look(*args, **kwargs)
            return result

        return looked

    return decorate


class Raised:
    """An exception and the line of the author's that raised it; properties of the line raise without one."""

    def __init__(self, kind: str, text: str, error: BaseException | None) -> None:
        """Read the frames of an exception.

        Args:
            kind: name of its type.
            text: its message.
            error: the exception itself; None if it is gone, as with a lost child.
        """
        self.kind, self.text, self.error = kind, text, error
        walked = reversed([*traceback.walk_tb(error.__traceback__)]) if error is not None else ()
        self.frames = [(frame, line) for frame, line in walked if is_authors(frame.f_code.co_filename)]
        """Frames and lines of the author's code, the last call first."""

    @property
    def frame(self) -> FrameType:
        return self.frames[0][0]

    @property
    def file(self) -> str:
        return self.frame.f_code.co_filename

    @property
    def number(self) -> int:
        """The number of the line in its file."""
        return self.frames[0][1]

    @property
    def first(self) -> int:
        """The number of the function's first line."""
        return self.frame.f_code.co_firstlineno

    @cached_property
    def statement(self) -> ast.Module:
        return parsed(self.file, self.number)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All parts of the line."""
        return [*ast.walk(self.statement)]

    def above(self) -> Iterator[tuple[int, str]]:
        """Yield numbers and texts of the function's lines before the line that raised."""
        yield from ((number, linecache.getline(self.file, number)) for number in range(self.first, self.number))

    def locals(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of the variables of all frames."""
        yield from (item for frame, _ in self.frames for item in frame.f_locals.items())

    def looked_up(self) -> Iterator[tuple[str, str, Any, Any]]:
        """Yield the texts and the values of what the line looks up, and of the index."""
        for node in self.nodes:
            if isinstance(node, ast.Subscript) and only_looks(node):
                with contextlib.suppress(Exception):  # of a variable of a comprehension, such as an outer one
                    yield (
                        *(ast.unparse(node.value), ast.unparse(node.slice)),
                        *(value_of(node.value, self.frame), value_of(node.slice, self.frame)),
                    )

    def code(self) -> Iterator[tuple[str, ast.AST]]:
        """Yield the code in the modules of the failing objects, with its file, but no classes of other objects."""
        objects = [
            frame.f_locals[name] for frame, _ in self.frames for name in ("self", "cls") if name in frame.f_locals
        ]
        bases = [base for item in objects for base in (item if isinstance(item, type) else type(item)).__mro__]
        files = {frame.f_code.co_filename: None for frame, _ in self.frames}
        files |= {getattr(sys.modules.get(base.__module__), "__file__", None) or "<": None for base in bases}
        names = {base.__name__ for base in bases}
        for file in filter(is_authors, files):
            body = syntax_of(file).body
            failing = [node for node in body if isinstance(node, ast.ClassDef) and (node.name in names or not names)]
            used = names | {node.id for part in failing for node in ast.walk(part) if isinstance(node, ast.Name)}
            parts = [
                node for node in body if not isinstance(node, ast.ClassDef) or node.name in used or node in failing
            ]
            yield from ((file, node) for part in parts for node in ast.walk(part))

    def tables(self) -> Iterator[dict[Any, Any]]:
        """Yield the dicts that the frames hold, also inside requests' arguments and the state of objects."""
        parts: list[Any] = [frame.f_locals for frame, _ in self.frames]
        for _ in range(DEPTH):
            yield from (part for part in parts if isinstance(part, dict))
            parts = [inner for part in parts for inner in _parts(part) if inner is not None][:MOST_PARTS]

    def slots(self) -> list[int]:
        """Return the slots of a call's rows, which its context or its ``rows`` tells."""
        for _, value in self.locals():
            for name in ("expanded_idx_mapping", "slots"):
                if hasattr(slots := getattr(value, name, ()), "tolist"):
                    return [int(slot) for slot in slots]
        return []

    @unless_unreadable("")
    def values(self) -> str:
        """Return what the line reads: an entry that is not there, else its plain variables and attributes."""
        for name, at, held, index in self.looked_up():
            if isinstance(index, slice):
                continue
            if isinstance(held, dict) and index not in held and self.kind == "KeyError" and repr(index) in self.text:
                return f"`{name}` has no entry {index!r}"
            if isinstance(held, list | tuple | deque) and not -len(held) <= index < len(held):
                which = "the index" if at == str(index) else f"`{at}`"
                return f"`{name}` has {len(held)} entr{'y' if len(held) == 1 else 'ies'}, and {which} is {index}"
        divisors = self._divisors() if self.kind == "ZeroDivisionError" else []
        if len(divisors) == 1 and looked_at(divisors[0], self.frame) == 0:
            return f"`{ast.unparse(divisors[0])}` is 0"
        parts = [part for node in divisors for part in ast.walk(node)] or self.nodes
        names = [node for node in parts if isinstance(node, ast.Name | ast.Attribute)]
        names = [node for node in names if ast.unparse(node) != "is_pin_memory"]  # the same in every run
        read = {ast.unparse(node): value for node in names if (value := _plain(node, self.frame))}
        if "NoneType" in self.text and "None" in read.values():
            read = {name: value for name, value in read.items() if value == "None"}
        read = {name: value for name, value in read.items() if _named(value, self.text)} or read
        return " and ".join([f"`{name}` is {value}" for name, value in read.items()][:MOST_VALUES])

    def _divisors(self) -> list[ast.AST]:
        """Return what the line divides by, unless it is known to be another number than 0."""
        divisors: list[ast.AST] = []
        for node in self.nodes:
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
                divisors.append(node.right if isinstance(node, ast.BinOp) else node.value)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "divmod":
                divisors += node.args[1:]
        return [node for node in divisors if looked_at(node, self.frame) in (None, 0)]

    @unless_unreadable(("", ""))
    def tested(self) -> tuple[str, str]:
        """Return name and value of the first plain variable that the condition of the author's ``raise`` asks."""
        around = [node for node in ast.walk(syntax_of(self.file)) if isinstance(node, ast.If)]
        around = [node for node in around if node.lineno <= self.number <= (node.end_lineno or 0)]
        test = max(around, key=lambda node: node.lineno).test
        asked = [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)]
        plain = ((ast.unparse(node), _plain(node, self.frame)) for node in asked)
        return next((name, value) for name, value in plain if value and value[0] not in "([")


def looked_at(node: ast.AST, frame: FrameType) -> Any:
    """Return the value of a part of a line; None if it is not to be evaluated once more, or has none."""
    with contextlib.suppress(Exception):
        if isinstance(node, ast.expr) and only_looks(node, ("len", "int", "min", "max")):
            return value_of(node, frame)
    return None


def holds(value: Any, number: int) -> bool:
    """Return True if a number is in a value, or in one of its parts."""
    value = value.tolist() if hasattr(value, "tolist") and "float" not in str(value.dtype) else value
    parts = value if isinstance(value, list | tuple | set) else ()
    return (type(value) is int and value == number) or any(holds(part, number) for part in parts)


def _named(value: str, message: str) -> bool:
    """Return True if a message names the type of a written value, or ends with the value."""
    with contextlib.suppress(ValueError):  # shortened
        return message.endswith(f": {value}") or f"'{type(ast.literal_eval(value)).__name__}'" in message
    return False


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict | list | tuple):
        return value.values() if isinstance(value, dict) else value
    return getattr(value, "extra_args", None), getattr(value, "__dict__", None)


def _plain(node: ast.Name | ast.Attribute, frame: FrameType) -> str:
    """Return the value of a variable or an attribute as a short text; empty unless it is plain data."""
    if isinstance(node, ast.Name):
        value = frame.f_locals.get(node.id, ...)
    else:
        owner = frame.f_locals.get(node.value.id) if isinstance(node.value, ast.Name) else None
        fields = (*getattr(owner, "__dict__", ()), *getattr(owner, "_fields", ()), *getattr(owner, "__slots__", ()))
        value = getattr(owner, node.attr, ...) if node.attr in fields else ...
    is_plain = type(value) in (int, float, str, bool, list, tuple, deque, type(None))
    is_plain |= isinstance(value, dict | set) and not value
    return reprlib.repr(value) if is_plain else ""
