"""The author's source files and their lines, without lpkit, torch, vLLM and the standard library."""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import lpkit

OWN = (Path(__file__).parents[1], Path(lpkit.__file__).parent)
LIBRARIES = frozenset({"torch", "vllm", "numpy", "pydantic", "_distutils_hack", "hypothesis"})
"""The last two run inside others' code: at imports, and when garbage is collected."""

STANDARD = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in')


@cache
def is_authors(file: str) -> bool:
    """True if the author would look into this file for the plugin's defect."""
    path = Path(file)
    if file.startswith("<") or _is_ours(path):
        return False
    if library := library_of(file):
        return library not in LIBRARIES
    return not any(folder in path.parents for folder in STANDARD)


def library_of(file: str) -> str:
    """Return the top folder or module of an installed file; empty for a file that is not installed."""
    parts = Path(file).parts
    return next((inside for part, inside in pairwise(parts) if part in ("site-packages", "dist-packages")), "")


def _is_ours(path: Path) -> bool:
    return any(folder in path.parents for folder in OWN)


Follow = Callable[[FrameType, str, Any], Any]
"""A function for :func:`sys.settrace`."""


def follower(note: Callable[[FrameType, str, Any], None], counts: Callable[[str], bool] = is_authors) -> Follow:
    """Return a function for :func:`sys.settrace` that calls ``note`` at each event in files for which ``counts``."""

    def follow(frame: FrameType, event: str, value: Any) -> Any:
        if not counts(frame.f_code.co_filename):
            return None
        note(frame, event, value)
        return follow

    return follow


@contextlib.contextmanager
def following(note: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Call ``note`` at each event in the author's functions that are called within it."""
    outer = sys.gettrace()
    sys.settrace(follower(note))
    try:
        yield
    finally:
        sys.settrace(outer)


def home_of(cls: Any) -> str:
    """Return the file of a class; empty if it is not a class, or has no file."""
    return getattr(sys.modules.get(getattr(cls, "__module__", "")), "__file__", None) or ""


def syntax_of(file: str) -> ast.Module:
    """Return the syntax tree of a file of the author's; not to be changed, as others get it, too."""
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def parsed(file: str, line: int) -> ast.Module:
    """Return the statement of a line, or the head of a longer one. Raises SyntaxError for a part of a statement."""
    text = linecache.getline(file, line).strip()
    text = text.removeprefix("el") if text.startswith("elif ") else text
    with contextlib.suppress(SyntaxError):
        return ast.parse(text)
    return ast.parse(f"{text}\n    pass")


def only_looks(node: ast.AST, calls: tuple[str, ...] = ("len",)) -> bool:
    """Return True if the expression can be evaluated once more: it calls nothing but these functions."""
    return all(ast.unparse(call.func) in calls for call in ast.walk(node) if isinstance(call, ast.Call))


def value_of(node: ast.expr, frame: FrameType) -> Any:
    """Evaluate an expression with the variables of a frame."""
    return eval(compile(ast.Expression(node), "", "eval"), frame.f_globals, frame.f_locals)


def location_of(error: BaseException) -> str:
    """Return ``file:line`` of the author's innermost frame, or of a syntax error; empty if the trace has neither."""
    if isinstance(error, SyntaxError) and error.filename and is_authors(error.filename):
        return f"{error.filename}:{error.lineno or 1}"
    best = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if is_authors(frame.filename):
            best = f"{frame.filename}:{frame.lineno}"
    return best


def location_in(stacks: str) -> str:
    """The same in a dump of :mod:`faulthandler`, for the thread that runs the checks."""
    for section in re.split(r"\n\s*\n|\n(?=Thread |Current thread )", stacks):
        frames = [(match["file"], match["line"]) for match in FRAME.finditer(section)]  # innermost first
        if any(_is_ours(Path(file)) for file, _ in frames):
            return next((f"{file}:{line}" for file, line in frames if is_authors(file)), "")
    return ""
