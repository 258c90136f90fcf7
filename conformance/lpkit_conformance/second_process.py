"""A second process that runs the same requests, for comparing.

It imports torch, and vLLM where it is, as soon as it is started, and then waits for its job on standard input, so that
who starts it early need not wait for it later.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from lpkit_conformance import processes

LIMIT_SECONDS = 60


class SecondProcess:
    """A Python process with another hash seed than this one's; a context manager that ends it.

    Attributes:
        hash_seed: its ``PYTHONHASHSEED``.
    """

    def __init__(self) -> None:
        self.hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        self._child = subprocess.Popen(
            processes.command(__name__),
            env={**processes.environment(), "PYTHONHASHSEED": self.hash_seed},
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
            self._child.stdin.write(json.dumps({**job, "path": processes.import_path()}) + "\n")
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


def start(_: Sequence[str]) -> None:
    """Entry of the process: print the fingerprint of the class that the JSON job names."""
    import torch

    torch.set_num_threads(1)
    from lpkit_conformance.against import prepare

    prepare()
    from lpkit.loading import interfaces_of, resolve_target

    from lpkit_conformance.cases import Case
    from lpkit_conformance.fingerprint import fingerprint
    from lpkit_conformance.standin import lend_buffers
    from lpkit_conformance.subject import Subject

    line = sys.stdin.readline()
    if not line:  # nobody wants to know
        return
    job = json.loads(line)
    sys.path[:] = job["path"]
    device = torch.device(job["device"])
    lend_buffers(device)
    cls = resolve_target(job["target"]).cls
    subject = Subject(
        job["target"],
        cls,
        "",
        Case.parse(job["case"]),
        interfaces_of(cls),
        job["vocab_size"],
        job["max_num_seqs"],
        device,
        seed=job["seed"],
    )
    print(fingerprint(subject), flush=True)
    os._exit(0)  # all is said, and taking torch down takes half a second
