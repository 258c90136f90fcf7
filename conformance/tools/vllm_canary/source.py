"""Source files of a release, and questions about their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path


class Source:
    """Files of one release, by their path in it (``vllm/envs.py``); absent files are empty."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self._trees: dict[str, ast.Module] = {}

    @classmethod
    def of_folder(cls, folder: Path) -> Source:
        """Every Python file below ``folder``."""
        paths = sorted(folder.rglob("*.py"))
        return cls({path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths})

    def __contains__(self, path: str) -> bool:
        return path in self.files

    def tree(self, path: str) -> ast.Module:
        if path not in self._trees:
            self._trees[path] = ast.parse(self.files.get(path, ""))
        return self._trees[path]

    def cls(self, path: str, name: str) -> ast.ClassDef | None:
        """A top-level class."""
        classes = (node for node in self.tree(path).body if isinstance(node, ast.ClassDef) and node.name == name)
        return next(classes, None)

    def function(self, path: str, name: str, within: str | None = None) -> ast.FunctionDef | None:
        """A top-level function, or a method of the class ``within``."""
        owner: ast.Module | ast.ClassDef | None = self.tree(path) if within is None else self.cls(path, within)
        body = owner.body if owner is not None else []
        return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)

    def value(self, path: str, name: str) -> ast.expr | None:
        """Return the value assigned to a top-level name."""
        for node in self.tree(path).body:
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                return node.value
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return node.value
        return None


def members(node: ast.ClassDef | None) -> str:
    """Public methods with their arguments, ``*`` after the abstract ones: ``apply(logits)*, ...``."""
    declared = []
    for item in node.body if node is not None else []:
        if isinstance(item, ast.FunctionDef) and (item.name == "__init__" or not item.name.startswith("_")):
            decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
            arguments = [argument.arg for argument in item.args.args + item.args.kwonlyargs]
            arguments = arguments if "staticmethod" in decorators else arguments[1:]
            written = item.name if "property" in decorators else f"{item.name}({', '.join(arguments)})"
            declared.append(written + "*" * ("abstractmethod" in decorators))
    return ", ".join(sorted(declared, key=str.lower))


def fields(node: ast.ClassDef | None) -> str:
    """Annotated names of a class body, in order."""
    body = node.body if node is not None else []
    return ", ".join(
        item.target.id for item in body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    )


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and everything below it, in the order in which it runs: arguments before their call."""
    for child in ast.iter_child_nodes(node):
        yield from in_order(child)
    yield node


def called(node: ast.AST) -> str:
    """The last name of what a call calls, or ""."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def names(node: ast.AST | None) -> set[str]:
    """All names and attributes below ``node``."""
    identifiers = set()
    for item in ast.walk(node) if node is not None else ():
        if isinstance(item, ast.Name):
            identifiers.add(item.id)
        elif isinstance(item, ast.Attribute):
            identifiers.add(item.attr)
    return identifiers


def strings(node: ast.AST | None) -> str:
    """All string constants below ``node``, joined."""
    walked = ast.walk(node) if node is not None else ()
    return "\n".join(item.value for item in walked if isinstance(item, ast.Constant) and isinstance(item.value, str))
