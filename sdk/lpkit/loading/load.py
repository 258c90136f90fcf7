"""Loads logits processors the way vLLM does, with errors that name the mistake.

Every installed entry point of the group ``vllm.logits_processors`` comes first, then the explicit classes, in order.
Nothing is deduplicated. Each runner demands:

======  ==========================  ==========================
runner  installed entry point       ``module:Class`` or class
======  ==========================  ==========================
``v1``  nothing                     subclass of V1's interface
``v2``  subclass of V2's interface  subclass of V2's interface
======  ==========================  ==========================

Each error is a :class:`LoadError` and also the built-in type that vLLM raises there. There is one difference: a text
without a module or a class around its colon is a ``ValueError`` at once; vLLM first looks for an empty name.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any, Final

from lpkit.interfaces.lookup import GROUP
from lpkit.loading import imports
from lpkit.loading.classes import PORTABLE, Runner, checked, interfaces_of, name_of, prepare, versions
from lpkit.loading.imports import ConstructionError, ImportFailedError, InvalidTargetError, LoadError

CONSTRUCTORS: Final[dict[Runner, str]] = {
    "v1": "(vllm_config, device, is_pin_memory)",
    "v2": "(vllm_config, req_states)",
}
"""Arguments with which each runner calls a processor's class."""


def installed() -> list[importlib.metadata.EntryPoint]:
    """Return the group's entry points in vLLM's order: for each name the first distribution on ``sys.path``."""
    return list(importlib.metadata.entry_points(group=GROUP))


def load_entry_points(runner: Runner) -> list[type[Any]]:
    """Load the classes of all installed entry points.

    Args:
        runner: ``"v1"`` or ``"v2"``.

    Returns:
        Classes, in the order in which vLLM constructs them.

    Raises:
        ImportFailedError: an entry point cannot be imported; vLLM would not start.
        WrongInterfaceError: on ``"v2"``, an entry point is not a class of that interface. ``"v1"`` checks nothing.
    """
    return [load_entry_point(entry, runner) for entry in installed()]


def load_entry_point(entry: importlib.metadata.EntryPoint, runner: Runner | None = None) -> type[Any]:
    """Load one entry point's object by the rules of a runner.

    Args:
        entry: of the group :data:`GROUP`.
        runner: ``"v1"`` or ``"v2"``; None checks nothing beyond the import, like V1.

    Returns:
        The object that the entry point names.

    Raises:
        ImportFailedError, WrongInterfaceError: see :func:`load_entry_points`.
    """
    prepare()
    label = f"installed plugin {entry.name!r} ({entry.value}{origin_of(entry)})"
    try:
        # The pattern, not .module: for a malformed value that property raises AttributeError about None.
        match = entry.pattern.match(entry.value)
        if match is None:
            raise InvalidTargetError(f"{entry.value!r} is not of the form module:Class")
        module = match["module"]
        obj = imports.attribute(imports.import_module(module), module, match["attr"] or "")
    except LoadError as error:
        raise ImportFailedError(f"{label} does not load: {error.problem}", error.remedy) from error
    return checked(obj, runner, label) if runner == "v2" else obj


def load_explicit(specs: Sequence[str | type[Any]] | None, runner: Runner) -> list[type[Any]]:
    """Load classes passed by ``--logits-processors`` or ``LLM(logits_processors=...)``.

    Args:
        specs: ``module:Class`` or classes, or None.
        runner: ``"v1"`` or ``"v2"``.

    Returns:
        Classes, in the given order.

    Raises:
        InvalidTargetError: an item has another form, or is not a class.
        ImportFailedError: the module does not import.
        MissingAttributeError: the module has no such class.
        WrongInterfaceError: the class does not implement the runner's interface.
    """
    return [load_one(spec, runner) for spec in specs or ()]


def load_one(spec: str | type[Any], runner: Runner | None) -> type[Any]:
    """Load one item of :func:`load_explicit`; without a runner, either interface will do."""
    if isinstance(spec, type):
        prepare()
        return checked(spec, runner, name_of(spec))
    module, name = imports.split_fqcn(spec)  # raises for an object that is neither a string nor a class
    prepare()
    return checked(imports.attribute(imports.import_module(module), module, name), runner, spec)


def load_all(specs: Sequence[str | type[Any]] | None, runner: Runner) -> list[type[Any]]:
    """Load everything that vLLM loads: :func:`load_entry_points`, then :func:`load_explicit`.

    Args:
        specs: ``module:Class`` or classes, or None.
        runner: ``"v1"`` or ``"v2"``.

    Returns:
        Classes, in the order in which vLLM constructs them.
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
    """Load and construct processors as the runner does, in its order, without vLLM's built-in processors.

    With speculative decoding, V1 refuses explicit processors and does not construct installed ones. With a pooling
    model, both runners do the same. On a TPU, V1 silently loads none.

    Args:
        specs: ``module:Class`` or classes, or None.
        runner: ``"v1"`` or ``"v2"``.
        vllm_config: the first argument of each class.
        *state: ``(device, is_pin_memory)`` on ``"v1"``, ``(req_states,)`` on ``"v2"``.
        pooling: True for a pooling model.
        tpu: True on a TPU.

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
            f"{name_of(cls)} implements only {versions(has)}, and the {runner.upper()} runner calls "
            f"{cls.__name__}{CONSTRUCTORS[runner]}: {error}",
            PORTABLE,
        ) from error


def origin_of(entry: importlib.metadata.EntryPoint) -> str:
    """Return ``, NAME VERSION`` of the entry point's distribution; empty without a distribution."""
    dist = entry.dist
    return f", {dist.name} {dist.version}" if dist is not None else ""
