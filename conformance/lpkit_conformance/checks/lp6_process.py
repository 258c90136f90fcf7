"""LP6: the process belongs to the engine: settings that a plugin must leave unchanged."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import host_after, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject, parts, process_settings, torch, writes
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Finish, Step
from lpkit_conformance.results import Failed

OPEN_FILES = Path("/proc/self/fd")
PAGES = Path("/proc/self/statm")

MOST_MEMORY = 128 * 2**20
"""Bytes that an instance may take in addition to its tables of rows by tokens."""

TABLE_BYTES = 64
"""Bytes per row and token that tables may take: room for a few of floats and ids."""

INSTANCES = 3

SERVED = (*mixed_arrivals(4), Step(3), Finish("r0"), Step(2))


class LP607(Check):
    """The plugin leaves the process's settings unchanged.

    Constructing an instance and serving requests changes no default dtype or device, no mode and no number of threads
    of torch, no environment variable, no handler or level of the root logger, and not the working directory, the
    garbage collector, the handling of numpy's errors, the recursion limit or the handler of SIGTERM. When the instance
    is deleted, its threads end and its files close. An instance takes at most 128 MiB in addition to tables of
    `max_num_seqs` rows by tokens.

    Why: the process is the engine's. A default dtype changes every tensor that the model makes next, and another
    handler of the root logger prints every line twice. Threads and files that each instance leaves behind exhaust the
    engine's limits. Memory taken in advance is missing for the model's cache in every worker, even if no request uses
    the plugin.

    Fix: pass `dtype=` and `device=` to each call, log through `logging.getLogger(__name__)`, read files in a `with`,
    start no threads, and allocate memory as requests arrive.
    """

    code, name, requires, method = "LP607", "leaves-the-process", ("LP101", "LP301"), "__init__"

    def run(self, subject: Subject) -> str | None:
        try:
            self._judge(subject)
        except Failed as failure:
            raise Failed(replace(failure.finding, location=self._line(subject))) from None
        _weigh(subject)
        return None

    def _line(self, subject: Subject) -> str:
        """Return ``file:line`` of the last line that changes a setting or takes something; empty if none does."""
        cls, size = subject.plugin.cls, subject.setup.max_num_seqs
        with process_settings.settings_kept(), subject.as_imported():
            _neutral()
            wrote = writes.follow(
                cls,
                lambda: parts.default_host(subject, size),
                _state,
                lambda host: [*host.run(SERVED)],
                lambda: {**_state(), "grad mode": None},  # the engine itself turns gradients off in a call
            )
            return str(wrote.first or "")

    def _judge(self, subject: Subject) -> None:
        left: list[dict[str, int]] = []
        with process_settings.settings_kept():
            _neutral()
            before = process_settings.settings()
            parts.drive(subject)
            _compare(before, process_settings.settings(), "constructing an instance")
            for _ in range(INSTANCES):
                host_after(subject, SERVED)
                if left and any(count > left[-1][name] for name, count in held().items()):
                    gc.collect()  # what has not gone only because nothing has been collected yet
                left.append(held())
            _compare(before, process_settings.settings(), "serving requests")
        for name, first in left[0].items():
            counts = [first, *(item[name] for item in left[1:])]
            if all(later > earlier for earlier, later in pairwise(counts)):
                raise Failed(
                    f"each instance leaves {name} behind",
                    {f"{name} after each instance": " -> ".join(map(str, counts))},
                    "as many as before",
                    f"{counts[-1] - counts[0]} more after {INSTANCES - 1} more instances",
                    fix=advice.fix(name, self.code),
                )


def _neutral() -> None:
    """Undo what an earlier instance has set, which would not change again; logging.basicConfig minds other handlers."""
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    logging.getLogger().handlers.clear()


def _state() -> dict[str, Any]:
    return {**process_settings.settings(), **held(), "memory": taken() // MOST_MEMORY}


def held() -> dict[str, int]:
    """Count the running threads and the open files, as far as the system reports them."""
    opened = 0
    for entry in OPEN_FILES.iterdir() if OPEN_FILES.is_dir() else ():
        with contextlib.suppress(OSError):
            opened += not str(entry.readlink()).startswith("/proc/")
    return {"threads": threading.active_count(), "open files": opened}


def _weigh(subject: Subject) -> None:
    """Fail if each further instance takes much memory; the first instance's memory may be shared by all."""
    kept, sizes = [parts.drive(subject)], [taken()]
    for _ in range(INSTANCES - 1):
        kept.append(parts.drive(subject))
        sizes.append(taken())
    least = min(later - earlier for earlier, later in pairwise(sizes))
    if least > MOST_MEMORY + TABLE_BYTES * subject.setup.max_num_seqs * subject.setup.vocab_size:
        raise Failed(
            "each instance takes much memory when it is constructed",
            {"max_num_seqs": str(subject.setup.max_num_seqs), "vocabulary": str(subject.setup.vocab_size)},
            f"{MOST_MEMORY // 2**20} MiB at most, besides tables of rows by tokens",
            f"{least // 2**20} MiB",
            fix=advice.fix("memory", LP607.code),
        )


def taken() -> int:
    """Bytes of memory that the process has reserved, used or not; 0 if the system does not report it."""
    return int(PAGES.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if PAGES.exists() else 0


def _compare(before: dict[str, Any], after: dict[str, Any], when: str) -> None:
    changed = [name for name, value in before.items() if after[name] != value]
    if changed:
        old, new = before[changed[0]], after[changed[0]]
        fix = "; ".join(dict.fromkeys(advice.fix(name, LP607.code) for name in changed))
        raise Failed(f"{when} changed the {' and the '.join(changed)}", {}, _shown(old, new), _shown(new, old), fix=fix)


def _shown(value: Any, other: Any) -> str:
    """Return the entries that only one side has."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items() if other.get(key) != item)[:300] or "not set"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value if item not in other)[:300] or "none of these"
    return str(value)
