"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import re
import reprlib
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from lpkit_conformance.explanation.advice import CAUSES, FIXES
from lpkit_conformance.instruments.author_lines import is_authors, syntax_of

MISCALLED = r"(\w+)\(\) (?:takes|got multiple values|missing \d+ required)"
"""How Python says that a call has other arguments than the function."""

BEYOND = r"index (\d+) is out of bounds for .* size (\d+)|mask \[(\d+)\] .* indexed tensor \[(\d+)"
"""How torch says that an index, or the length of a mask, is not one of a dimension."""

TOO_LARGE = "too (large|big)|out of bounds"
"""How Python, torch and numpy say that a number does not fit in a type."""

NUMBERS = r"\b(?:rows|request)\.(?:slots?|index)\b|\b(?:\w+\.)?\w*idx_mapping\b|\breq_idx\b"
"""Usual names of the number of a row or a slot."""

MOST_VALUES = 3
"""Variables of a line that a cause names."""


def read(kind: str, text: str, error: BaseException | None = None) -> tuple[str, str, str]:
    """Return cause and fix of an exception of type ``kind``, and the line at fault if it does not raise itself.

    What is not known is empty.
    """
    line, values = "", _values(error) if error is not None else ""
    index = size = 0
    stored = ""
    if error is not None and (line := _prompt_first(error)):
        kind = "prompt first"
    elif error is not None and _reads_environment(error):
        kind = "environment"
    elif "assign a NoneType" in text:
        kind = "returned None"
    elif (called := miscalled(kind, text, error)) and called != "__init__":
        kind = "signature" if called in ("apply", "add_request", "update_state") else "three counted"
    elif kind in ("AttributeError", "TypeError") and "NoneType" in text:
        kind = "None"
    elif kind == "IndexError" and error is not None and (before := _beyond(error)) is not None:
        kind, line = "one beyond", before
    elif found := re.search(BEYOND, text):
        index, size = (int(number) for number in found.groups() if number)
        kind = _not_in_logits(error, index, size, found[3]) or ("one beyond" if index == size else kind)
        values, line = _index_at(error, index) if error is not None else ("", "")
    elif error is not None and (found := re.search(r"tensor a \((\d+)\) must match .*tensor b \((\d+)\)", text)):
        kind = "a value per row" if _values_per_row(error, {int(found[1]), int(found[2])}) else kind
    elif re.search(r"'\w*Config' object has no attribute", text):
        kind = "config field"
    elif (found := re.search(r"'(\w+)' object has no attribute", text)) and not hasattr(builtins, found[1]):
        kind = "missing attribute"
    if kind == "OverflowError" and not re.search(TOO_LARGE, text):
        kind = "out of range"
    if re.search("without overflow|Overflow when", text):  # torch raises others
        kind = "OverflowError"
    if kind == "None" and values.endswith(" is None"):
        kind = "this None"
    if kind == "OverflowError" and error is not None:
        from lpkit_conformance.instruments.trails import set_by  # loads torch

        stored = next((set_by(f"{frame.f_code.co_filename}:{at}") for frame, at in _author_frames(error)), "")
    causes = (
        "" if kind in ("prompt first", "OverflowError") else values,
        CAUSES["exception"].get(kind, "").format(index=index, size=size, stored=f" of `{stored}`" if stored else ""),
    )
    return "; ".join(filter(None, causes)), FIXES["exception"].get(kind, ""), line


def miscalled(kind: str, text: str, error: BaseException | None) -> str:
    """Return the name of a function that the engine called with other arguments than it takes; else an empty text."""
    found = re.search(MISCALLED, text) if kind == "TypeError" else None
    return found[1] if found and (error is None or not any(_author_frames(error))) else ""


def _not_in_logits(error: BaseException | None, index: int, size: int, mask: str | None) -> str:
    """Return the kind of an index that meets the rows or the vocabulary of the author's logits; else an empty text."""
    for frame, _ in _author_frames(error) if error else ():
        for name, value in frame.f_locals.items():
            shape = tuple(getattr(value, "shape", ())) if "logits" in name else ()
            if shape[:-1] == (size,):
                return "mask beyond rows" if mask else "slot as row" if index in _slots(frame) else "no row"
            if shape[-1:] == (size,) and not mask:
                return "no token"
    return ""


def _index_at(error: BaseException, index: int) -> tuple[str, str]:
    """Return the variable at fault that holds an index, and ``file:line`` that makes it of numbers of rows or slots."""
    with contextlib.suppress(Exception):  # as in _values
        frame, number = next(_author_frames(error))
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        nodes = [node for node in ast.walk(parsed(file, number)) if isinstance(node, ast.Name | ast.Attribute)]
        name = next(
            ast.unparse(node)
            for node in nodes
            if "logits" not in ast.unparse(node) and _holds(value_of(node, frame), index)
        )
        makes = re.compile(rf"\s*{re.escape(name)} = .*({NUMBERS})")
        made = [line for line in range(first, number) if makes.match(linecache.getline(file, line))]
        return f"`{name}` holds {index}", f"{file}:{made[-1]}" if made else ""
    return "", ""


def _holds(value: Any, number: int) -> bool:
    """Return True if a number is in a value, or in one of its parts."""
    value = value.tolist() if hasattr(value, "tolist") and "float" not in str(value.dtype) else value
    parts = value if isinstance(value, list | tuple | set) else ()
    return (type(value) is int and value == number) or any(_holds(part, number) for part in parts)


def _slots(frame: FrameType) -> list[int]:
    """Return the slots of a call's rows, which its context or its ``rows`` tells."""
    for value in frame.f_locals.values():
        for name in ("expanded_idx_mapping", "slots"):
            if hasattr(slots := getattr(value, name, ()), "tolist"):
                return [int(slot) for slot in slots]
    return []


def _reads_environment(error: BaseException) -> bool:
    """Return True if the line at fault reads a variable of the environment."""
    at = next(((frame.f_code.co_filename, line) for frame, line in _author_frames(error)), None)
    return at is not None and bool(re.search(r"\benviron\b|\bgetenv\(", linecache.getline(*at)))


def _author_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield frames and lines of the author's code, the last call first."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_authors(frame.f_code.co_filename):
            yield frame, line


def _values(error: BaseException) -> str:
    """Return what the line at fault reads: an entry that is not there, else its plain variables and attributes."""
    with contextlib.suppress(Exception):  # no line, one of a longer statement, or names that it has changed since
        frame, number = next(_author_frames(error))
        nodes = list(ast.walk(parsed(frame.f_code.co_filename, number)))
        for name, at, held, index in _looked_up(nodes, frame):
            if isinstance(held, dict) and index not in held:
                return f"`{name}` has no entry {index!r}"
            if isinstance(held, list | tuple) and not -len(held) <= index < len(held):
                which = "the index" if at == str(index) else f"`{at}`"
                return f"`{name}` has {len(held)} entr{'y' if len(held) == 1 else 'ies'}, and {which} is {index}"
        read = {ast.unparse(node): _plain(node, frame) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}
        if "NoneType" in str(error) and "None" in read.values():
            read = {name: value for name, value in read.items() if value == "None"}
        return " and ".join([f"`{name}` is {value}" for name, value in read.items() if value][:MOST_VALUES])
    return ""


def tested(error: BaseException) -> tuple[str, str]:
    """Return name and value of the first plain variable that the condition of the author's ``raise`` asks."""
    with contextlib.suppress(Exception):  # as above
        frame, number = next(_author_frames(error))
        around = [node for node in ast.walk(syntax_of(frame.f_code.co_filename)) if isinstance(node, ast.If)]
        around = [node for node in around if node.lineno <= number <= (node.end_lineno or 0)]
        test = max(around, key=lambda node: node.lineno).test
        asked = [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)]
        plain = ((ast.unparse(node), _plain(node, frame)) for node in asked)
        return next((name, value) for name, value in plain if value and value[0] not in "([")
    return "", ""


def _beyond(error: BaseException) -> str | None:
    """Return ``file:line`` of the condition that lets an index through which is the size; None for other indices.

    It is empty if no condition around the line, or before it with a return, asks for the index.
    """
    with contextlib.suppress(Exception):  # as above
        frame, number = next(_author_frames(error))
        file, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
        if any(hasattr(value, "moved") for value in frame.f_locals.values()):
            return None  # rows of a batch that changes
        for name, at, held, index in _looked_up(ast.walk(parsed(file, number)), frame):
            if isinstance(held, list | tuple) and index == len(held):
                tests = [
                    node.lineno
                    for node in ast.walk(syntax_of(file))
                    if isinstance(node, ast.If) and first <= node.lineno < number and _reads(node.test, at)
                    if number <= (node.end_lineno or 0) or isinstance(node.body[-1], ast.Return | ast.Continue)
                ]
                tests = tests or [
                    node.lineno  # of a property or a method that the condition asks
                    for node in ast.walk(syntax_of(file))
                    if isinstance(node, ast.Compare) and {at, f"len({name})"} <= set(map(ast.unparse, ast.walk(node)))
                ]
                return f"{file}:{max(tests)}" if tests else ""
    return None


def _reads(test: ast.expr, text: str) -> bool:
    """Return True if a condition, or a part of it, is this text."""
    return any(isinstance(node, ast.expr) and ast.unparse(node) == text for node in ast.walk(test))


def _looked_up(nodes: Iterable[ast.AST], frame: FrameType) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the texts and the values of what is looked up, and of the index."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and only_looks(node):
            with contextlib.suppress(Exception):  # of a variable of a comprehension, such as an outer one
                yield (
                    *(ast.unparse(node.value), ast.unparse(node.slice)),
                    *(value_of(node.value, frame), value_of(node.slice, frame)),
                )


def _plain(node: ast.Name | ast.Attribute, frame: FrameType) -> str:
    """Return the value of a variable or an attribute as a short text; empty unless it is plain data."""
    if isinstance(node, ast.Name):
        value = frame.f_locals.get(node.id, ...)
    else:
        owner = frame.f_locals.get(node.value.id) if isinstance(node.value, ast.Name) else None
        fields = (*getattr(owner, "__dict__", ()), *getattr(owner, "_fields", ()), *getattr(owner, "__slots__", ()))
        value = getattr(owner, node.attr, ...) if node.attr in fields else ...
    return reprlib.repr(value) if type(value) in (int, float, str, bool, list, tuple, type(None)) else ""


def parsed(file: str, line: int) -> ast.Module:
    """Return the statement of a line, or the head of a longer one. Raises SyntaxError for a part of a statement."""
    text = linecache.getline(file, line).strip()
    text = text.removeprefix("el") if text.startswith("elif ") else text
    with contextlib.suppress(SyntaxError):
        return ast.parse(text)
    return ast.parse(f"{text}\n    pass")


def only_looks(node: ast.AST) -> bool:
    """Return True if the expression can be evaluated once more: it calls nothing but ``len``."""
    return all(ast.unparse(call.func) == "len" for call in ast.walk(node) if isinstance(call, ast.Call))


def value_of(node: ast.expr, frame: FrameType) -> Any:
    return eval(compile(ast.Expression(node), "", "eval"), frame.f_globals, frame.f_locals)


def _values_per_row(error: BaseException, sizes: set[int]) -> bool:
    """Return True if a local tensor of logits ``[n, vocab]`` explains two sizes that do not go together."""
    return any(
        getattr(value, "ndim", 0) == 2 and sizes == set(value.shape)
        for frame, _ in _author_frames(error)
        for value in frame.f_locals.values()
    )


def _prompt_first(error: BaseException) -> str:
    """Return ``file:line`` of an author's function whose argument for logits got token ids; empty if none did."""
    return next(
        (
            f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}"
            for frame, _ in _author_frames(error)
            for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]
            if "logits" in name and isinstance(frame.f_locals.get(name), list)
        ),
        "",
    )
