"""Clocks that say something else: in another process, or at the next reading."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType
from typing import Any
from unittest import mock

from lpkit_conformance.instruments.module_state import owners


@contextmanager
def jumping_clock(cls: Any) -> Iterator[None]:
    """Every reading of ``time``'s clocks is hours after the last, in the modules of ``cls`` by other names, too."""
    now = [time.time()]

    def later() -> float:
        now[0] += 5_000.3
        return now[0]

    def later_ns() -> int:
        return int(later() * 1e9)

    seconds = ("time", "monotonic", "perf_counter", "process_time")
    clocks: dict[str, Any] = dict.fromkeys(seconds, later)
    clocks |= {f"{name}_ns": later_ns for name in seconds}

    class Jumping(datetime.datetime):
        """Reads the clock that jumps."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(later() % 2**31, tz)

        utcnow = today = now

    others = {getattr(time, name): clock for name, clock in clocks.items()} | {datetime.datetime: Jumping}
    with ExitStack() as stack:
        for owner in owners(cls):
            named = {
                name: others[value]
                for name, value in vars(owner).items()
                if isinstance(value, type | BuiltinFunctionType) and value in others
            }
            if named:
                stack.enter_context(mock.patch.multiple(owner, **named))
        stack.enter_context(mock.patch.multiple(time, **clocks))
        stack.enter_context(mock.patch.object(datetime, "datetime", Jumping))
        yield
