"""When a step may be sampled: the watcher measures its own time, and keeps to a share of the time of steps."""

from __future__ import annotations

import random
from time import perf_counter

LONGEST_STEP = 1.0
"""Seconds. What lies between two steps beyond this is an idle server, which earns no time for checks."""

MEMORY = 30.0
"""Seconds of steps after which the past counts half."""


class Budget:
    """Decides, once per step, whether it is sampled.

    Args:
        share: of the time of steps that the watcher may take.
        rate: of steps that are sampled where the share allows it.

    Attributes:
        steps, sampled: so far.
        step_seconds, own_seconds: so far, in total.
    """

    def __init__(self, share: float, rate: float) -> None:
        self.steps = self.sampled = 0
        self.step_seconds = self.own_seconds = 0.0
        self._share, self._rate = share, rate
        self._recent_steps = self._recent_own = 0.0
        self._last: float | None = None
        self._cost = 0.0  # of a sampled step, as measured
        self._own_before = 0.0
        self._was_sampled = False
        # Of its own: the global generators are the engine's.
        self._random = random.Random()

    def begin(self) -> bool:
        """A step begins; whether it is sampled."""
        now = perf_counter()
        own = self.own_seconds - self._own_before
        self._own_before = self.own_seconds
        if self._last is not None:
            taken = min(now - self._last, LONGEST_STEP)
            self.step_seconds += taken
            self._recent_steps += taken
            self._recent_own += own
            if self._was_sampled:
                self._cost = own if not self._cost else 0.8 * self._cost + 0.2 * own
            if self._recent_steps > MEMORY:
                self._recent_steps /= 2
                self._recent_own /= 2
        self._last = now
        self.steps += 1
        left = self._share * self._recent_steps - self._recent_own
        # A share of one is a test's or a benchmark's: sample by the rate alone.
        allowed = self._share >= 1 or left > self._cost
        self._was_sampled = allowed and self._random.random() < self._rate
        self.sampled += self._was_sampled
        return self._was_sampled

    def pick(self, rows: int, most: int) -> list[int]:
        """``most`` of ``rows`` rows, in order."""
        return list(range(rows)) if rows <= most else sorted(self._random.sample(range(rows), most))
