"""Reads from a module's syntax tree what its names are bound to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class FromImport:
    """``from module import name``; an empty ``name`` is the module itself."""

    module: str
    name: str = ""


@dataclass(frozen=True)
class Either:
    """Bound in several ways: the first that exists (``preference``, from a ``try``), or by an unknown condition."""

    options: tuple[Binding, ...]
    preference: bool


@dataclass(frozen=True)
class Opaque:
    """Bound to something that only running the module reveals."""

    reason: str


Binding: TypeAlias = "ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr | FromImport | Either | Opaque"


@dataclass
class Scope:
    """The names of a module or class body."""

    module: str
    names: dict[str, Binding] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


def read_scope(module: str, package: str, body: Sequence[ast.stmt]) -> Scope:
    """Return the scope of ``module``, whose relative imports start at ``package``."""
    scope = Scope(module)
    scope.names = _Reader(package, scope.stars).names_of(body)
    return scope


class _Reader:
    def __init__(self, package: str, stars: list[str]) -> None:
        self.package = package
        self.stars = stars

    def names_of(self, body: Iterable[ast.stmt]) -> dict[str, Binding]:
        names: dict[str, Binding] = {}
        for statement in body:
            self.bind(names, statement)
        return names

    def bind(self, names: dict[str, Binding], node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or bound] = FromImport(bound)
        elif isinstance(node, ast.ImportFrom):
            self.bind_from(names, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    names[target.id] = node.value
                else:
                    names.update({name: Opaque("it is unpacked") for name in _stored(target)})
        elif isinstance(node, ast.If):
            self.bind_if(names, node)
        elif isinstance(node, ast.Try):
            self.bind_try(names, node)
        elif isinstance(node, ast.With):
            names.update(self.names_of(node.body))
        elif isinstance(node, ast.For | ast.While | ast.Match):
            bodies = [case.body for case in node.cases] if isinstance(node, ast.Match) else [node.body, node.orelse]
            for body in bodies:
                _merge(names, self.names_of(body), {})
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names.pop(target.id, None)

    def bind_from(self, names: dict[str, Binding], node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parts = self.package.split(".")
            kept = parts[: len(parts) - node.level + 1]
            module = ".".join([*kept, module] if module else kept)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                names[alias.asname or alias.name] = FromImport(module, alias.name)

    def bind_if(self, names: dict[str, Binding], node: ast.If) -> None:
        holds = _truth(node.test)
        if holds is not None:
            names.update(self.names_of(node.body if holds else node.orelse))
        else:
            _merge(names, self.names_of(node.body), self.names_of(node.orelse))

    def bind_try(self, names: dict[str, Binding], node: ast.Try) -> None:
        preferred = self.names_of([*node.body, *node.orelse])
        for handler in node.handlers:
            for name, binding in self.names_of(handler.body).items():
                first = preferred.get(name)
                preferred[name] = binding if first is None else Either((first, binding), preference=True)
        names.update(preferred)
        names.update(self.names_of(node.finalbody))


def _merge(names: dict[str, Binding], first: dict[str, Binding], second: dict[str, Binding]) -> None:
    for name in first | second:
        options = [branch[name] for branch in (first, second) if name in branch]
        if len(options) == 1 and name in names:
            options.append(names[name])
        names[name] = options[0] if len(options) == 1 else Either(tuple(options), preference=False)


def _truth(test: ast.expr) -> bool | None:
    """Return a condition's value if it is the same on every machine, else None. TYPE_CHECKING is False."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Constant):
        return bool(test.value)
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    return False if name == "TYPE_CHECKING" else None


def _stored(target: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
