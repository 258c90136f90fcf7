"""Checks judged beside this process, by a fork of it: two runners take two processors half the time.

Only what passes there is believed. Whatever else happens there (a failure, a hang, an exit) is judged again here, so
that one process blames, in the order of the checks, and knows why it was lost.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from lpkit_conformance.processes import pulse, tree
from lpkit_conformance.results import CheckResult

PATIENCE_SECONDS = 5.0
"""Between two signs of life; who is impatient judges again, and loses no more than time."""

POLL_SECONDS = 0.05


def possible(device: str) -> bool:
    """Whether a fork of this process can run what it runs, at the same time."""
    return sys.platform == "linux" and device == "cpu" and len(os.sched_getaffinity(0)) > 1


class Beside:
    """A fork of this process that judges some checks; a context manager that ends it.

    Args:
        labels: of the checks, in their order.
        judge: gives the result of one, there.
    """

    def __init__(self, labels: Sequence[str], judge: Callable[[str], CheckResult]) -> None:
        self._awaited = set(labels)
        self._passed: dict[str, CheckResult] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="beside-", dir=tree.own_folder(), ignore_cleanup_errors=True)
        signs = pulse.Pulse(Path(self._folder.name))
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a thread's lock may stay locked there: patience ends
            self.pid = os.fork()
        if self.pid == 0:
            _work(labels, judge, signs, writing)
        os.close(writing)
        self._signs, self._reading, self._unread = signs, reading, b""

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def passed(self, label: str) -> CheckResult | None:
        """The result of a check that has passed there, or is skipped; None if it is to be judged here."""
        while label in self._awaited:
            self._hear()
        return self._passed.pop(label, None)

    def _hear(self) -> None:
        """Wait for a result; if none comes, no more are awaited."""
        alive, count = time.monotonic(), -1
        while not select.select([self._reading], [], [], POLL_SECONDS)[0]:
            pulse.beat()  # who waits for this process has its own limit
            if count != self._signs.count:
                alive, count = time.monotonic(), self._signs.count
            elif time.monotonic() > alive + PATIENCE_SECONDS:
                self._end()
                return
        heard = os.read(self._reading, 1 << 16)
        if not heard:
            self._end()
            return
        *whole, self._unread = (self._unread + heard).split(b"\n")
        for line in whole:
            label, result = json.loads(line)
            self._awaited.discard(label)
            if result is not None:
                self._passed[label] = CheckResult.from_json(result)

    def _end(self) -> None:
        """End it; a second call does nothing."""
        self._awaited.clear()
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
            os.close(self._reading)
            self._signs.close()
            self._folder.cleanup()


def _work(labels: Sequence[str], judge: Callable[[str], CheckResult], signs: pulse.Pulse, writing: int) -> NoReturn:
    """What the fork does; it never returns to what its origin was doing."""
    try:
        pulse.stop()  # that heart, and the thread that it set a limit with, are the origin's
        pulse.start(pulse.Heart(signs, lambda: None))
        for label in labels:
            result = judge(label)
            believed = result.status == "passed" or (result.status == "skipped" and not result.never_active)
            line = json.dumps([label, result.to_json() if believed else None])
            os.write(writing, line.encode() + b"\n")
    finally:
        os._exit(0)
