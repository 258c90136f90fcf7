"""A second process that runs the same job as this one, for comparing; it can be started before its job is known."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Any

from lpkit_conformance.processes import children

LIMIT_SECONDS = 60


class SecondProcess:
    """A Python process with another hash seed than this one's; a context manager that ends it.

    Args:
        entry: module whose ``start`` reads the job, a line of JSON, from standard input and prints the answer.

    Attributes:
        hash_seed: its ``PYTHONHASHSEED``.
    """

    def __init__(self, entry: str) -> None:
        self.hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        self._child = subprocess.Popen(
            children.command(entry),
            env={**children.environment(), "PYTHONHASHSEED": self.hash_seed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> SecondProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        with contextlib.suppress(OSError):  # what was never sent is lost, and that is as well
            self._child.communicate()

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, job: dict[str, Any]) -> None:
        """Tell it what to run; it may then import whatever this process can."""
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: `answer` says so
            self._child.stdin.write(json.dumps({**job, "path": children.import_path()}) + "\n")
            self._child.stdin.flush()

    def answer(self) -> str | None:
        """The last line that it prints; None if it failed.

        Raises:
            TimeoutError: it did not finish within 60 s.
        """
        try:
            printed, _ = self._child.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"a second process did not finish within {LIMIT_SECONDS} s") from None
        return None if self._child.returncode else printed.strip().rpartition("\n")[2]
