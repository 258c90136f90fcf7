"""The author's line that wrote a value, or the branch that failed to: found by following the lines of a failing run."""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from lpkit_conformance.explanation.state import MISSING, Parts, parts_of
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.hosts.base import Host
from lpkit_conformance.instruments.author_lines import following, is_authors, parsed, syntax_of

ANYWHERE = -1
"""In the place of a position: each request that comes counts."""


NUMBERS = ("int", "float", "bool")


class Line(NamedTuple):
    """A line that ran, and the function that it is in."""

    code: CodeType
    number: int

    @property
    def text(self) -> str:
        return linecache.getline(self.code.co_filename, self.number)

    @property
    def of_function(self) -> list[str]:
        """All lines of its function, as texts."""
        return [f"{self.code.co_filename}:{number}" for *_, number in self.code.co_lines()]

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.number}"


class Writes:
    """Follows the calls of a plugin, and notes the lines that change one value.

    Args:
        cls: the plugin's class.
        name: of the value; empty if only :attr:`last` is asked for.
        position: the row or slot of the request that is wrong; None: no request in particular.
        until: a line behind which the calls are of no interest.
        edits: the value is looked up in ``apply``, and not when a request comes.

    Attributes:
        first, last: the first and the last line that wrote it, since the request came to its position.
        ran: the last line that ran.
        reported: the first line that names it in the last call before ``apply`` that does.
    """

    def __init__(
        self, cls: type, name: str = "", position: int | None = None, until: Line | None = None, edits: bool = False
    ) -> None:
        self._call("." in name, re.sub(r"\[[^]]*\]", "", name).rpartition(".")[2])
        self._moves = False
        self._position = position
        self._until = until
        self._edits = edits
        self._former: Line | None = None
        self._then: Line | None = None
        self._stored: Line | None = None
        self.reported: Line | None = None
        self.first: Line | None = None
        self.last: Line | None = None
        self._of_entry = "]." in name
        self._kept: Line | None = None
        self._entered: list[Line] = []
        self._at: tuple[Line, ...] = ()
        self._written_at: tuple[Line, ...] = ()
        self._blamed: dict[Line, Line] = {}
        self.ran: Line | None = None
        self._inherited = inherited(cls)

    def _call(self, owned: bool, attribute: str) -> None:
        """Set the name that lines are searched for; ``owned``: it is that of an attribute."""
        self._attribute = attribute
        self._named = re.compile(rf"\.{re.escape(attribute)}\b" if owned else rf"\b{re.escape(attribute)}\b")
        given = rf"|[(,]\s*{re.escape(attribute)}=(?!=)" if owned else ""  # to the constructor of an object
        self._stores = re.compile(rf"\.{re.escape(attribute)}\b([^=]*(?<![=!<>])=(?!=)|\.setdefault\(){given}")

    @property
    def line(self) -> Line | None:
        """The line of the last write since the request came to its position, or of what went past the write."""
        return self._then or self._wrote()

    @property
    def keyed(self) -> Line | None:
        """The line that makes the key by which the value, a dict, was looked up last; None if none was."""
        for line in reversed(self._entered):
            if self._named.search(line.text):
                for key in _keys(line.code.co_filename, line.number, self._attribute):
                    lines = [other for other in self._entered if other.code is line.code]
                    made = [other for other in lines if other.text.lstrip().startswith(f"{key} = ")]
                    return (made or [line])[-1]
        return None

    def _wrote(self) -> Line | None:
        return self._stored_unchanged() or self._kept or self.last or self._omission()

    @contextlib.contextmanager
    def around(self, method: str, args: tuple[Any, ...], value: Callable[[], Any]) -> Iterator[None]:
        """Follow one call; ``value`` returns the value as it is at any time."""
        self.ran = self._stored = None
        if entering := self._enters(method, args):
            self._former = self.last or self._former
            self.first, self.last, self.reported, self._entered = None, None, None, []
        reports = method != "apply"

        def changed(kept: Any, before: Parts, now: Parts) -> None:
            if self.ran is not None:
                wrote = self.ran if self._named.search(self.ran.text) else self._stored or self.ran
                self.first, self.last, self._written_at = self.first or wrote, wrote, self._at
                self._kept = None
                self._stored = self._stored if kept is MISSING else None  # the value in its place was stored already

        def note(frame: FrameType, event: str) -> None:
            nonlocal reports
            if event == "line":
                line = Line(frame.f_code, frame.f_lineno)
                self._at = tuple(stack(frame))
                if line == self._until:
                    self._then = self._wrote()
                self.ran = self._blamed[line] = self._line_of(frame)
                if reports and self._named.search(line.text):
                    self.reported, reports = line, False
                self._stored = line if self._stores_itself(line) else self._stored
                stores = self._of_entry and method != "apply" and self._stores_itself(line)
                self._kept = line if stores else self._kept
                if entering:
                    self._entered.append(line)
            elif event == "return" and (caller := author_calling(frame)):
                self.ran = self._line_of(caller)

        with watching(value, changed, note):
            yield

    def _line_of(self, frame: FrameType) -> Line:
        """Return a frame's line; for a helper of a base class, the line of the class that calls it.

        The same for a line that only stores what its function is given.
        """
        blamed: FrameType | None = frame
        while blamed is not None and blamed.f_code in self._inherited:
            caller = author_calling(blamed)
            blamed = caller if caller and caller.f_code.co_name != blamed.f_code.co_name else None  # super() stays
        blamed = blamed or frame
        while _only_stores(blamed.f_code, blamed.f_lineno) and (caller := author_calling(blamed)):
            blamed = caller
        return Line(blamed.f_code, blamed.f_lineno)

    def _enters(self, method: str, args: tuple[Any, ...]) -> bool:
        """True if a request comes to the position in this call, or leaves it, or if the value is looked up in it."""
        if self._edits:
            return method == "apply"
        if method == "add_request":
            return self._position == ANYWHERE or bool(args[0] == self._position)
        update = args[0] if method == "update_state" else None
        if update is None or self._position == ANYWHERE:
            return update is not None
        self._moves = any(self._position in move[:2] for move in update.moved)
        return self._moves or self._position in [*(item[0] for item in update.added), *update.removed]

    def _stored_unchanged(self) -> Line | None:
        """Return the line that stored the value of a row that moves and left it as it was, as a swap of views does."""
        if not self._moves or self.last not in self._entered:
            return None
        later = self._entered[::-1][: self._entered[::-1].index(self.last)]
        return next((self._blamed[line] for line in later if self._stores_itself(line)), None)

    def _stores_itself(self, line: Line) -> bool:
        """True for the class's own line that stores the value; a helper of a base class stores other rows', too."""
        return line.code not in self._inherited and bool(self._stores.search(line.text))

    def _omission(self) -> Line | None:
        """Return the line that names the value and leaves it, or the branch around a write that did not run.

        The class's own lines come first, and the last of these where only helpers of a base name the value. A write
        for another request's exception is at fault itself.
        """
        if self._former and _handles_exception(self._former):
            return self._former
        lines = [line for line in self._entered if line.code not in self._inherited]
        last = lines[-1] if 0 < len(lines) < len(self._entered) else None
        return self._passed(lines) or last or self._passed(self._entered) or self._uncalled() or self._passed_sources()

    def _uncalled(self) -> Line | None:
        """Return the branch around the last write, or around a call that led to it, which ran without it; or else the
        last line before such a call."""
        around = (test for line in self._written_at for test in branches(line.code, line.number)[::-1])
        ahead = (
            [ran for ran in self._entered if ran.code is line.code and ran.number < line.number]
            for line in self._written_at
            if line not in self._entered
        )
        left = (max(lines, key=lambda line: line.number) for lines in ahead if lines)
        return next((test for test in around if test in self._entered), None) or next(left, None)

    def _passed_sources(self) -> Line | None:
        """Return the same for an attribute that the last write of an earlier request's value, or its method, read."""
        text = self._former.text + _source(self._former.code) if self._former else ""
        for attribute in dict.fromkeys(re.findall(r"self\.(\w+)", text)):
            if not self._named.search(f".{attribute}"):
                self._call(True, attribute)
                if helpers := [name for name, lines in self._functions() if any(map(self._stores.search, lines))]:
                    self._named = re.compile(rf"{self._named.pattern}|\.({'|'.join(helpers)})\(")
                if line := self._passed(self._entered):
                    return line
        return None

    def _functions(self) -> Iterator[tuple[str, list[str]]]:
        """Yield name and lines of the functions of the file of the former write."""
        nodes = ast.walk(syntax_of(self._former.code.co_filename)) if self._former else ()
        return ((node.name, ast.unparse(node).splitlines()) for node in nodes if isinstance(node, ast.FunctionDef))

    def _passed(self, entered: list[Line]) -> Line | None:
        naming = [line for line in entered if self._named.search(line.text)]
        stored = [line for line in naming if self._stores.search(line.text)]
        tests = [] if stored else [line for line in naming if is_test(line.text)]
        if stored or tests or (self._moves and naming):
            return (stored or tests or naming)[-1]
        passed: list[Line] = []
        for code in dict.fromkeys(line.code for line in reversed(entered)):
            ran = [line for line in entered if line.code is code]
            lines = [Line(code, number) for number in sorted({number for _, _, number in code.co_lines() if number})]
            names = [line for line in lines if self._named.search(line.text)]
            writes = [line for line in names if self._stores.search(line.text)] or names
            around = [line for write in writes for line in branches(code, write.number) if line in ran]
            if around:
                return around[-1]
            before = [line for line in ran if writes and line.number < writes[0].number and not self._moves]
            passed += [max(before, key=lambda line: line.number)] if before else ran[-1:] if writes else []
        return next(iter(passed or naming[::-1]), None)


def _source(code: CodeType) -> str:
    """Return the text of a function's lines."""
    numbers = [number for _, _, number in code.co_lines() if number]
    return "".join(linecache.getlines(code.co_filename)[code.co_firstlineno : max(numbers)])


def inherited(cls: type) -> set[CodeType]:
    """Return the code of the methods of a class's bases."""
    functions = (function for base in cls.__mro__[1:] for function in vars(base).values())
    return {function.__code__ for function in functions if isinstance(function, FunctionType)}


@contextlib.contextmanager
def watching(
    value: Callable[[], Any], changed: Callable[[Any, Parts, Parts], None], note: Callable[[FrameType, str], None]
) -> Iterator[None]:
    """Compare a value at each event in the author's functions, and at the end.

    Args:
        value: returns the value as it is at any time.
        changed: gets a value that is not as at the event before, with its parts then and now.
        note: gets each event, behind the comparison: it belongs to the lines before.
    """
    before = parts_of(value())

    def look() -> None:
        nonlocal before
        kept = value()
        then, before = before, parts_of(kept)
        if before != then:
            changed(kept, then, before)

    def compare_and_note(frame: FrameType, event: str, _: Any) -> None:
        look()
        note(frame, event)

    try:
        with following(compare_and_note):
            yield
    finally:
        look()


def author_calling(frame: FrameType) -> FrameType | None:
    caller = frame.f_back
    return caller if caller is not None and is_authors(caller.f_code.co_filename) else None


def stack(frame: FrameType | None) -> Iterator[Line]:
    """Yield the author's lines that a frame is at, and that have called it."""
    while frame is not None:
        if is_authors(frame.f_code.co_filename):
            yield Line(frame.f_code, frame.f_lineno)
        frame = frame.f_back


def follow(
    cls: type,
    make: Callable[[], Host],
    value: Callable[[], Any],
    play: Callable[[Host], object],
    later: Callable[[], Any] | None = None,
) -> Writes:
    """Follow what is made, and unless that changes the value, what ``play`` calls; a plugin that raises ends it.

    ``later``: returns the value in ``play``.
    """
    followed = Writes(cls)
    with followed.around("__init__", (), value):
        host = make()
    if followed.first is None:
        with contextlib.suppress(PluginError), host.driver.watched(partial(followed.around, value=later or value)):
            play(host)
    return followed


def _handles_exception(line: Line) -> bool:
    handlers = (node for node in ast.walk(syntax_of(line.code.co_filename)) if isinstance(node, ast.ExceptHandler))
    return any(handler.lineno < line.number <= (handler.end_lineno or 0) for handler in handlers)


def is_test(text: str) -> bool:
    """Return True for the line of an ``if`` statement."""
    return text.lstrip().startswith(("if ", "elif "))


def branches(code: CodeType, number: int) -> list[Line]:
    """Return the ``if`` statements around a line, the outermost first."""
    return [
        Line(code, node.lineno)
        for node in ast.walk(syntax_of(code.co_filename))
        if isinstance(node, ast.If) and code.co_firstlineno <= node.lineno < number <= (node.end_lineno or 0)
    ]


@cache
def _only_stores(code: CodeType, number: int) -> bool:
    """Return True for a line that stores a function's arguments, at most as numbers, by others of its arguments."""
    arguments = code.co_varnames[: code.co_argcount]
    with contextlib.suppress(SyntaxError):
        match parsed(code.co_filename, number).body:
            case [ast.Assign(targets=[ast.Subscript(value=ast.Attribute(), slice=key)], value=value)]:
                value = value.args[0] if isinstance(value, ast.Call) and ast.unparse(value.func) in NUMBERS else value
                return all(isinstance(part, ast.Name) and part.id in arguments for part in (key, value))
    return False


def key_at(place: str, name: str) -> str:
    """Return the key by which the line ``file:line`` looks something up in what has this name, or which it makes."""
    file, _, number = place.rpartition(":")
    attribute = re.sub(r"\[[^]]*\]", "", name).rpartition(".")[2]
    with contextlib.suppress(SyntaxError):
        made = parsed(file, int(number or 0)).body[0]
        text = ast.unparse(made.value) if isinstance(made, ast.Assign | ast.Return) and made.value else ""
        return next(_keys(file, int(number), attribute), "" if attribute in text else text)
    return ""


def _keys(file: str, number: int, attribute: str) -> Iterator[str]:
    """Yield the keys by which a line of one statement looks something up in an attribute or a variable."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(parsed(file, number)):
            match node:
                case ast.Subscript(value=held, slice=key) if not isinstance(key, ast.Slice):
                    pass
                case ast.Call(func=ast.Attribute(value=held, attr="get" | "setdefault"), args=[key, *_]):
                    pass
                case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[held]):
                    pass
                case _:
                    continue
            if ast.unparse(held).rpartition(".")[2] == attribute:
                yield ast.unparse(key)
