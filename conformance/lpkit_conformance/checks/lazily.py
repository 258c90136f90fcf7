"""The names of ``needs.py``, imported when a check first uses any of it, so that listing checks is quick."""

# ruff: noqa: F403

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpkit_conformance.checks.needs import *
else:

    class Later:
        """A name of ``needs.py`` whose attributes are read there."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(getattr(import_module(f"{__package__}.needs"), self._name), attribute)

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Later(name)
