"""A second child, which judges other checks at the same time: the checks of the other hosts, which halves the time of a
plugin for both runners, and the checks that compare two ranks, where this child is the second rank.

Only what passes there is believed. Whatever else happens there (a failure, a hang, an exit) is judged again by the
first child, so that one process blames, in the order of the checks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lpkit_conformance.processes.codec import decode
from lpkit_conformance.processes.supervise import HASH_SEED, ONE_THREAD, Child, Lost
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.ahead import CHILD

PATIENCE_SECONDS = 5.0
"""Seconds without a sign of life before the first child judges the check itself. Too small is slow, never wrong."""


def divisible(plan: Plan) -> bool:
    """Return True if a second child saves time: in a run of all checks, on several cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and not plan.select


class Helper:
    """The second child; a context manager that ends it.

    Args:
        job: the job that loads the plugin, but for the requests that the checks send.
        limit: seconds that a call of the plugin may take.
    """

    def __init__(self, job: dict[str, Any], limit: float) -> None:
        self._seconds = min(limit, PATIENCE_SECONDS)
        self._child = Child(CHILD, {**ONE_THREAD, "PYTHONHASHSEED": HASH_SEED})
        self._pool = ThreadPoolExecutor(1)
        self._job, self._judged = job, dict[str, Future[Any]]()
        self._pool.submit(self._call, {"lost": job["lost"]})  # its imports, while requests are searched for

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._child.end()

    def begin(self, labels: Sequence[str], requests: dict[str, Any], first_rank: dict[str, Any] | None) -> None:
        """Judge these checks, in this order, with the requests and the choices of the first child."""
        plan = {**self._job["plan"], "requests": requests}
        self._pool.submit(self._call, {**self._job, "plan": plan, "first_rank": first_rank})
        self._judged = {label: self._pool.submit(self._call, label) for label in labels}

    def passed(self, label: str) -> CheckResult | None:
        """The result of a check that has passed, or is skipped; None if the first child is to judge it."""
        answer = self._judged[label].result() if label in self._judged else None
        if answer is None:
            return None
        result = decode(CheckResult, answer["result"])
        believed = result.status == "passed" or (result.status == "skipped" and not result.never_active)
        return result if believed else None

    def _call(self, job: Any) -> Any:
        try:
            return self._child.call(job, self._seconds)
        except Lost:
            self._child.end()  # nothing more is expected of it
            return None
