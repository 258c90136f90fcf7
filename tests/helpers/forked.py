"""Children of lpkit with their imports done: those of torch take 2 s, and those of vLLM 9 s.

They are forked from a process that has imported what they need.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lpkit_conformance.processes import pulse, supervise
from lpkit_conformance.processes.child import Parent, resolve, start

SECONDS = 300.0


class Nursery:
    """A process that has called functions, given as ``(module:function, arguments...)``, and forks children.

    It takes the place of the module ``subprocess`` where children are started.
    """

    PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT

    def __init__(self, *calls: tuple[Any, ...]) -> None:
        self._lock = threading.Lock()
        self._process = supervise.Child("forked:serve", supervise.ONE_THREAD)
        self._process.call(calls, SECONDS)

    def ask(self, job: Any) -> int:
        with self._lock:
            return int(self._process.call(job, SECONDS))

    def Popen(self, command: Sequence[str], *, stdout: Any, env: dict[str, str], **given: Any) -> Any:  # noqa: N802
        """``subprocess.Popen`` of a child; it is not forked if it needs a hash seed of its own."""
        if env.get("PYTHONHASHSEED") != os.environ.get("PYTHONHASHSEED"):
            return subprocess.Popen(command, stdout=stdout, env=env, **given)
        folder, entry = command[-2:]
        job = {"folder": folder, "entry": entry, "env": env, "output": stdout.name, "cwd": str(Path.cwd())}
        return Forked(self, {**job, "leads": given["start_new_session"]})

    def close(self) -> None:
        self._process.end()


class Forked:
    """Has the attributes of a Popen that a child's parent uses."""

    def __init__(self, nursery: Nursery, job: dict[str, Any]) -> None:
        jobs = Path(job["folder"], "jobs")
        os.mkfifo(jobs)
        self.stdin = os.fdopen(os.open(jobs, os.O_RDWR), "wb")
        self.returncode: int | None = None
        self._nursery = nursery
        self.pid = nursery.ask(job)

    def poll(self) -> int | None:
        if self.returncode is None and Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            self.returncode = os.waitstatus_to_exitcode(self._nursery.ask(self.pid))
        return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.001)
        return code

    def kill(self) -> None:
        os.kill(self.pid, 9)


_prepared: dict[str, str] = {}
"""Variables that the functions have set."""


def serve(parent: Parent) -> None:
    """Entry of the nursery's process: fork a child, or collect the exit status of one, as each job says."""
    before = dict(os.environ)
    for function, *arguments in parent.job():
        resolve(function)(*arguments)
    _prepared.update({name: value for name, value in os.environ.items() if before.get(name) != value})
    while (job := parent.job()) is not None:
        parent.answer(os.waitpid(job, 0)[1] if isinstance(job, int) else fork(**job))


def fork(folder: str, entry: str, env: dict[str, str], output: str, cwd: str, leads: bool) -> int:
    """Start a child; its process id."""
    faulthandler.cancel_dump_traceback_later()  # waits forever in a fork, which lacks the thread
    pid = os.fork()
    return pid or _live(folder, entry, env, output, cwd, leads)


def _live(folder: str, entry: str, env: dict[str, str], output: str, cwd: str, leads: bool) -> NoReturn:
    status = 1
    try:
        pulse.stop()
        if leads:
            os.setsid()
        os.chdir(cwd)
        os.dup2(os.open(Path(folder, "jobs"), os.O_RDONLY), 0)
        for descriptor in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), descriptor)
        os.environ.clear()
        os.environ.update(env | _prepared)
        path = [*filter(None, env["PYTHONPATH"].split(os.pathsep))]
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        sys.argv[:] = ["-c", folder, entry]
        start([folder, entry])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
