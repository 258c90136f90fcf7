"""LP6: the same logits in another process and at another time."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

from lpkit_conformance.checks.base import Check
from lpkit_conformance.hosts.calls import PluginError
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.instruments.clocks import jumping_clock
from lpkit_conformance.oracle.fingerprint import digest, fingerprint
from lpkit_conformance.oracle.second_rank import second_rank
from lpkit_conformance.processes import tree
from lpkit_conformance.results import Failed, Skipped

GRACE_SECONDS = 1.0
"""For processes that are about to end."""


class LP604(Check):
    """Another process gives the same logits.

    Tensor-parallel workers are separate processes, each with its own hash seed.

    Why: ``hash(str)`` and the order of a set of strings differ between processes, so ranks disagree about the
    next token and the engine hangs.

    Fix: sort before you iterate over a set; derive seeds with ``hashlib`` or from the request's ``seed``.
    """

    code, name, hosts, once = "LP604", "processes-agree", (), True
    compares_processes = True
    requires = ("LP001", "LP003", "LP005", "LP601")

    def run(self, subject: PluginUnderTest) -> str | None:
        target = origin(subject)
        if target is None:
            raise Skipped("the class cannot be loaded in another process")
        with subject.second or second_rank() as second:
            second.ask(
                {
                    "target": target,
                    "case": json.loads(subject.case.text),
                    "vocab_size": subject.vocab_size,
                    "max_num_seqs": subject.max_num_seqs,
                    "seed": subject.seed,
                    "words": subject.words,
                    "device": str(subject.device),
                }
            )
            try:
                here = fingerprint(subject)
                there = second.answer()
            except PluginError:
                raise Skipped("the plugin raises; other checks say where") from None
            except TimeoutError as error:
                raise Skipped(str(error)) from None
        if there is None or len(there) != len(here):
            raise Skipped("the class cannot be loaded in another process")
        if here != there:
            raise Failed(
                "another process gives different logits for the same requests",
                {"hash seed": f"{os.environ.get('PYTHONHASHSEED', 'random')} here, {second.hash_seed} there"},
                "equal logits",
                "different logits",
                cause="the order of a set, hash() of a string, or a number drawn at import",
            )
        return None


def origin(subject: PluginUnderTest) -> str | None:
    """A target that finds the class again: its module by name, or its file."""
    module = sys.modules.get(subject.cls.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or "<" in subject.cls.__qualname__:
        return None
    if module.__name__.startswith("lpkit_target_") or "." not in module.__name__:
        return f"{Path(file).resolve()}:{subject.cls.__qualname__}"
    return f"{module.__name__}:{subject.cls.__qualname__}"


class LP605(Check):
    """Results do not depend on the clock.

    With clocks that jump by hours between calls the logits stay the same: those of `time`, and `datetime.now`.

    Why: ranks read their clocks at different moments, so they disagree; and a request replayed later differs.

    Fix: decide by tokens and positions, not by time.
    """

    code, name, requires = "LP605", "ignores-clock", ("LP101", "LP301", "LP601")

    def run(self, subject: PluginUnderTest) -> str | None:
        normal = digest(subject)
        with jumping_clock(subject.cls):
            jumpy = digest(subject)
        if normal != jumpy:
            raise Failed(
                "the logits depend on the time of day", {}, "equal logits", "different logits when the clock jumps"
            )
        return None


class LP606(Check):
    """The plugin leaves no process running.

    Processes started by the import, the constructor or a request have ended when the last instance is gone.

    Why: every worker and the front end load the plugin, and vLLM does not end its processes: they accumulate
    with each restart, hold ports and GPU memory, and keep a container from stopping.

    Fix: do not start processes; if you must, end them when the instance goes (``weakref.finalize``) and at exit.
    """

    code, name, hosts, once = "LP606", "leaves-no-process", (), True
    requires, method = ("LP001",), "__init__"

    def run(self, subject: PluginUnderTest) -> str | None:
        if not Path("/proc/self/stat").exists():
            raise Skipped("this system does not list the child processes of a process")
        try:
            fingerprint(subject)
        except PluginError:
            raise Skipped("the plugin raises; other checks say where") from None
        gc.collect()
        deadline = time.monotonic() + GRACE_SECONDS
        while (left := self._left(subject)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            named = ", ".join(f"{command} (process {process})" for process, command in sorted(left.items()))
            raise Failed(
                f"{len(left)} process{'es' if len(left) > 1 else ''} left running",
                {},
                "no process of the plugin after its instances are gone",
                named,
                cause="a process started at import, in __init__ or for a request, and never ended",
            )
        return None

    @staticmethod
    def _left(subject: PluginUnderTest) -> dict[int, str]:
        return {process: command for process, command in tree.children().items() if process not in subject.bystanders}
