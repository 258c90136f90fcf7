"""The child's side of the protocol; :mod:`lpkit_conformance.processes.supervise` has the parent's.

Jobs arrive as lines of JSON through standard input, which is empty for the plugin. Events go as lines of JSON to a
file. So the parent knows the child's progress even if the plugin prints, breaks or ends the process. A job's last event
is :data:`END`.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from lpkit_conformance.processes import pulse

PATIENCE = 0.8
"""Share of the time limit after which the stacks are written down."""

ANSWER, END = "answer", "end"
"""The event that carries a job's answer, and the event that ends a job."""


class Parent:
    """The parent process, as an entry function sees it.

    Args:
        stacks: receives the interpreter's stacks after a crash or a hang.
        output: descriptor of the file that takes the printed output.
        signs: signs of life, which the parent follows.
    """

    def __init__(self, jobs: TextIO, events: TextIO, stacks: TextIO, output: int, signs: pulse.Pulse) -> None:
        self._jobs, self._events, self._stacks, self._output = jobs, events, stacks, output
        self._working = False
        self.heart = pulse.Heart(signs, self._watch)

    def job(self) -> Any:
        """End the current job and wait for the next; None after the last."""
        self.end_job()
        line = self._jobs.readline()
        if not line:
            return None
        message = json.loads(line)
        self._working, self.heart.seconds = True, message["seconds"]
        self._watch()
        return message["job"]

    def end_job(self) -> None:
        """Report the end of the current job, if there is one."""
        if self._working:
            self._working = False
            self.tell(END)

    def answer(self, value: Any) -> None:
        """Send the answer to the current job."""
        self.tell(ANSWER, value=value)

    def tell(self, event: str, **fields: Any) -> None:
        """Send an event immediately; the time limit and the output limit restart."""
        printed = os.fstat(self._output).st_size
        self._events.write(json.dumps({"event": event, "printed": printed, **fields}) + "\n")
        self._events.flush()
        self.heart.beat()
        self._watch()

    def _watch(self) -> None:
        """Note where the process is shortly before the parent loses patience."""
        self._stacks.seek(0)
        self._stacks.truncate()  # what took long before has come back
        if self.heart.seconds:
            faulthandler.dump_traceback_later(self.heart.seconds * PATIENCE, file=self._stacks)


def start(arguments: Sequence[str]) -> None:
    """Entry of every child: call the function ``module:function`` with the parent whose folder is given."""
    folder, entry = arguments
    with (
        os.fdopen(os.dup(0), encoding="utf-8") as jobs,
        Path(folder, "events.jsonl").open("a", encoding="utf-8") as events,
        Path(folder, "stacks.txt").open("w", encoding="utf-8") as stacks,
    ):
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        faulthandler.enable(stacks)
        trace_exits(stacks)
        parent = Parent(jobs, events, stacks, os.dup(1), pulse.Pulse(Path(folder)))
        pulse.start(parent.heart)
        try:
            resolve(entry)(parent)
            parent.end_job()
        finally:
            pulse.stop()
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()


def resolve(function: str) -> Any:
    """Return the function that ``module:function`` names."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def trace_exits(stacks: TextIO) -> None:
    """Make ``os._exit`` report its caller, which no other mechanism reports."""
    leave, pid = os._exit, os.getpid()

    def traced(status: int) -> NoReturn:
        if os.getpid() == pid:
            faulthandler.dump_traceback(stacks)
        leave(status)

    os._exit = traced
