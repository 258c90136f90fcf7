"""Loads logits processors the way vLLM does, with errors that name the mistake.

Every installed entry point of the group ``vllm.logits_processors`` comes first, then what was passed explicitly, in
order; nothing is deduplicated. What a runner demands:

======  ==========================  ==========================
runner  installed entry point       ``module:Class`` or class
======  ==========================  ==========================
``v1``  nothing                     subclass of V1's interface
``v2``  subclass of V2's interface  subclass of V2's interface
======  ==========================  ==========================

Errors are :class:`LoadError` and also the built-in type that vLLM raises there. Only a text that lacks one side
of its colon is a ``ValueError`` here at once, where vLLM looks for a module or an attribute of no name first.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

from lpkit.interfaces import lookup
from lpkit.interfaces.lookup import GROUP
from lpkit.loading import imports
from lpkit.loading.imports import (
    ConstructionError,
    ImportFailedError,
    InvalidTargetError,
    LoadError,
    WrongInterfaceError,
    describe,
)

Runner: TypeAlias = Literal["v1", "v2"]

CONSTRUCTORS: Final[dict[Runner, str]] = {
    "v1": "(vllm_config, device, is_pin_memory)",
    "v2": "(vllm_config, req_states)",
}
"""How each runner calls a processor's class."""

_BASES: Final[dict[Runner, tuple[str, ...]]] = {
    "v1": ("lpkit.v1", lookup.V1_MODULE),
    "v2": ("lpkit.v2", lookup.V2_MODULE),
}
_PORTABLE: Final = "Derive it from lpkit.LogitsProcessor, which runs on both runners"


@dataclass(frozen=True)
class Target:
    """A processor class found by name.

    Attributes:
        name: what to call it in a report: the entry point's name, ``module:Class`` or ``file.py:Class``.
        cls: the class.
        origin: ``"entry point"``, ``"module"``, ``"file"`` or ``"class"``.
        value: ``module:Class`` as importable in this process.
        distribution: name and version of the entry point's distribution, or None.
    """

    name: str
    cls: type[Any]
    origin: Literal["entry point", "module", "file", "class"]
    value: str
    distribution: str | None = None


def interfaces_of(cls: object) -> frozenset[Runner]:
    """Which of vLLM's interfaces a class really subclasses; imports nothing.

    A class that subclasses an interface has loaded its module, so modules that are not loaded need no look.

    Args:
        cls: a class; anything else has no interface.
    """
    if not isinstance(cls, type):
        return frozenset()
    found: set[Runner] = set()
    for runner, modules in _BASES.items():
        for name in modules:
            base = getattr(sys.modules.get(name), "LogitsProcessor", None)
            if isinstance(base, type) and issubclass(cls, base):
                found.add(runner)
    return frozenset(found)


def installed() -> list[importlib.metadata.EntryPoint]:
    """The group's entry points, in vLLM's order: one distribution per name, the first one on ``sys.path``."""
    return list(importlib.metadata.entry_points(group=GROUP))


def load_entry_points(runner: Runner) -> list[type[Any]]:
    """Load the classes of all installed entry points.

    Args:
        runner: ``"v1"`` or ``"v2"``.

    Returns:
        In the order in which vLLM constructs them.

    Raises:
        ImportFailedError: one of them cannot be imported; vLLM then does not start.
        WrongInterfaceError: on ``"v2"``, one is not a class of that interface. ``"v1"`` checks nothing.
    """
    return [load_entry_point(entry, runner) for entry in installed()]


def load_entry_point(entry: importlib.metadata.EntryPoint, runner: Runner | None = None) -> type[Any]:
    """Load one entry point's object, by the rules of a runner.

    Args:
        entry: of the group :data:`GROUP`.
        runner: ``"v1"`` or ``"v2"``; None demands nothing but an import, as V1 does.

    Returns:
        What the entry point names.

    Raises:
        ImportFailedError, WrongInterfaceError: see :func:`load_entry_points`.
    """
    _prepare()
    label = f"installed plugin {entry.name!r} ({entry.value}{_from(entry)})"
    try:
        # The pattern, not .module: a malformed value makes that raise AttributeError about None.
        match = entry.pattern.match(entry.value)
        if match is None:
            raise InvalidTargetError(f"{entry.value!r} is not of the form module:Class")
        module = match["module"]
        obj = imports.attribute(imports.import_module(module), module, match["attr"] or "")
    except LoadError as error:
        raise ImportFailedError(f"{label} does not load: {error.problem}", error.remedy) from error
    return _checked(obj, runner, label) if runner == "v2" else obj


def load_explicit(specs: Sequence[str | type[Any]] | None, runner: Runner) -> list[type[Any]]:
    """Load classes passed as ``--logits-processors`` or ``LLM(logits_processors=...)``.

    Args:
        specs: ``module:Class`` or classes; None: none.
        runner: ``"v1"`` or ``"v2"``.

    Returns:
        In the given order.

    Raises:
        InvalidTargetError: not of that form, or not a class.
        ImportFailedError: the module does not import.
        MissingAttributeError: the module has no such class.
        WrongInterfaceError: the class does not implement the runner's interface.
    """
    return [_load_fqcn(spec, runner) if isinstance(spec, str) else _given(spec, runner) for spec in specs or ()]


def _load_fqcn(spec: str, runner: Runner | None) -> type[Any]:
    module, name = imports.split_fqcn(spec)
    _prepare()
    return _checked(imports.attribute(imports.import_module(module), module, name), runner, spec)


def _given(cls: Any, runner: Runner | None) -> type[Any]:
    if not isinstance(cls, type):
        imports.split_fqcn(cls)  # raises: an object that is neither a string nor a class
    _prepare()
    return _checked(cls, runner, _name(cls))


def load_all(specs: Sequence[str | type[Any]] | None, runner: Runner) -> list[type[Any]]:
    """Load what vLLM loads: :func:`load_entry_points`, then :func:`load_explicit`.

    Args:
        specs: ``module:Class`` or classes; None: none.
        runner: ``"v1"`` or ``"v2"``.

    Returns:
        In the order in which vLLM constructs them.
    """
    return load_entry_points(runner) + load_explicit(specs, runner)


def build(
    specs: Sequence[str | type[Any]] | None,
    runner: Runner,
    vllm_config: Any,
    *state: Any,
    pooling: bool = False,
    tpu: bool = False,
) -> list[Any]:
    """Load and construct as the runner does, in its order, without vLLM's built-in processors.

    With speculative decoding V1 refuses explicit processors and does not construct installed ones; so does either
    runner with a pooling model. On a TPU V1 silently loads none.

    Args:
        specs: ``module:Class`` or classes; None: none.
        runner: ``"v1"`` or ``"v2"``.
        vllm_config: given to each class.
        *state: ``(device, is_pin_memory)`` on ``"v1"``, ``(req_states,)`` on ``"v2"``.
        pooling: the model is a pooling model.
        tpu: the platform is a TPU.

    Returns:
        The instances.

    Raises:
        LoadError: see :func:`load_all`; :class:`ConstructionError` for a class that needs the other runner.
    """
    if pooling:
        if specs:
            raise InvalidTargetError("pooling models take no custom logits processors", "They sample no tokens")
        return []
    if runner == "v1" and getattr(vllm_config, "speculative_config", None):
        if specs:
            raise InvalidTargetError(
                "the V1 runner takes no custom logits processors with speculative decoding",
                "Use the V2 runner, or turn speculative decoding off",
            )
        return []
    if runner == "v1" and tpu:
        return []
    return [_construct(cls, runner, (vllm_config, *state)) for cls in load_all(specs, runner)]


def _construct(cls: type[Any], runner: Runner, arguments: tuple[Any, ...]) -> Any:
    try:
        return cls(*arguments)
    except TypeError as error:
        has = interfaces_of(cls)
        if runner in has or not has:
            raise
        raise ConstructionError(
            f"{_name(cls)} implements only {_versions(has)}, and the {runner.upper()} runner calls "
            f"{cls.__name__}{CONSTRUCTORS[runner]}: {error}",
            _PORTABLE,
        ) from error


def resolve_target(spec: str | type[Any]) -> Target:
    """Find the class that a user names.

    A file's folder becomes importable (its package's parent folder, if the file lies in a package). A file that
    defines one processor needs no ``:Class``.

    Args:
        spec: an entry point's name, ``module:Class``, ``path/to/file.py:Class``, or a class.

    Returns:
        The class, and where it was found.

    Raises:
        LoadError: nothing of that name, or it is not a class with at least one of vLLM's interfaces.
    """
    if not isinstance(spec, str):
        return Target(_name(spec), _given(spec, None), "class", _name(spec))
    if spec.endswith(".py"):
        return _file_target(spec, Path(spec), "")
    path, colon, name = spec.rpartition(":")
    if path.endswith(".py"):
        return _file_target(spec, Path(path), name)
    if colon:
        return Target(spec, _load_fqcn(spec, None), "module", spec)
    return _entry_point_target(spec)


def _entry_point_target(name: str) -> Target:
    entries = installed()
    named = [entry for entry in entries if entry.name == name]
    if not named:
        raise InvalidTargetError(f"no installed logits processor is named {name!r}", _hint(name, entries))
    if len({entry.value for entry in named}) > 1:
        values = ", ".join(f"{entry.value}{_from(entry)}" for entry in named)
        raise InvalidTargetError(f"{name!r} is the name of several entry points: {values}", "Name the module:Class")
    entry = named[0]
    cls = _checked(load_entry_point(entry), None, f"entry point {name!r} ({entry.value})")
    return Target(name, cls, "entry point", entry.value.split("[")[0].strip(), _from(entry)[2:] or None)


def _hint(name: str, entries: list[importlib.metadata.EntryPoint]) -> str:
    if "/" in name or "\\" in name or Path(f"{name}.py").is_file():
        return "A class in a file is named path/to/file.py:Class"
    known = sorted({entry.name for entry in entries})
    near = imports.nearest(name, known)
    if near:
        return near
    form = imports.colon_form(name)
    if form:
        return f"A class in a module is named {form}"
    return f"Installed: {', '.join(known)}" if known else f"No distribution here has an entry point of group {GROUP}"


def _file_target(spec: str, path: Path, name: str) -> Target:
    if not path.is_file():
        near = imports.nearest(path.name, [item.name for item in path.parent.glob("*.py")])
        raise InvalidTargetError(f"there is no file {path}", near)
    _prepare()
    module = _module_of_file(path.resolve())
    if not name:
        classes = [key for key, value in vars(module).items() if _defined_in(value, module)]
        if len(classes) != 1:
            listed = f"It defines {', '.join(classes)}" if classes else "It defines no processor"
            raise InvalidTargetError(f"{spec} does not say which class", f"{listed}; write {spec}:Class")
        name = classes[0]
    cls = _checked(imports.attribute(module, str(path), name), None, spec)
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
        raise InvalidTargetError(f"{module.__name__} is {module.__file__} here, not {path}", "Rename one of them")
    name = path.stem
    if _is_file(sys.modules.get(name), path):
        return sys.modules[name]
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"lpkit_target_{name}"  # random.py must not replace, nor be replaced by, the module of that name
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


def _prepare() -> None:
    """Import the interfaces, and with them vLLM, while CUDA is still visible, as in a running engine."""
    importlib.import_module("lpkit.v1")
    importlib.import_module("lpkit.v2")


def _checked(obj: Any, runner: Runner | None, label: str) -> type[Any]:
    """``obj``, if it is a class with the runner's interface (None: with either).

    Raises:
        WrongInterfaceError: it is not.
    """
    if not isinstance(obj, type):
        what, remedy = describe(obj), "vLLM constructs the processor itself, so name a class"
        if interfaces_of(type(obj)):
            remedy = f"Name its class: {_name(type(obj))}"
        raise WrongInterfaceError(f"{label} is {what}, not a class", remedy)
    has = interfaces_of(obj)
    if runner in has or (runner is None and has):
        return obj
    if not has:
        namesake = next((base for base in obj.__mro__[1:] if base.__name__ == "LogitsProcessor"), None)
        other = f" (its base {_name(namesake)} is something else)" if namesake else ""
        raise WrongInterfaceError(
            f"{label} derives from neither of vLLM's logits processor interfaces{other}", _PORTABLE
        )
    other_way = (
        "or run vLLM with VLLM_USE_V2_MODEL_RUNNER=0"
        if runner == "v2"
        else "or run it on vLLM's V2 runner (VLLM_USE_V2_MODEL_RUNNER=1)"
    )
    default = ", which vLLM uses by default since 0.31," if runner == "v2" else ""
    bridge = ", bridge it (lpkit.Bridged)" if runner == "v2" else ""
    raise WrongInterfaceError(
        f"{label} implements only {_versions(has)}; the {str(runner).upper()} runner{default} refuses it",
        f"{_PORTABLE}{bridge}, {other_way}",
    )


def _versions(interfaces: frozenset[Runner]) -> str:
    return " and ".join(f"vLLM's {item.upper()} interface" for item in sorted(interfaces)) or "neither interface"


def _name(cls: type[Any]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _from(entry: importlib.metadata.EntryPoint) -> str:
    dist = entry.dist
    return f", {dist.name} {dist.version}" if dist is not None else ""
