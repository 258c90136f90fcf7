"""Clocks with other readings: of another process, or jumping between readings."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType
from typing import Any
from unittest import mock

from lpkit_conformance.instruments.module_state import owners

AHEAD = 106_391.25
"""Seconds by which another rank's wall clock is ahead: another day, and an odd number of hours, minutes and seconds."""


START = 1_800_000_000.0
"""First reading of a clock that jumps."""

JUMP = 5_000.3
NO_JUMP = 1e-6
"""Seconds between two readings: more than an hour, and so few that a run sees a single time; a loop that waits ends."""


@contextmanager
def jumping_clock(cls: Any, by: float = JUMP) -> Iterator[None]:
    """Every reading of ``time``'s clocks is ``by`` seconds after the last; in modules of ``cls``, under any name."""
    now = [START]

    def later() -> float:
        now[0] += by
        return now[0]

    with _clock(later, ("time", "monotonic", "perf_counter", "process_time"), owners(cls)):
        yield


@contextmanager
def clock_ahead() -> Iterator[None]:
    """The wall clock is :data:`AHEAD`, for modules that are imported within it."""
    real = time.time
    with _clock(lambda: real() + AHEAD, ("time",), ()):
        yield


@contextmanager
def _clock(reading: Callable[[], float], seconds: Iterable[str], owners: Iterable[Any]) -> Iterator[None]:
    """The reading that these functions of ``time``, and ``datetime.now``, return."""
    clocks: dict[str, Any] = dict.fromkeys(seconds, reading)
    clocks |= {f"{name}_ns": lambda: int(reading() * 1e9) for name in seconds}

    class Replaced(datetime.datetime):
        """Reads the clock that replaces the real clock."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(reading() % 2**31, tz)

        utcnow = today = now

    others = {getattr(time, name): clock for name, clock in clocks.items()} | {datetime.datetime: Replaced}
    with ExitStack() as stack:
        for owner in owners:
            named = {
                name: others[value]
                for name, value in vars(owner).items()
                if isinstance(value, type | BuiltinFunctionType) and value in others
            }
            if named:
                stack.enter_context(mock.patch.multiple(owner, **named))
        stack.enter_context(mock.patch.multiple(time, **clocks))
        stack.enter_context(mock.patch.object(datetime, "datetime", Replaced))
        yield
