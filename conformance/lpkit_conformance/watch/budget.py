"""Decides which steps are sampled, so that the watcher keeps to its share of step time."""

from __future__ import annotations

import random
from time import perf_counter

LONGEST_STEP = 1.0
"""Seconds. A longer pause between two steps is an idle server, and pays for no checks."""

MEMORY = 30.0
"""Seconds of steps after which earlier steps count half."""


class StepBudget:
    """Decides once per step whether the watcher samples it.

    Attributes:
        steps, sampled: counted so far.
        step_seconds, own_seconds: total time of the steps, and of the watcher in them.
    """

    def __init__(self, share: float, rate: float) -> None:
        self.steps = self.sampled = 0
        self.step_seconds = self.own_seconds = 0.0
        self._share, self._rate = share, rate
        self._recent_steps = self._recent_own = 0.0
        self._last: float | None = None
        self._cost = 0.0  # moving average of a sampled step
        self._own_before = 0.0
        self._was_sampled = False
        # The global generators belong to the engine.
        self._random = random.Random()

    def begin(self) -> bool:
        """Begin a step, and return whether to sample it."""
        now = perf_counter()
        spent = self.own_seconds - self._own_before
        self._own_before = self.own_seconds
        if self._last is not None:
            taken = min(now - self._last, LONGEST_STEP)
            self.step_seconds += taken
            self._recent_steps += taken
            self._recent_own += spent
            if self._was_sampled:
                self._cost = spent if not self._cost else 0.8 * self._cost + 0.2 * spent
            if self._recent_steps > MEMORY:
                self._recent_steps /= 2
                self._recent_own /= 2
                self._cost /= 2  # a first sample that was slow must not be the last one
        self._last = now
        self.steps += 1
        left = self._share * self._recent_steps - self._recent_own
        # Tests and benchmarks use a share of 1: only the rate counts then.
        allowed = self._share >= 1 or left > self._cost
        self._was_sampled = allowed and self._random.random() < self._rate
        self.sampled += self._was_sampled
        return self._was_sampled

    def pick(self, rows: int, most: int) -> list[int]:
        """Return at most ``most`` of ``rows`` row numbers, sorted."""
        return list(range(rows)) if rows <= most else sorted(self._random.sample(range(rows), most))
