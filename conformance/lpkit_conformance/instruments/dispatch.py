"""Watching the tensor operations of a plugin."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

COMPILER = "torch._dynamo"


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is never compiled; torch would otherwise import its compiler on first use (2 s)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _NoCompiler(ModuleType):
    """Answers what torch's operations ask their compiler for; who wants more gets the compiler itself."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """``function`` itself: nothing compiles it."""
        return function

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        return getattr(importlib.import_module(COMPILER), name)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Within it torch's operations on the meta device do not import the compiler, only to keep it away (1 s)."""
    if COMPILER in sys.modules:
        yield
        return
    nothing = sys.modules[COMPILER] = _NoCompiler(COMPILER)
    try:
        yield
    finally:
        if sys.modules.get(COMPILER) is nothing:
            del sys.modules[COMPILER]
