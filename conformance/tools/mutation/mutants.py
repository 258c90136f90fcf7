"""Mutants: made by universalmutator's ``mutate``, without those that change nothing, thinned out line by line."""

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


@dataclass(frozen=True)
class Made:
    """What came of one file: lines that the tool wrote, and how many of them are worth judging."""

    file: str
    raw: int
    invalid: int
    unchanged: int
    mutants: tuple[Mutant, ...]


def make(root: Path, file: str, per_line: int | None, decorators: bool = True) -> Made:
    """All mutants of a file, at most ``per_line`` of each line (None: all).

    Left out: what does not parse, what differs in docstrings or annotations only (``from __future__ import
    annotations`` never evaluates them), and what equals another one. ``decorators`` False leaves out decorators and
    class-level constants in capitals, which describe a specimen rather than being part of it.
    """
    original = (root / file).read_text("utf-8")
    lines, owners = original.splitlines(), owner_of_lines(original)
    exempt = set() if decorators else descriptions(original)
    seen = {meaning(original)}
    raw = invalid = unchanged = 0
    by_line: dict[int, list[Mutant]] = defaultdict(list)
    same: dict[str, list[Mutant]] = defaultdict(list)
    for text in generate(root / file):
        raw += 1
        try:
            known = meaning(text)
        except (SyntaxError, ValueError):
            invalid += 1
            continue
        if known in seen:
            unchanged += 1
            continue
        seen.add(known)
        changed = text.splitlines()
        at = next((i for i, pair in enumerate(zip(lines, changed, strict=False)) if pair[0] != pair[1]), len(lines) - 1)
        if at + 1 in exempt or not owners.get(at + 1):
            unchanged += 1
            continue
        context = (len(changed) > len(lines), lines[at - 1].strip())
        found = Mutant(file, at + 1, owners[at + 1], lines[at].strip(), changed[at].strip(), text, *context)
        same[found.id].append(found)
        found = replace(found, ordinal=len({item.line for item in same[found.id]}) - 1)
        by_line[at + 1].append(found)
    chosen: list[Mutant] = []
    for _, group in sorted(by_line.items()):
        group.sort(key=lambda mutant: mutant.id)
        chosen += group[:per_line]
    return Made(file, raw, invalid, unchanged, tuple(chosen))


def generate(path: Path) -> Iterable[str]:
    """The tool's mutants of a file, as module texts."""
    tool = Path(sys.executable).with_name("mutate")
    with tempfile.TemporaryDirectory() as folder:
        output([str(tool), str(path), "python", "--noCheck", "--mutantDir", folder])
        yield from (item.read_text("utf-8") for item in sorted(Path(folder).glob("*.py")))


def meaning(source: str) -> str:
    """The syntax tree without what has no effect."""
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
    """Line -> dotted name of the innermost class or function."""
    owners: dict[int, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".lstrip(".")
                first = min([child.lineno, *(item.lineno for item in child.decorator_list)])
                for line in range(first, (child.end_lineno or first) + 1):
                    owners[line] = name
                visit(child, name)
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return owners


def descriptions(source: str) -> set[int]:
    """Lines of the decorators of top-level classes, and of their constants in capitals."""
    found: set[int] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            parts: list[ast.expr | ast.stmt] = [*node.decorator_list]
            parts += [item for item in node.body if isinstance(item, ast.Assign) and is_constant(item)]
            for item in parts:
                found.update(range(item.lineno, (item.end_lineno or item.lineno) + 1))
    return found


def is_constant(node: ast.Assign) -> bool:
    return all(isinstance(target, ast.Name) and target.id == "CASE" for target in node.targets)
