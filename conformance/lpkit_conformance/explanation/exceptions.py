"""The likely cause and fix of an exception, where its type and text are enough to know them."""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import re
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from lpkit_conformance.explanation.advice import CAUSES, FIXES
from lpkit_conformance.instruments.author_lines import is_authors


def read(kind: str, text: str, error: BaseException | None = None) -> tuple[str, str, str]:
    """Return cause and fix of an exception of type ``kind``, and the line at fault if it does not raise itself.

    What is not known is empty.
    """
    line = ""
    if error is not None and (line := _prompt_first(error)):
        kind = "prompt first"
    elif "assign a NoneType" in text:
        kind = "returned None"
    elif kind == "TypeError" and "takes 2 positional arguments but 3 " in text:
        kind = "three counted"
    elif kind in ("AttributeError", "TypeError") and "NoneType" in text:
        kind = "None"
    elif kind == "IndexError" and error is not None and (entries := _beyond(error)):
        return f"{entries[0]}: {CAUSES['exception']['one beyond']}", FIXES["exception"]["one beyond"], entries[1]
    elif (found := re.search(r"index (\d+) is out of bounds for .* size (\d+)", text)) and found[1] == found[2]:
        kind = "one beyond"
    elif error is not None and (found := re.search(r"tensor a \((\d+)\) must match .*tensor b \((\d+)\)", text)):
        kind = "a value per row" if _values_per_row(error, {int(found[1]), int(found[2])}) else kind
    elif re.search(r"'\w*Config' object has no attribute", text):
        kind = "config field"
    elif (found := re.search(r"'(\w+)' object has no attribute", text)) and not hasattr(builtins, found[1]):
        kind = "missing attribute"
    return CAUSES["exception"].get(kind, ""), FIXES["exception"].get(kind, ""), line


def _author_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield frames and lines of the author's code, the last call first."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_authors(frame.f_code.co_filename):
            yield frame, line


def _beyond(error: BaseException) -> tuple[str, str] | None:
    """Return the list that was asked for the entry right behind its last, and the condition before it; else None."""
    from lpkit_conformance.explanation.writes import branches  # late: modules of checks load without torch

    with contextlib.suppress(Exception):  # no line, one of a longer statement, or names that it has changed since
        frame, number = next(_author_frames(error))
        for node in ast.walk(parsed(frame.f_code.co_filename, number)):
            if isinstance(node, ast.Subscript) and only_looks(node):
                held, index = _value(node.value, frame), _value(node.slice, frame)
                if isinstance(held, list | tuple) and index == len(held):
                    name, at = ast.unparse(node.value), ast.unparse(node.slice)
                    tests = [str(test) for test in branches(frame.f_code, number) if at in test.text]
                    return f"`{name}` has {len(held)} entries, and `{at}` is {index}", tests[-1] if tests else ""
    return None


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


def _value(node: ast.expr, frame: FrameType) -> Any:
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
