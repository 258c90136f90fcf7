"""Finds and parses the source of a module as the import system would, without importing anything.

``importlib.util.find_spec("pkg.mod")`` imports ``pkg``; this module asks for ``mod`` in the folders of ``pkg``.
"""

from __future__ import annotations

import ast
import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path


@dataclass(frozen=True)
class ModuleFile:
    """The files of a module.

    Attributes:
        file: its source; None for a namespace package or a module without source.
        folders: the folders of its submodules; empty if it is not a package.
        opaque: the reason for missing source ("compiled"), or "".
    """

    file: Path | None
    folders: tuple[Path, ...] = ()
    opaque: str = ""


class SourceError(Exception):
    """Error when a source file exists but cannot be parsed."""


class Sources:
    """The modules importable along ``path``, with its ``.pth`` files, or by default along ``sys.path``."""

    def __init__(self, path: Sequence[str] | None = None) -> None:
        importlib.invalidate_caches()
        if path is None:
            self._folders = tuple(Path(entry or ".") for entry in sys.path)
        else:
            self._folders = tuple(_with_pth(path))
        self._files: dict[str, ModuleFile | None] = {}
        self._trees: dict[Path, ast.Module] = {}

    def find(self, module: str) -> ModuleFile | None:
        """Return the module's files, or None if there is no such module."""
        if module not in self._files:
            parent, _, name = module.rpartition(".")
            if parent:
                package = self.find(parent)
                self._files[module] = _find_in(package.folders, name) if package else None
            else:
                self._files[module] = _find_in(self._folders, name) or self._editable(name)
        return self._files[module]

    def parse(self, file: Path) -> ast.Module:
        """Return the syntax tree of a source file.

        Raises:
            SourceError: the file cannot be read, or is not Python.
        """
        if file not in self._trees:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a plugin's invalid escapes do not matter here
                    self._trees[file] = ast.parse(file.read_bytes(), str(file))
            except SyntaxError as error:
                raise SourceError(f"{file}:{error.lineno or 0}: SyntaxError: {error.msg}") from error
            except (OSError, ValueError, RecursionError, MemoryError) as error:
                raise SourceError(f"{file}: {type(error).__name__}: {error}") from error
        return self._trees[file]

    def _editable(self, name: str) -> ModuleFile | None:
        """Find a package in the generated finder modules of setuptools' editable installs."""
        for folder in self._folders:
            for finder in _listing(folder, "__editable___*_finder.py"):
                mapped = _mapping(finder).get(name)
                if mapped is not None:
                    path = Path(mapped)
                    return _find_in((path.parent,), path.name) or _find_in((path.parent,), path.stem)
        return None


def _listing(folder: Path, pattern: str) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob(pattern))) if folder.is_dir() else ()


def _mapping(finder: Path) -> dict[str, str]:
    try:
        for node in ast.parse(finder.read_bytes()).body:
            if isinstance(node, ast.AnnAssign):
                named: list[ast.expr] = [node.target]
            elif isinstance(node, ast.Assign):
                named = node.targets
            else:
                continue
            if node.value is not None and any(isinstance(n, ast.Name) and n.id == "MAPPING" for n in named):
                return {str(key): str(path) for key, path in ast.literal_eval(node.value).items()}
    except (OSError, SyntaxError, ValueError, AttributeError):
        pass  # another tool's file of that name
    return {}


def _with_pth(path: Sequence[str]) -> Iterator[Path]:
    for entry in path:
        folder = Path(entry or ".")
        yield folder
        for pth in _listing(folder, "*.pth"):
            try:
                lines = pth.read_text("utf-8", "replace").splitlines()
            except OSError:
                continue
            for line in lines:
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    yield folder / line.strip()


def _find_in(folders: Sequence[Path], name: str) -> ModuleFile | None:
    spec = PathFinder.find_spec(name, [str(folder) for folder in folders])
    if spec is None:
        return None
    inside = tuple(map(Path, spec.submodule_search_locations or ()))
    if isinstance(spec.loader, SourceFileLoader):
        return ModuleFile(Path(spec.loader.path), inside)
    return ModuleFile(None, inside, "compiled" if spec.origin else "")
