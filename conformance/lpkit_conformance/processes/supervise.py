"""The parent's side of the protocol: starts a child, follows its events, and reports how it was lost.

    with Child("package.module:function") as child:
        print(child.call({"what": "to do"}, seconds=10))
        child.send({"what": "to do next"}, seconds=10)
        for event in child.events(seconds=10):
            ...

The function gets a :class:`lpkit_conformance.processes.child.Parent`, whose jobs it does one after the other. A child
works on a job, waits for the next, or is lost. Leaving the ``with`` always ends it and all processes that it has
started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from lpkit_conformance.processes import pulse, tree
from lpkit_conformance.processes.child import ANSWER, END

START_SECONDS: Final = 120.0
"""Until the first event: the child has then imported torch, and vLLM where it is installed; no plugin runs before."""

MOST_OUTPUT = 8 * 2**20
"""Bytes that may be printed between two events."""

POLL_SECONDS = 0.02
"""Between two looks for an event at most; at first less, so that a short job is not made longer."""

TAIL = 2_000

ONE_THREAD: Final = {"OMP_NUM_THREADS": "1"}

HASH_SEED = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
"""A second rank's ``PYTHONHASHSEED``, different from this process's."""

Event = dict[str, Any]
"""An event of a child; ``event`` is its kind."""

LossKind = Literal["exit", "hang", "output"]

BOOT = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "from lpkit_conformance.processes.child import start; start(sys.argv[1:])"
)
"""Nothing of the current folder is importable: a plugin's ``types.py`` would replace the library's."""


class Lost(Exception):
    """A child ended, hung or printed too much before it reported its end.

    Attributes:
        did: the same with the plugin as its subject, to follow its name.
        stacks: the child's stacks, in the form of :mod:`faulthandler`.
        last_line: the last line that it printed.
        calls: the method of the plugin that it was calling; empty if that is unknown.
    """

    def __init__(
        self, kind: LossKind, what: str, did: str, stacks: str = "", last_line: str = "", calls: str = ""
    ) -> None:
        super().__init__(what)
        self.kind, self.what, self.did, self.stacks, self.last_line = kind, what, did, stacks, last_line
        self.calls = calls

    @property
    def last_words(self) -> str:
        """The last printed line as the end of a sentence; empty if nothing was printed."""
        return f"; its last output: {self.last_line[:200]}" if self.last_line else ""


class Child:
    """A Python process that runs a function of lpkit, which runs plugins; a context manager that ends it.

    It leads a process group and can import everything that this process can, except from the current folder.

    Args:
        entry: the function, as ``module:function``.
        env: environment variables for the child.
        output: append printed output to this file; otherwise it is discarded at the end.
    """

    def __init__(self, entry: str, env: Mapping[str, str] | None = None, output: Path | None = None) -> None:
        within = tree.own_folder()
        self._folder = tempfile.TemporaryDirectory(prefix="lpkit-", dir=within, ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        output = output or folder / "output.txt"
        self._unread, self._lines = "", deque[str]()
        self._started = False
        (folder / "events.jsonl").touch()
        self._pulse = pulse.Pulse(folder)
        with output.open("ab") as sink:
            self._printed = sink.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, self._folder.name, entry],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**_environment(), **(env or {}), tree.MARK: self._folder.name},
                start_new_session=within is None,  # a child's child ends with its group; ignored on Windows
            )
        self._events = (folder / "events.jsonl").open(encoding="utf-8")
        self._output = output.open("rb")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, job: Any, seconds: float) -> None:
        """Send a job.

        Args:
            seconds: the time limit of the events that follow.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone: `events` says how
            self._process.stdin.write(json.dumps({"seconds": seconds, "job": job}).encode() + b"\n")
            self._process.stdin.flush()

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield the events of a job until its end.

        Args:
            seconds: the longest wait for a sign of life: an event, or a call of the plugin that begins or returns.
                For the first event, ``START_SECONDS`` at least.

        Raises:
            Lost: the child has ended, printed too much since the last event, or gave no sign of life in time.
        """
        while (event := self._news(seconds))["event"] != END:
            yield event

    def answer(self, seconds: float, take: Callable[[Event], None] = lambda event: None) -> Any:
        """Return the answer to a job; None if there is none. See :meth:`events`.

        Args:
            take: called with the other events.
        """
        value = None
        for event in self.events(seconds):
            if event["event"] == ANSWER:
                value = event["value"]
            else:
                take(event)
        return value

    def call(self, job: Any, seconds: float, take: Callable[[Event], None] = lambda event: None) -> Any:
        """Send a job and return its answer."""
        self.send(job, seconds)
        return self.answer(seconds, take)

    def _news(self, seconds: float) -> Event:
        seconds = seconds if self._started else max(seconds, START_SECONDS)
        begun = alive = time.monotonic()
        count, waited = -1, 0.0
        while True:
            pulse.beat()  # a process that waits for a child of its own has that child's limit
            if self._events.closed:
                raise Lost("exit", *_exit_text(self._process.returncode))
            code = self._process.poll()  # before reading: its last events count
            event = self._read()
            printed = os.fstat(self._output.fileno()).st_size if event is None else event["printed"]
            if printed - self._printed > MOST_OUTPUT:
                did = f"printed more than {MOST_OUTPUT >> 20} MiB"
                raise self._lost("output", f"the plugin {did}", did)
            if event is not None:
                self._started, self._printed = True, event.pop("printed")
                return event
            if code is not None:
                raise self._lost("exit", *_exit_text(code))
            now = time.monotonic()
            if count != self._pulse.count:
                alive, count, waited = now, self._pulse.count, tree.waited(self.pid)
            elif now > alive + seconds + tree.waited(self.pid) - waited:
                what = f"{self._pulse.calls or 'the plugin'} did not return within {seconds:g} s"
                raise self._lost("hang", what, f"took longer than {seconds:g} s")
            time.sleep(min(POLL_SECONDS, 0.001 + (now - begun) / 20))

    def end(self) -> None:
        """End it and everything that it has started; a second call does nothing."""
        if self._events.closed:
            return
        tree.end(self._process, self._folder.name)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._pulse.close()
        self._events.close()
        self._output.close()
        self._folder.cleanup()

    def _read(self) -> Event | None:
        if not self._lines:
            *whole, self._unread = (self._unread + self._events.read()).split("\n")
            self._lines.extend(whole)
        return json.loads(self._lines.popleft()) if self._lines else None

    def _lost(self, kind: LossKind, what: str, did: str) -> Lost:
        stacks = Path(self._folder.name, "stacks.txt")
        text = stacks.read_text(encoding="utf-8", errors="replace") if stacks.exists() else ""
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - TAIL, 0))
        lines = self._output.read().decode("utf-8", "replace").strip().splitlines()
        return Lost(kind, what, did, text, lines[-1].strip() if lines else "", self._pulse.calls)


def import_path() -> list[str]:
    """Return this process's import path without the current folder."""
    return [entry for entry in sys.path if entry]


def _environment() -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*import_path(), *filter(None, [inherited])]),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    }


def _exit_text(code: int) -> tuple[str, str]:
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"the process was ended by {name}", f"ended the process with {name}"
    return f"the process ended with exit code {code}", f"ended the process with exit code {code}"
