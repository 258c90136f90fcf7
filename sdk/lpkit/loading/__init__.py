"""Finds the logits processor that a name stands for, as vLLM does, with errors that name the mistake."""

from lpkit.interfaces.lookup import GROUP
from lpkit.loading.classes import Runner, interfaces_of
from lpkit.loading.imports import (
    ImportFailedError,
    InvalidTargetError,
    LoadError,
    MissingAttributeError,
    WrongInterfaceError,
    describe,
)
from lpkit.loading.targets import CONSTRUCTORS, installed, load_entry_point, resolve_target

__all__ = [
    "CONSTRUCTORS",
    "GROUP",
    "ImportFailedError",
    "InvalidTargetError",
    "LoadError",
    "MissingAttributeError",
    "Runner",
    "WrongInterfaceError",
    "describe",
    "installed",
    "interfaces_of",
    "load_entry_point",
    "resolve_target",
]
