"""Small edits of the author's code, one of which may make a failing program right, and so names the line at fault."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from lpkit_conformance.instruments.author_lines import following, is_authors, syntax_of

MOST_TRIED = 400
"""Edits of a failure; a longer program has its later lines left out."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}

ALIKE = (
    ("slots", "index"),
    ("slot", "index"),
    ("expanded_idx_mapping", "idx_mapping"),
    ("prompt_len", "prefill_len"),
    ("prompt_len", "total_len"),
    ("output_len", "total_len"),
    ("any", "all"),
    ("amax", "amin"),
    ("removed", "added"),
    ("float32", "float16"),
    ("int64", "int32"),
    ("int64", "uint8"),
    ("int64", "int16"),
    ("int32", "int8"),
)
"""Attributes that are easily taken for each other."""

COPIES = ("copy", "clone", "tolist")
TESTED = ast.Name | ast.Attribute | ast.Subscript | ast.Call
VALUES = ast.Name | ast.Attribute | ast.Subscript


@dataclass(frozen=True)
class Edit:
    """Another node in place of one of a syntax tree.

    Attributes:
        owner, field: of the tree, where the node stands; ``at``: its index if the field is a list.
        node: the new one.
        line: the number of the line.
        old, new: the texts of what changes; ``new`` is empty for a statement that goes.
    """

    owner: ast.AST
    field: str
    at: int | None
    node: ast.AST
    line: int
    old: str
    new: str

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Hold the new node in the tree."""
        held: Any = getattr(self.owner, self.field)
        if self.at is None:
            setattr(self.owner, self.field, self.node)
        else:
            before, held[self.at] = held[self.at], self.node
        try:
            yield
        finally:
            if self.at is None:
                setattr(self.owner, self.field, held)
            else:
                held[self.at] = before


@dataclass(frozen=True)
class Repair:
    """An edit that makes a failing program right.

    Attributes:
        line: ``file:line``.
        old, new: texts of what is edited; ``new`` is empty if the statement goes.
    """

    line: str
    old: str
    new: str


def find_repair(run: Callable[[], object], right: Callable[[Callable[[], Any]], bool], blamed: str) -> Repair | None:
    """Return the edit with which all is right; None without one.

    Args:
        run: plays the failing program; it may raise.
        right: judges the failing programs with the code as the context that it is given holds it.
        blamed: ``file:line``: of several such edits, one of this line is returned.
    """
    ran: dict[str, dict[int, None]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "line":
            ran.setdefault(frame.f_code.co_filename, {})[frame.f_lineno] = None

    with contextlib.suppress(Exception), following(note):
        run()
    mending: list[Repair] = []
    for file in filter(is_authors, ran):
        tree = copy.deepcopy(syntax_of(file))
        functions = _functions(file)
        for edit in [*_edits(tree, ran[file])][:MOST_TRIED]:
            with contextlib.suppress(SyntaxError, ValueError), edit.made():
                edited = _edited(tree, file, functions, edit.line)
                if edited and right(lambda edited=edited: _with_code(edited)):  # type: ignore[misc]
                    mending.append(Repair(f"{file}:{edit.line}", edit.old, edit.new))
    return next((repair for repair in mending if repair.line == blamed), next(iter(mending), None))


def _functions(file: str) -> list[FunctionType]:
    """Return the functions of a file that exist now, but for those that others have made."""
    found = [item for item in gc.get_objects() if isinstance(item, FunctionType) and item.__code__.co_filename == file]
    return [function for function in found if "<locals>" not in function.__qualname__]


def _edited(
    tree: ast.Module, file: str, functions: list[FunctionType], line: int
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
    own = {number for *_, number in code.co_lines() if number}
    return own.union(*(_lines(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


@contextlib.contextmanager
def _with_code(edited: list[tuple[FunctionType, CodeType]]) -> Iterator[None]:
    held = [(function, function.__code__) for function, _ in edited]
    for function, code in edited:
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in held:
            function.__code__ = code


def _edits(tree: ast.Module, lines: dict[int, None]) -> Iterator[Edit]:
    """Yield edits of the lines, the narrowest kinds first; none in a ``while``, which might not end."""
    statements = [*_statements(tree, lines, loop=False)]
    for kinds in (_of_expression, _of_copies):
        for statement, *_ in statements:
            for node, parent, field, at in _expressions(statement):
                for new in kinds(node, parent, field):
                    ast.fix_missing_locations(ast.copy_location(new, node))
                    text = ast.unparse(new).replace("__import__('copy')", "copy")
                    yield Edit(parent, field, at, new, statement.lineno, ast.unparse(node), text)
    for statement, *where in statements:
        yield from _of_statement(statement, *where)


def _statements(
    node: ast.AST, lines: dict[int, None], loop: bool
) -> Iterator[tuple[ast.stmt, ast.AST, str, int, bool]]:
    """Yield the statements that ran, with where they stand, and True for those in a ``for``."""
    for name, value in ast.iter_fields(node):
        for at, part in enumerate(value if isinstance(value, list) else ()):
            if isinstance(part, ast.While):
                continue
            if (
                isinstance(part, ast.stmt)
                and part.lineno in lines
                and not isinstance(part, ast.FunctionDef | ast.ClassDef)
            ):
                yield part, node, name, at, loop
            if isinstance(part, ast.stmt | ast.ExceptHandler):
                inside = isinstance(part, ast.For) or (loop and not isinstance(part, ast.FunctionDef))
                yield from _statements(part, lines, inside)


def _expressions(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.AST, str, int | None]]:
    """Yield the expressions of a statement, but for those of the statements in it, with where they stand."""
    for name, value in ast.iter_fields(statement):
        for at, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, ast.expr):
                yield part, statement, name, at if isinstance(value, list) else None
            if isinstance(part, ast.AST) and not isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from _expressions(part)


def _of_expression(node: ast.expr, parent: ast.AST, field: str) -> Iterator[ast.expr]:
    """Yield comparisons that let one more or one less through, other questions, and names of what is alike."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and (other := COMPARISONS.get(type(node.ops[0]))):
        yield ast.Compare(node.left, [other()], node.comparators)
    asked = isinstance(parent, ast.If | ast.IfExp) and field == "test"
    if isinstance(node, TESTED) and (asked or isinstance(parent, ast.BoolOp)):
        yield ast.Compare(node, [ast.IsNot()], [ast.Constant(None)])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and isinstance(node.operand, TESTED):
        yield ast.Compare(node.operand, [ast.Is()], [ast.Constant(None)])
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "bool" and len(node.args) == 1:
        yield ast.Compare(node.args[0], [ast.IsNot()], [ast.Constant(None)])
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == 2:
        first, default = node.values
        yield ast.IfExp(ast.Compare(first, [ast.Is()], [ast.Constant(None)]), default, first)
    if isinstance(node, ast.Attribute):
        pairs = [pair for pair in ALIKE if node.attr in pair]
        yield from (ast.Attribute(node.value, pair[pair[0] == node.attr], node.ctx) for pair in pairs)
    whole = isinstance(node, ast.Constant) and type(node.value) is int
    if whole and isinstance(parent, ast.BinOp | ast.Compare | ast.Slice | ast.Subscript | ast.Call | ast.UnaryOp):
        yield from (ast.Constant(node.value + step) for step in (1, -1))  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
        yield node.left


def _of_copies(node: ast.expr, parent: ast.AST, field: str) -> Iterator[ast.expr]:
    """Yield a copy in place of a value that is kept, and a value in place of its copy."""
    kept = field in ("value", "args", "elts", "values") and not isinstance(parent, VALUES)
    if isinstance(node, VALUES) and isinstance(node.ctx, ast.Load) and kept:
        module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("copy")], [])
        yield ast.Call(ast.Attribute(module, "deepcopy", ast.Load()), [node], [])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COPIES:
        yield node.func.value
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("list", "tuple", "dict", "set")
        and len(node.args) == 1
    ):
        yield node.args[0]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
        yield node.value


def _of_statement(statement: ast.stmt, owner: ast.AST, field: str, at: int, loop: bool) -> Iterator[Edit]:
    """Yield an end of the round in place of an end of the loop, no early return, and no statement at all."""
    old = ast.unparse(statement).partition("\n")[0]
    number = statement.lineno
    if loop and isinstance(statement, ast.Return | ast.Break):
        yield Edit(owner, field, at, ast.copy_location(ast.Continue(), statement), number, old, "continue")
    nothing = ast.copy_location(ast.Pass(), statement)
    ends = isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Return | ast.Continue | ast.Break)
    stored = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
    stores = isinstance(statement, ast.Assign | ast.AugAssign) and not any(isinstance(to, ast.Name) for to in stored)
    if ends or stores or isinstance(statement, ast.Delete | ast.Expr):
        yield Edit(owner, field, at, nothing, number, old, "")
