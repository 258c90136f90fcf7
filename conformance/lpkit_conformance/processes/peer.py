"""A second process that runs the same job as this process, for comparison; it can start before its job is known."""

from __future__ import annotations

import os
from typing import Any

from lpkit_conformance.processes.supervise import ONE_THREAD, Child, Lost, import_path

LIMIT_SECONDS = 20.0
"""Between two signs of life; less than a check has that waits for it."""


class Peer(Child):
    """A child with a different hash seed than this process, for one job.

    Args:
        entry: the function, as ``module:function``. It sends ``ready``, waits for the job and sends the ``answer``.

    Attributes:
        hash_seed: its ``PYTHONHASHSEED``.
    """

    def __init__(self, entry: str) -> None:
        self.hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        super().__init__(entry, {**ONE_THREAD, "PYTHONHASHSEED": self.hash_seed})

    def __enter__(self) -> Peer:
        return self

    def ask(self, job: dict[str, Any]) -> None:
        """Send the job; the child may import everything that this process can."""
        self.send({**job, "path": import_path()}, LIMIT_SECONDS)

    def answer(self) -> Any:
        """Return its answer; None if it failed.

        Raises:
            TimeoutError: a call of the plugin did not return there in time.
        """
        try:
            answers = [event["answer"] for event in self.events(LIMIT_SECONDS) if event["event"] == "answer"]
        except Lost as loss:
            if loss.kind == "hang":
                raise TimeoutError(f"in a second process, {loss.what}") from None
            return None
        return answers[0] if answers else None
