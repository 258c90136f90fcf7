"""Finds the class that a user names: an entry point, or a class in a module or a file.

Each error is a :class:`LoadError` and also the built-in type that vLLM raises there.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lpkit.interfaces.lookup import GROUP
from lpkit.loading import imports
from lpkit.loading.classes import Runner, checked, interfaces_of, name_of, prepare
from lpkit.loading.imports import ImportFailedError, InvalidTargetError, LoadError

CONSTRUCTORS: Final[dict[Runner, str]] = {
    "v1": "(vllm_config, device, is_pin_memory)",
    "v2": "(vllm_config, req_states)",
}
"""Arguments with which each runner calls a processor's class."""


def installed() -> list[importlib.metadata.EntryPoint]:
    """Return the group's entry points in vLLM's order: for each name the first distribution on ``sys.path``."""
    return list(importlib.metadata.entry_points(group=GROUP))


def load_entry_point(entry: importlib.metadata.EntryPoint) -> Any:
    """Load one entry point's object, which may be anything: like vLLM's V1 runner, this checks nothing else.

    Args:
        entry: of the group :data:`GROUP`.

    Returns:
        The object that the entry point names.

    Raises:
        ImportFailedError: the entry point cannot be imported; vLLM would not start.
    """
    prepare()
    label = f"installed plugin {entry.name!r} ({entry.value}{_origin(entry)})"
    try:
        # The pattern, not .module: for a malformed value that property raises AttributeError about None.
        match = entry.pattern.match(entry.value)
        if match is None:
            raise InvalidTargetError(f"{entry.value!r} is not of the form module:Class")
        module = match["module"]
        return imports.attribute(imports.import_module(module), module, match["attr"] or "")
    except LoadError as error:
        raise ImportFailedError(f"{label} does not load: {error.problem}", error.remedy) from error


def resolve_target(spec: str | type[Any]) -> type[Any]:
    """Find the class that a user names.

    A file's folder becomes importable (its package's parent folder, if the file lies in a package). A file that
    defines one processor needs no ``:Class``.

    Args:
        spec: an entry point's name, ``module:Class``, ``path/to/file.py:Class``, or a class.

    Returns:
        The class.

    Raises:
        LoadError: the name is unknown, or not a class with at least one of vLLM's interfaces.
    """
    if not isinstance(spec, str):
        return _of_module(spec)
    if spec.endswith(".py"):
        return _of_file(spec, Path(spec), "")
    path, colon, name = spec.rpartition(":")
    if path.endswith(".py"):
        return _of_file(spec, Path(path), name)
    return _of_module(spec) if colon else _of_entry_point(spec)


def _of_module(spec: str | type[Any]) -> type[Any]:
    if isinstance(spec, type):
        prepare()
        return checked(spec, name_of(spec))
    module, name = imports.split_fqcn(spec)  # raises for an object that is neither a string nor a class
    prepare()
    return checked(imports.attribute(imports.import_module(module), module, name), spec)


def _of_entry_point(name: str) -> type[Any]:
    entries = installed()
    named = [entry for entry in entries if entry.name == name]
    if not named:
        raise InvalidTargetError(f"no installed logits processor is named {name!r}", _hint(name, entries))
    if len({entry.value for entry in named}) > 1:
        values = ", ".join(f"{entry.value}{_origin(entry)}" for entry in named)
        raise InvalidTargetError(f"{name!r} is the name of several entry points: {values}", "Name the module:Class")
    entry = named[0]
    return checked(load_entry_point(entry), f"entry point {name!r} ({entry.value})")


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


def _of_file(spec: str, path: Path, name: str) -> type[Any]:
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
    return checked(imports.attribute(module, str(path), name), spec)


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


def _origin(entry: importlib.metadata.EntryPoint) -> str:
    """Return ``, NAME VERSION`` of the entry point's distribution; empty without a distribution."""
    dist = entry.dist
    return f", {dist.name} {dist.version}" if dist is not None else ""
