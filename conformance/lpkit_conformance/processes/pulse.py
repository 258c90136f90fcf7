"""Signs of life: how a parent tells a child that is slow from one that hangs, at a microsecond for each call.

A few bytes that both have mapped hold a counter and the name of what the child is calling. The parent's time limit
begins anew whenever the counter has moved.
"""

from __future__ import annotations

import importlib.abc
import mmap
import struct
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

FILE = "pulse"
SIZE = 128
COUNT = struct.Struct("<Q")

IMPORTS_COUNT = 4
"""Time limits for which imports within one call count as signs of life: an endless loop may import, too."""


class Pulse:
    """The bytes of one child, in its folder. The parent makes the file."""

    def __init__(self, folder: Path) -> None:
        file = folder / FILE
        if not file.exists():
            file.write_bytes(bytes(SIZE))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), SIZE)
        self._count = self.count

    @property
    def count(self) -> int:
        found: int = COUNT.unpack_from(self._map)[0]
        return found

    @property
    def calls(self) -> str:
        """What is being called; empty between calls."""
        return self._map[COUNT.size :].rstrip(b"\0").decode("utf-8", "replace")

    def beat(self) -> None:
        self._count += 1
        COUNT.pack_into(self._map, 0, self._count)

    def name(self, name: str) -> None:
        """Say what is being called."""
        text = name.encode()[: SIZE - COUNT.size]
        self._map[COUNT.size :] = text.ljust(SIZE - COUNT.size, b"\0")

    def close(self) -> None:
        self._map.close()


class Heart(importlib.abc.MetaPathFinder):
    """The child's side. Imports are signs of life for a while, too: what imports much is slow, and does not hang.

    Args:
        pulse: what the parent reads.
        changed: called every so often when there was a sign of life.

    Attributes:
        seconds: the parent's time limit; 0 as long as there is none.
    """

    def __init__(self, pulse: Pulse, changed: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._pulse, self._changed = pulse, changed
        self._thread = threading.get_ident()
        self._called = self._told = time.monotonic()
        self._calls = ""

    def beat(self) -> None:
        """The process goes on."""
        self._called = now = time.monotonic()
        self._beat(now)

    def call(self, name: str) -> str:
        """Something is called now, or returned to; what was called until now."""
        outer, self._calls = self._calls, name
        self._pulse.name(name)
        self.beat()
        return outer

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        now = time.monotonic()
        if threading.get_ident() == self._thread and now - self._called < IMPORTS_COUNT * self.seconds:
            self._beat(now)
        return None

    def _beat(self, now: float) -> None:
        self._pulse.beat()
        if now - self._told > self.seconds / 10:
            self._told = now
            self._changed()


_hearts: list[Heart] = []


def start(heart: Heart) -> None:
    """From now on :func:`beat` and :func:`call` of this process, and its imports, are this heart's."""
    _hearts[:] = [heart]
    sys.meta_path.insert(0, heart)


def stop() -> None:
    """Undo :func:`start`, if it was called."""
    if _hearts:
        sys.meta_path.remove(_hearts.pop())


def beat() -> None:
    """Say that this process goes on; for nobody, unless it is a child."""
    if _hearts:
        _hearts[0].beat()


def call(name: str) -> str:
    """Say what this process calls from now on, or returns to; what it called until now."""
    return _hearts[0].call(name) if _hearts else ""
