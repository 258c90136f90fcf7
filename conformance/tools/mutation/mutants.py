"""Mutants, made by universalmutator's ``mutate``: only mutants that change something, and a few per line."""

from __future__ import annotations

import ast
import hashlib
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from commands import output


@dataclass(frozen=True)
class Mutant:
    """One changed line.

    Attributes:
        file: of the original, relative to the repository.
        owner: dotted name of the class or function around the line; empty at module level.
        source: the whole mutated module.
    """

    file: str
    line: int
    owner: str
    before: str
    after: str
    source: str
    inserted: bool = False
    previous: str = ""
    ordinal: int = 0

    @property
    def id(self) -> str:
        """Stays the same when lines or files move."""
        what = "\0".join((self.owner, self.before, self.after))
        again = f"-{self.ordinal}" if self.ordinal else ""  # the same change on another line of the same owner
        return f"{self.top}-{hashlib.sha256(what.encode()).hexdigest()[:8]}{again}"

    @property
    def change(self) -> str:
        """The change in one line of text."""
        if self.inserted:
            return f"after `{self.previous}` insert `{self.after}`"
        if self.after in ("", "pass"):
            return f"delete `{self.before}`"
        return f"`{self.before}` becomes `{self.after}`"

    @property
    def top(self) -> str:
        return self.owner.partition(".")[0]


def make(root: Path, file: str, per_line: int) -> list[Mutant]:
    """The mutants of a file, at most ``per_line`` of each line.

    Left out: mutants that do not compile, differ in docstrings or annotations only, or equal another mutant.
    """
    original = (root / file).read_text("utf-8")
    lines, owners = original.splitlines(), owner_of_lines(original)
    seen = {meaning(original)}
    by_line: dict[int, list[Mutant]] = defaultdict(list)
    lines_of: dict[str, set[int]] = defaultdict(set)
    for text in generate(root / file):
        try:
            tree = meaning(text)
        except (SyntaxError, ValueError):
            continue
        changed = text.splitlines()
        at = next((i for i, pair in enumerate(zip(lines, changed, strict=False)) if pair[0] != pair[1]), len(lines) - 1)
        if tree in seen or at + 1 not in owners:
            continue
        seen.add(tree)
        context = (len(changed) > len(lines), lines[at - 1].strip())
        mutant = Mutant(file, at + 1, owners[at + 1], lines[at].strip(), changed[at].strip(), text, *context)
        lines_of[mutant.id].add(at)
        by_line[at].append(replace(mutant, ordinal=len(lines_of[mutant.id]) - 1))
    return [mutant for at in sorted(by_line) for mutant in sorted(by_line[at], key=lambda item: item.id)[:per_line]]


def generate(path: Path) -> Iterable[str]:
    """The tool's mutants of a file, as module texts."""
    tool = Path(sys.executable).with_name("mutate")
    with tempfile.TemporaryDirectory() as folder:
        output([str(tool), str(path), "python", "--noCheck", "--mutantDir", folder])
        yield from (item.read_text("utf-8") for item in sorted(Path(folder).glob("*.py")))


def meaning(source: str) -> str:
    """Return the syntax tree as text, without statements and annotations that have no effect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(source, "mutant", "exec", dont_inherit=True)  # `break` outside a loop parses
        tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not is_idle(item)]  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant("")
    return ast.dump(tree)


def is_idle(node: ast.stmt) -> bool:
    """A docstring, a ``pass``, or a signature for type checkers only."""
    if isinstance(node, ast.FunctionDef):
        return any(isinstance(item, ast.Name) and item.id == "overload" for item in node.decorator_list)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def owner_of_lines(source: str) -> dict[int, str]:
    """Line -> dotted name of the innermost class or function.

    Left out: what describes a specimen, the decorators of top-level classes and their ``CASE``.
    """
    owners: dict[int, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".lstrip(".")
                decorators = child.decorator_list if prefix or isinstance(child, ast.FunctionDef) else []
                first = min([child.lineno, *(item.lineno for item in decorators)])
                owners.update(dict.fromkeys(range(first, (child.end_lineno or first) + 1), name))
                visit(child, name)
            elif isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "CASE":
                for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                    owners.pop(line, None)
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return owners
