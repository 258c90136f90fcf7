"""Small edits of the author's code, one of which may make a failing program right, and so names the line at fault."""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

from lpkit_conformance.instruments.author_lines import (
    following,
    is_authors,
    only_looks,
    parsed,
    syntax_of,
    value_of,
)
from lpkit_conformance.results import Finding

MOST_TRIED = 400
"""Edits that are tried in a file."""

MOST_LINES = 100_000
"""Lines that edited code may run in a program."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.GtE, ast.LtE),
}

ALIKE = (
    ("slots", "index"),
    ("slot", "index"),
    ("expanded_idx_mapping", "idx_mapping"),
    ("prompt_len", "prefill_len"),
    ("prompt_len", "total_len"),
    ("output_len", "total_len"),
    ("amax", "amin"),
    ("float32", "float16"),
    ("int64", "int32"),
    ("int64", "uint8"),
    ("int64", "int16"),
    ("int32", "int8"),
)
"""Attributes that are easily taken for each other."""

UPDATES = ("removed", "added", "moved")
"""Fields of a batch update, which are lists: nobody asks them for None."""

LIVE = ("gpu", "np", "req_states", "vllm_config")
"""Names of the engine's buffers and objects: a copy would stay as it was."""

OWN_TABLE = re.compile(rf"self(?:\.(?!(?:{'|'.join(LIVE)}|params|sampling_params|extra_args|args)\b)\w+)+")
"""A table of the plugin's own, from which entries may leave: no request's arguments and nothing of the engine's."""

OF_STATEMENTS = ("ended", "always", "without")
"""Kinds of edits that only a blamed line gets: elsewhere they are too often no remedy."""

WRAPS = ("__func__", "__wrapped__", "fget", "func")
"""Attributes of what holds a function: static methods, caches, properties."""

COPIES = ("copy", "clone", "tolist")
"""Methods that copy."""

TESTED = ast.Name | ast.Attribute | ast.Subscript

Missing = Literal["removed", "added", "moved", "exchanged"]
Kind = (
    Literal["edit", "copied", "popped", "ordered", "iterated", "falsy", "shifted", "ended", "always", "without"]
    | Missing
)

INSERTED: tuple[tuple[Missing, str], ...] = (
    ("removed", "for index in {given}.removed: self.{name}.pop(index, None)"),
    ("added", "for index, *_ in {given}.added: self.{name}.pop(index, None)"),
    (
        "moved",
        """for first, second, way in {given}.moved:
    entries = {{second: self.{name}.pop(first, None), first: self.{name}.pop(second, None)}}
    kept = entries if way.name == "SWAP" else {{second: entries[second]}}
    self.{name}.update({{row: entry for row, entry in kept.items() if entry is not None}})""",
    ),
    ("exchanged", "for a, b, _ in {given}.moved: self.{name}[a], self.{name}[b] = self.{name}[b], self.{name}[a]"),
    ("exchanged", "for a, b, _ in {given}.moved: self.{name}[[a, b]] = self.{name}[[b, a]]"),
)
"""Bookkeeping of a dict, a list or an array by row that may be missing where the batch of V1 changes."""


MOVES: tuple[Missing, ...] = ("moved", "exchanged")
FORGETS: tuple[Missing, ...] = ("removed", "added")


@dataclass(frozen=True)
class Edit:
    """A change of one field of a syntax tree.

    Attributes:
        owner, field: of the tree.
        value: the new node, or the new list of nodes.
        line: the number of the line.
        old, new: the texts of what changes; ``new`` is empty for a statement that goes, and ``old`` for one that comes.
        kind: key of its texts in ``advice.toml``.
    """

    owner: ast.AST
    field: str
    value: ast.AST | list[Any]
    line: int
    old: str
    new: str
    kind: Kind = "edit"

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Hold the new value in the tree."""
        held = getattr(self.owner, self.field)
        setattr(self.owner, self.field, self.value)
        try:
            yield
        finally:
            setattr(self.owner, self.field, held)


Edited = Callable[[], contextlib.AbstractContextManager[None]]
"""The context that holds edited code in place of the author's."""


@dataclass(frozen=True)
class Repair:
    """An edit that makes failing programs right.

    Attributes:
        line: ``file:line``; for a statement that comes, that of the loop that it stands before or behind.
        old, new: texts of what is edited; ``new`` is empty if the statement goes, and ``old`` if it comes.
        kind: key of its texts in ``advice.toml``.
    """

    line: str
    old: str
    new: str
    kind: Kind


def find_repair(
    run: Callable[[], object],
    right: Callable[[Edited], bool],
    finding: Finding,
    proven: bool = False,
    missing: Sequence[Missing] = (),
    uses: bool = True,
) -> Repair | None:
    """Return an edit that mends failing programs: one of the blamed line, or else one that no other line has.

    If there is none, a statement that the bookkeeping of the state at fault lacks. Where the plugin raises, no
    statement is left out, as the line that raises would go.

    Args:
        run: plays the failing program; it may raise.
        right: judges the programs with the edited code.
        finding: what is known of the failure.
        proven: True if an experiment blames its line: then no other line is edited.
        missing: kinds of statements that the bookkeeping may lack.
        uses: False if the wrong row is of a request without the plugin: another question would only let it in.
    """
    blamed, raises = finding.location, bool(finding.exception)
    ran: dict[str, dict[int, None]] = {}
    falsy: dict[tuple[str, int], set[str]] = {}
    modules: dict[str, dict[str, Any]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "line":
            file, number = frame.f_code.co_filename, frame.f_lineno
            ran.setdefault(file, {})[number] = None
            modules[file] = frame.f_globals
            falsy.setdefault((file, number), set()).update(_falsy(frame))

    with contextlib.suppress(Exception), following(note):
        run()
    elsewhere: dict[str, list[Repair]] = {}
    trees = {file: copy.deepcopy(syntax_of(file)) for file in filter(is_authors, ran)}
    functions = {file: {id(item): item for item in _functions(file, modules[file])}.values() for file in trees}

    def mends(file: str, edit: Edit) -> bool:
        with contextlib.suppress(SyntaxError, ValueError), edit.made():
            edited = _edited(trees[file], file, functions[file], edit.line)
            return bool(edited) and right(partial(_with_code, edited))
        return False

    for file, tree in trees.items():
        for edit in [*_edits(tree, ran[file])][:MOST_TRIED]:
            line = f"{file}:{edit.line}"
            if edit.kind == "falsy" and not (uses and edit.old in falsy[file, edit.line] and edit.old != finding.state):
                continue  # the state at fault itself: the question would only leave it as it is
            if edit.kind in OF_STATEMENTS and (raises or line != blamed):
                continue
            if line != blamed and (proven or (edit.kind == "shifted" and not finding.vague)):
                continue
            if mends(file, edit):
                repair = Repair(line, edit.old, edit.new, edit.kind)
                if line == blamed:
                    return repair
                elsewhere.setdefault(line, []).append(repair)
    if len(elsewhere) == 1:
        return next(iter(elsewhere.values()))[0]
    entry = None if proven else re.match(r"self\.([\w.]+)\[", finding.state)
    for file, tree in trees.items() if entry else ():
        for edit in _insertions(tree, ran[file], entry[1] if entry else ""):
            if edit.kind in missing and mends(file, edit):
                return Repair(f"{file}:{edit.line}", "", edit.new, edit.kind)
    return None


def _falsy(frame: FrameType) -> Iterator[str]:
    """Yield the texts of what the condition of a line asks that is false in it, without being None or False."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(parsed(frame.f_code.co_filename, frame.f_lineno)):
            if isinstance(node, TESTED) and only_looks(node) and getattr(node, "attr", "") not in UPDATES:
                with contextlib.suppress(Exception):  # names that the line sets itself, or objects without a truth
                    value = value_of(node, frame)
                    if value is not None and not isinstance(value, bool) and not value:
                        yield ast.unparse(node)


def _functions(file: str, names: Mapping[str, Any]) -> Iterator[FunctionType]:
    """Yield the functions of a file that a module or class of it holds under these names, methods and wrapped ones."""
    for value in names.values():
        if isinstance(value, type) and value.__module__ == names.get("__name__", names.get("__module__")):
            yield from _functions(file, vars(value))
        for part in (value, *(getattr(value, name, None) for name in WRAPS)):
            if isinstance(part, FunctionType) and part.__code__.co_filename == file:
                yield part


def _edited(
    tree: ast.Module, file: str, functions: Iterable[FunctionType], line: int
) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions around a line, each with the code that it has by the tree."""
    codes = {(code.co_name, code.co_firstlineno): code for code in _codes(compile(tree, file, "exec"))}
    pairs = (
        (function, codes.get((function.__code__.co_name, function.__code__.co_firstlineno))) for function in functions
    )
    return [
        (function, code)
        for function, code in pairs
        if code is not None and line in _lines(function.__code__) and code.co_freevars == function.__code__.co_freevars
    ]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _lines(code: CodeType) -> set[int]:
    numbers = {number for *_, number in code.co_lines() if number}
    return numbers.union(*(_lines(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


class _EndlessError(Exception):
    """Edited code has run more lines than a program needs."""


@contextlib.contextmanager
def _with_code(edited: list[tuple[FunctionType, CodeType]]) -> Iterator[None]:
    """Let functions have other code; it raises after ``MOST_LINES``, since an edited loop may have no end."""
    held = [(function, function.__code__) for function, _ in edited]
    lines = itertools.count()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "line" and next(lines) > MOST_LINES:
            raise _EndlessError

    for function, code in edited:
        function.__code__ = code
    try:
        with following(count):
            yield
    finally:
        for function, code in held:
            function.__code__ = code


def _edits(tree: ast.Module, lines: dict[int, None]) -> Iterator[Edit]:
    """Yield edits of the lines, the narrowest kinds first; none in a ``while``, which might not end."""
    bodies = [*_bodies(tree, loop=False)]
    statements = [part for owner, field, _ in bodies for part in getattr(owner, field) if part.lineno in lines]
    for edits in (_of_expression, _of_copies):
        for statement in statements:
            for node, parent, field, at in _expressions(statement):
                for new, kind in edits(node, parent, field):
                    ast.fix_missing_locations(ast.copy_location(new, node))
                    held = getattr(parent, field)
                    value = new if at is None else [*held[:at], new, *held[at + 1 :]]
                    texts = ast.unparse(node), ast.unparse(new).replace("__import__('copy')", "copy")
                    yield Edit(parent, field, value, statement.lineno, *texts, kind)
    for owner, field, loop in bodies:
        yield from _of_statements(owner, field, loop, lines)


def _bodies(node: ast.AST, loop: bool) -> Iterator[tuple[ast.AST, str, bool]]:
    """Yield the node and the field of each list of statements in a function, and True inside a ``for``."""
    for field, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else ()
        if parts and isinstance(parts[0], ast.stmt) and not isinstance(node, ast.Module | ast.ClassDef | ast.While):
            yield node, field, loop
        for part in parts:
            if isinstance(part, ast.stmt | ast.ExceptHandler) and not isinstance(part, ast.While):
                yield from _bodies(part, isinstance(part, ast.For) or (loop and not isinstance(part, ast.FunctionDef)))


def _expressions(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.AST, str, int | None]]:
    """Yield a statement's expressions, without those of nested statements, with their parent, field and index."""
    for name, value in ast.iter_fields(statement):
        for at, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, ast.expr):
                yield part, statement, name, at if isinstance(value, list) else None
            if isinstance(part, ast.AST) and not isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from _expressions(part)


def _of_expression(node: ast.expr, parent: ast.AST, field: str) -> Iterator[tuple[ast.expr, Kind]]:
    """Yield comparisons that let one more or one less through, other questions, and names of what is alike."""
    none: list[ast.expr] = [ast.Constant(None)]
    asked = isinstance(parent, ast.If | ast.IfExp) and field == "test"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other()], node.comparators), "shifted"
    if isinstance(node, TESTED) and (asked or isinstance(parent, ast.BoolOp)):
        yield ast.Compare(node, [ast.IsNot()], none), "falsy"
    if isinstance(node, TESTED) and isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        yield ast.Compare(node, [ast.IsNot()], none), "falsy"
    if isinstance(node, TESTED) and isinstance(parent, ast.Call) and ast.unparse(parent.func) == "bool":
        yield ast.Compare(node, [ast.IsNot()], none), "falsy"
    if isinstance(node, ast.BoolOp) and len(node.values) == 2 and asked:
        yield from ((value, "edit") for value in node.values)
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and isinstance(node.values[0], TESTED):
        first, default = node.values[0], node.values[-1]
        yield ast.IfExp(ast.Compare(first, [ast.Is()], none), default, first), "edit"
    if isinstance(node, ast.Attribute):
        pairs = [pair for pair in ALIKE if node.attr in pair]
        yield from ((ast.Attribute(node.value, pair[pair[0] == node.attr], node.ctx), "edit") for pair in pairs)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
        yield node.left, "shifted"


def _of_copies(node: ast.expr, parent: ast.AST, field: str) -> Iterator[tuple[ast.expr, Kind]]:
    """Yield a copy in place of a value that is kept, a value in place of its copy, and what is done with entries."""
    kept = field in ("value", "args", "elts", "values") and not isinstance(parent, TESTED)
    kept &= getattr(node, "attr", getattr(node, "id", "")) not in LIVE
    if isinstance(node, TESTED) and isinstance(node.ctx, ast.Load) and kept:
        module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("copy")], [])
        yield ast.Call(ast.Attribute(module, "deepcopy", ast.Load()), [node], []), "copied"
    yield from _of_entries(node, parent, field)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COPIES:
        yield node.func.value, "edit"
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("list", "tuple", "dict", "set")
        and len(node.args) == 1
        and not ast.unparse(node.args[0]).endswith((".keys()", ".values()", ".items()"))
    ):
        yield node.args[0], "edit"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
        yield node.value, "edit"


def _of_entries(node: ast.expr, parent: ast.AST, field: str) -> Iterator[tuple[ast.expr, Kind]]:
    """Yield a loop over a copy of what its body changes, entries in the order of their keys, and entries that leave
    where they are read."""
    if isinstance(parent, ast.For) and field == "iter" and isinstance(node, TESTED) and _changes(parent, node):
        yield ast.Call(ast.Name("list", ast.Load()), [node], []), "iterated"
    read = isinstance(node, ast.Subscript) and isinstance(parent, ast.Assign) and field == "value"
    if isinstance(node, ast.Subscript) and read and OWN_TABLE.fullmatch(ast.unparse(node.value)):
        yield ast.Call(ast.Attribute(node.value, "pop", ast.Load()), [node.slice], []), "popped"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    table, asked = node.func.value, node.func.attr
    if asked in ("values", "items"):
        entries = ast.Call(ast.Attribute(table, "items", ast.Load()), [], [])
        in_order = ast.Call(ast.Name("sorted", ast.Load()), [entries], [])
        ordered = ast.Call(ast.Name("dict", ast.Load()), [in_order], [])
        yield ast.Call(ast.Attribute(ordered, asked, ast.Load()), [], []), "ordered"
    if asked == "pop" and len(node.args) == 1:
        yield ast.Call(node.func, [*node.args, ast.Constant(None)], []), "edit"
    if asked == "get" and node.args and OWN_TABLE.fullmatch(ast.unparse(table)):
        yield ast.Call(ast.Attribute(table, "pop", ast.Load()), [*node.args, ast.Constant(None)][:2], []), "popped"


def _changes(loop: ast.For, node: ast.expr) -> bool:
    """Return True if the body of a loop adds to or removes from what it goes through."""
    name = re.escape(ast.unparse(node))
    changes = re.compile(rf"(?<![\w.]){name}\.(remove|pop|append|insert|discard|add)\(|\bdel {name}\[")
    return any(changes.search(ast.unparse(part)) for part in loop.body)


def _of_statements(owner: ast.AST, field: str, loop: bool, lines: dict[int, None]) -> Iterator[Edit]:
    """Yield the end of a round in place of the end of the loop, no condition, and no early return."""
    body: list[ast.stmt] = getattr(owner, field)
    for at, statement in enumerate(body):
        before, after = body[:at], body[at + 1 :]
        old, number = _head(statement), statement.lineno
        edited: list[tuple[list[ast.stmt], str, Kind]] = []
        target = statement.targets[0] if isinstance(statement, ast.Delete) else None
        if isinstance(target, ast.Subscript):
            text = f"{ast.unparse(target.value)}.pop({ast.unparse(target.slice)}, None)"
            edited.append(([ast.copy_location(ast.parse(text).body[0], statement)], text, "edit"))
        if loop and isinstance(statement, ast.Return | ast.Break):
            edited.append(([ast.copy_location(ast.Continue(), statement)], "continue", "ended"))
        if isinstance(statement, ast.If) and not statement.orelse:
            nothing: list[ast.stmt] = [ast.copy_location(ast.Pass(), statement)]
            ends = isinstance(statement.body[0], ast.Return | ast.Continue | ast.Break)
            edited.append((nothing, "", "without") if ends else (statement.body, "if True", "always"))
        for new, text, kind in edited if number in lines else ():
            yield Edit(owner, field, [*before, *new, *after], number, old, text, kind)


def _insertions(tree: ast.Module, lines: dict[int, None], name: str) -> Iterator[Edit]:
    """Yield the statements that the bookkeeping of ``self.name`` may lack where the batch changes."""
    loops: list[tuple[str, str, ast.AST, str, int]] = []
    for owner, field, _ in _bodies(tree, loop=False):
        for at, part in enumerate(getattr(owner, field)):
            of = isinstance(part, ast.For) and re.search(rf"(\w+)\.({'|'.join(UPDATES)})\b", ast.unparse(part.iter))
            if of and part.lineno in lines:
                loops.append((of[1], of[2], owner, field, at))
    for kind, text in INSERTED:
        behind = kind in MOVES
        for given, of_what, owner, field, at in reversed(loops) if behind else loops:
            if kind == "added" and of_what == "moved":
                continue  # it would take out what has just been added
            yield _inserted(kind, text.format(name=name, given=given), owner, field, at, behind)


def _inserted(kind: Missing, text: str, owner: ast.AST, field: str, at: int, behind: int) -> Edit:
    """Return the insertion of a statement before the one with this index, or ``behind`` it."""
    body: list[ast.stmt] = getattr(owner, field)
    new = ast.parse(text).body
    for node in [part for statement in new for part in ast.walk(statement)]:
        ast.copy_location(node, body[at])
    return Edit(owner, field, [*body[: at + behind], *new, *body[at + behind :]], body[at].lineno, "", text, kind)


def _head(statement: ast.stmt) -> str:
    return ast.unparse(statement).partition("\n")[0].rstrip(":")
