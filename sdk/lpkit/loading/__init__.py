"""Loads logits processors the way vLLM does, with errors that name the mistake."""

from lpkit.interfaces.lookup import GROUP
from lpkit.loading.classes import Runner, interfaces_of
from lpkit.loading.imports import (
    ConstructionError,
    ImportFailedError,
    InvalidTargetError,
    LoadError,
    MissingAttributeError,
    WrongInterfaceError,
    describe,
)
from lpkit.loading.load import (
    CONSTRUCTORS,
    build,
    installed,
    load_all,
    load_entry_point,
    load_entry_points,
    load_explicit,
)
from lpkit.loading.targets import Target, resolve_target

__all__ = [
    "CONSTRUCTORS",
    "GROUP",
    "ConstructionError",
    "ImportFailedError",
    "InvalidTargetError",
    "LoadError",
    "MissingAttributeError",
    "Runner",
    "Target",
    "WrongInterfaceError",
    "build",
    "describe",
    "installed",
    "interfaces_of",
    "load_all",
    "load_entry_point",
    "load_entry_points",
    "load_explicit",
    "resolve_target",
]
