"""Finds the class that a user names: an entry point, or a class in a module or a file."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from lpkit.interfaces.lookup import GROUP
from lpkit.loading import imports
from lpkit.loading.classes import checked, interfaces_of, name_of, prepare
from lpkit.loading.imports import InvalidTargetError
from lpkit.loading.load import installed, load_entry_point, load_one, origin_of


@dataclass(frozen=True)
class Target:
    """A processor class found by name.

    Attributes:
        name: name in reports: the entry point's name, ``module:Class`` or ``file.py:Class``.
        cls: the class.
        origin: ``"entry point"``, ``"module"``, ``"file"`` or ``"class"``.
        value: ``module:Class`` that this process can import.
        distribution: name and version of the entry point's distribution, or None.
    """

    name: str
    cls: type[Any]
    origin: Literal["entry point", "module", "file", "class"]
    value: str
    distribution: str | None = None


def resolve_target(spec: str | type[Any]) -> Target:
    """Find the class that a user names.

    A file's folder becomes importable (its package's parent folder, if the file lies in a package). A file that
    defines one processor needs no ``:Class``.

    Args:
        spec: an entry point's name, ``module:Class``, ``path/to/file.py:Class``, or a class.

    Returns:
        The class and its origin.

    Raises:
        LoadError: the name is unknown, or not a class with at least one of vLLM's interfaces.
    """
    if not isinstance(spec, str):
        cls = load_one(spec, None)
        return Target(name_of(cls), cls, "class", name_of(cls))
    if spec.endswith(".py"):
        return _file_target(spec, Path(spec), "")
    path, colon, name = spec.rpartition(":")
    if path.endswith(".py"):
        return _file_target(spec, Path(path), name)
    if colon:
        return Target(spec, load_one(spec, None), "module", spec)
    return _entry_point_target(spec)


def _entry_point_target(name: str) -> Target:
    entries = installed()
    named = [entry for entry in entries if entry.name == name]
    if not named:
        raise InvalidTargetError(f"no installed logits processor is named {name!r}", _hint(name, entries))
    if len({entry.value for entry in named}) > 1:
        values = ", ".join(f"{entry.value}{origin_of(entry)}" for entry in named)
        raise InvalidTargetError(f"{name!r} is the name of several entry points: {values}", "Name the module:Class")
    entry = named[0]
    cls = checked(load_entry_point(entry), None, f"entry point {name!r} ({entry.value})")
    return Target(name, cls, "entry point", entry.value.split("[")[0].strip(), origin_of(entry)[2:] or None)


def _hint(name: str, entries: list[importlib.metadata.EntryPoint]) -> str:
    if "/" in name or "\\" in name or Path(f"{name}.py").is_file():
        return "A class in a file is named path/to/file.py:Class"
    names = sorted({entry.name for entry in entries})
    near = imports.nearest(name, names)
    if near:
        return near
    form = imports.colon_form(name)
    if form:
        return f"A class in a module is named {form}"
    return f"Installed: {', '.join(names)}" if names else f"No distribution here has an entry point of group {GROUP}"


def _file_target(spec: str, path: Path, name: str) -> Target:
    if not path.is_file():
        near = imports.nearest(path.name, [item.name for item in path.parent.glob("*.py")])
        raise InvalidTargetError(f"there is no file {path}", near)
    prepare()
    module = _module_of_file(path.resolve())
    if not name:
        classes = [key for key, value in vars(module).items() if _defined_in(value, module)]
        if len(classes) != 1:
            listed = f"It defines {', '.join(classes)}" if classes else "It defines no processor"
            raise InvalidTargetError(f"{spec} does not say which class", f"{listed}; write {spec}:Class")
        name = classes[0]
    cls = checked(imports.attribute(module, str(path), name), None, spec)
    return Target(spec, cls, "file", f"{module.__name__}:{name}")


def _defined_in(value: object, module: ModuleType) -> bool:
    return bool(interfaces_of(value)) and getattr(value, "__module__", None) == module.__name__


def _module_of_file(path: Path) -> ModuleType:
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts, folder = [folder.name, *parts], folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    if len(parts) > 1:
        module = imports.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        if _is_file(module, path):
            return module
        raise InvalidTargetError(f"{module.__name__} is {module.__file__} here, not {path}", "Rename either file")
    name = path.stem
    if _is_file(sys.modules.get(name), path):
        return sys.modules[name]
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"lpkit_target_{name}"  # random.py must neither replace the module of that name nor be replaced by it
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidTargetError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with imports.importing(name):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_file(module: ModuleType | None, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path
