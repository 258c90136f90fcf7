"""Writes numbers, traces and log lines in a separate thread, so that no step waits for a slow or full disk."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import queue
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lpkit_conformance.traces import Trace, TraceError, dumps
from lpkit_conformance.watch.numbers import STALL, ProcessCounts, Violation, summary
from lpkit_conformance.watch.run_directory import process_name, used, write, write_numbers
from lpkit_conformance.watch.settings import WatchSettings

# A child of vLLM's logger, whose handlers show its lines.
logger = logging.getLogger("vllm.lpkit.watch")

WAITING = 64
"""Violations that may wait to be written; further ones are only counted."""

_ENGINES = itertools.count()
"""A process may build one engine after another, and each has a thread that writes."""


class Reporter:
    """Writes what an engine's processors did; without a folder, only to the log."""

    def __init__(self, settings: WatchSettings, counts: ProcessCounts, folder: Path | None) -> None:
        self._settings, self._counts, self._folder = settings, counts, folder
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._logged = time.monotonic()
        self._warned = False
        self._sampled = 0, 0.0  # sampled steps, and step time when their number last changed
        self._written = 0
        self._engine = next(_ENGINES)

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lpkit-watch", daemon=True)
            self._thread.start()
            atexit.register(self.flush)

    def violation(self, violation: Violation, make: Callable[[], Trace] | None, log: bool) -> None:
        """Keep a violation, with the trace that ``make`` makes in the reporter's thread; ``log`` it if that is True."""

        def job() -> None:
            if make is not None and self._folder is not None:
                self._save(violation, make, self._folder)
            self._counts.keep(violation)
            if log:
                logger.error("lpkit watch: %s; further ones of this kind are only counted", violation)

        try:
            self._queue.put_nowait(job)
        except queue.Full:
            self._counts.traces_dropped += 1

    def flush(self, seconds: float = 2.0) -> None:
        """Write everything that waits, within this many seconds: the process may be about to end."""
        done = threading.Event()

        def job() -> None:
            self._write()
            done.set()

        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(job)
            done.wait(seconds)

    def _run(self) -> None:
        while True:
            try:
                with contextlib.suppress(queue.Empty):
                    self._queue.get(timeout=self._settings.interval)()
                self.tick()
            except Exception as error:  # the next report may succeed
                self._failed(f"a report could not be written: {error!r}")

    def tick(self) -> None:
        """Write the numbers, and log what is due."""
        self._write()
        self._stall()
        if time.monotonic() - self._logged >= self._settings.log_every:
            self._logged = time.monotonic()
            logger.info("lpkit watch: %s", summary(self._counts.as_json()))

    def _stall(self) -> None:
        """Warn once each time that no step was sampled for long."""
        counts, (sampled, since) = self._counts, self._sampled
        if counts.sampled != sampled or not counts.step_seconds:
            self._sampled = counts.sampled, counts.step_seconds
        elif self._settings.budget and self._settings.rate and counts.step_seconds - since > STALL:
            self._sampled = counts.sampled, float("inf")
            share = counts.own_seconds / counts.step_seconds
            logger.warning(
                "lpkit watch: no step was sampled in %.0f s of steps, so no row is compared; the watcher takes %.2f %% "
                "of step time, and may take %.2f %%: raise budget",
                STALL,
                100 * share,
                100 * self._settings.budget,
            )

    def _write(self) -> None:
        if self._folder is None:
            return
        try:
            write_numbers(self._folder, self._counts.as_json(), self._engine)
        except OSError as error:
            self._failed(f"{self._folder} cannot be written: {error}")

    def _save(self, violation: Violation, make: Callable[[], Trace], folder: Path) -> None:
        try:
            text = dumps(make())
            if used(folder) + len(text) > self._settings.max_bytes:
                raise TraceError(f"{folder} has no room: the limit is {self._settings.max_bytes} bytes")
            self._written += 1
            name = re.sub(r"[^\w.-]+", "_", f"{violation.kind}-{violation.processor}")[-120:]
            file = folder / f"{name}-{process_name(self._engine)}-{self._written}.jsonl"
            write(file, text)
            violation.trace = str(file)
            self._counts.traces += 1
        except Exception as error:
            self._counts.traces_dropped += 1
            violation.note = f"no trace: {error}"

    def _failed(self, message: str) -> None:
        self._counts.errors += 1
        if not self._warned:
            self._warned = True
            logger.warning("lpkit watch: %s; serving is unaffected, and this is logged once", message)
