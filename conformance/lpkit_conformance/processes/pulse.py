"""Signs of life tell a slow child from a hanging child, at the price of a microsecond per call.

A few bytes of shared memory hold a counter and the name of the child's current call. The parent's time limit restarts
whenever the counter has moved.
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
SIZE = 512
COUNT = struct.Struct("<Q")

GIVEN = " with "
"""Between a method's name and what it is given, in the name of a call."""

IMPORTS_COUNT = 4
"""Number of time limits for which imports within one call count as signs of life: an endless loop may import, too."""


class Pulse:
    """The shared bytes of one child, in its folder. The parent creates the file."""

    def __init__(self, folder: Path) -> None:
        file = folder / FILE
        if not file.exists():
            file.write_bytes(bytes(SIZE))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), SIZE)
        self._count = self.count

    @property
    def count(self) -> int:
        beats: int = COUNT.unpack_from(self._map)[0]
        return beats

    @property
    def calls(self) -> str:
        """Name of the current call; empty between calls."""
        return self._map[COUNT.size :].rstrip(b"\0").decode("utf-8", "replace")

    def beat(self) -> None:
        self._count += 1
        COUNT.pack_into(self._map, 0, self._count)

    def name(self, name: str) -> None:
        """Set the name of the current call."""
        text = name.encode()[: SIZE - COUNT.size]
        self._map[COUNT.size :] = text.ljust(SIZE - COUNT.size, b"\0")

    def close(self) -> None:
        self._map.close()


class Heart(importlib.abc.MetaPathFinder):
    """The child's side. Imports count as signs of life for a while: a process that imports much is slow but not stuck.

    Args:
        pulse: the bytes that the parent reads.
        changed: called periodically after a sign of life.

    Attributes:
        seconds: the parent's time limit; 0 while there is no limit.
        hung: calls that did not return in an earlier child, with the label of the check that saw it.
    """

    def __init__(self, pulse: Pulse, changed: Callable[[], None]) -> None:
        self.seconds = 0.0
        self.hung: dict[str, str] = {}
        self._pulse, self._changed = pulse, changed
        self._thread = threading.get_ident()
        self._called = self._reported = time.monotonic()
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
        if now - self._reported > self.seconds / 10:
            self._reported = now
            self._changed()


_hearts: list[Heart] = []


def start(heart: Heart) -> None:
    """Let :func:`beat` and :func:`call` of this process, and its imports, report to this heart from now on."""
    _hearts[:] = [heart]
    sys.meta_path.insert(0, heart)


def stop() -> None:
    """Undo :func:`start`, if it was called."""
    if _hearts:
        sys.meta_path.remove(_hearts.pop())


def beat() -> None:
    """Send a sign of life; without effect outside a child."""
    if _hearts:
        _hearts[0].beat()


def call(name: str) -> str:
    """Set the name of the current call and return the previous one."""
    return _hearts[0].call(name) if _hearts else ""


def hung(name: str) -> str:
    """Return the label of the check in which this call did not return; empty if it may be called."""
    return _hearts[0].hung.get(name, "") if _hearts else ""
