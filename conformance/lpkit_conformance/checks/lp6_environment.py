"""LP6: the same logits in another process and at another time."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

from lpkit.loading import resolve_target

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import mixed_arrivals, observed, parted, parting_of
from lpkit_conformance.checks.lazily import Subject, calls, process_settings, rank_process, ranks, trails
from lpkit_conformance.checks.lp6_determinism import PAUSE
from lpkit_conformance.explanation import advice
from lpkit_conformance.instruments.clocks import JUMP, NO_JUMP, jumping_clock
from lpkit_conformance.processes import tree
from lpkit_conformance.processes.supervise import HASH_SEED
from lpkit_conformance.programs.generate import Finish, Step
from lpkit_conformance.results import Failed, Finding, Skipped
from lpkit_conformance.subject.worlds import SECOND_RANK

GRACE_SECONDS = 1.0
"""Seconds for processes that are about to end."""


class LP604(Check):
    """Every rank chooses the same tokens.

    Two processes run the same steps as two ranks of a tensor-parallel engine. The second process has a different hash
    seed, a different state of the global random generators and a clock that is a day ahead. It is configured as the
    second rank. On V2 each rank also runs the steps with only the rows of its own slots, as in batch-sharded sampling.
    It must choose the same tokens as with all rows.

    Why: each rank samples with its own instance, and nothing compares the results. ``hash(str)``, the order of a set of
    strings, ``id()``, the process's number and a time that was read at import differ between processes. From the first
    token that differs, the ranks' keys and values belong to different texts, and the output is garbage. When a rank
    ends early, the others wait for it until the engine is stopped.

    Fix: sort before you iterate over a set; derive seeds with ``hashlib`` or from the request's ``seed``. Base no
    decision on the process, the rank or the time.
    """

    code, name, hosts, once = "LP604", "processes-agree", (), True
    compares_processes = True
    requires = ("LP001", "LP003", "LP005", "LP221", "LP601", "LP602", "LP605")

    def run(self, subject: Subject) -> str | None:
        target = origin(subject)
        if target is None:
            raise Skipped("the class cannot be loaded in another process")
        if (first_rank := subject.setup.first_rank) is not None:
            with rank_process.as_second_rank(str(subject.setup.device)):
                chosen = ranks.choices(subject.having(world=SECOND_RANK), rank=1)
            if first_rank.keys() != chosen.keys() or ranks.parting(first_rank, chosen):
                raise Failed("the two ranks differ")  # the first child says how
            return None
        with rank_process.second_rank(target, subject) as second:
            try:
                here = ranks.first_rank(subject)
                there = rank_process.answer(second)
            except calls.PluginError:
                raise Skipped("the plugin raises; other checks say where") from None
            except TimeoutError as error:
                raise Skipped(str(error)) from None
        if there is None or here.keys() != there.keys():
            raise Skipped("the class cannot be loaded in another process")
        parting = ranks.parting(here, there)
        if parting is not None:
            first, second_token = parting.tokens
            name, line = self._parting(subject, target)
            key = advice.sign(self.code, line)
            causes = [advice.cause("named", self.code).format(name=name)] * bool(name)
            causes += [advice.cause(key or "processes", self.code)] * (bool(key) or not name)
            cause, fix = ": ".join(causes), advice.fix(key, self.code) if key else ""
            seeds = f"{os.environ.get('PYTHONHASHSEED', 'random')} here, {HASH_SEED} there"
            where = {"host": parting.host, "step": str(parting.step), "request": parting.request, "hash seed": seeds}
            if first == second_token:
                summary, expected = "another process gives different logits for the same requests", "equal logits"
                got = f"different logits; in this short run both ranks choose token {first} all the same"
            else:
                summary = f"two ranks choose different tokens from step {parting.step} on"
                expected = "the same token on every rank"
                got = f"token {first} on the first rank, token {second_token} on the second"
            raise Failed(Finding(summary, where, expected, got, cause=cause, fix=fix, location=line, state=name))
        return None

    @staticmethod
    def _parting(subject: Subject, target: str) -> tuple[str, str]:
        """Follow the lines of both ranks; return the name and the line by which they differ, if these are found."""
        raised = contextlib.suppress(calls.PluginError, TimeoutError)
        with raised, rank_process.second_rank(target, subject, follow=True) as second:
            with subject.as_imported(), trails.trail() as here:
                ranks.choices(subject, rank=0)
            return trails.parting(here, [trails.Seen(*seen) for seen in rank_process.answer(second) or ()])
        return "", ""


def origin(subject: Subject) -> str | None:
    """A target that finds the class again: the given one, its module by name, or its file."""
    given = subject.plugin.target
    path, _, name = given.rpartition(":")
    if path.endswith(".py"):  # the file may set up what the class uses, and define none of it
        path = str(Path(path).resolve())
        loaded = [module for module in sys.modules.values() if getattr(module, "__file__", None) == path]
        if any(getattr(module, name, None) is subject.plugin.cls for module in loaded):
            return f"{path}:{name}"
    with contextlib.suppress(Exception):  # it may be any name; a file would be imported again
        if ".py" not in given and resolve_target(given) is subject.plugin.cls:
            return given
    module = sys.modules.get(subject.plugin.cls.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or "<" in subject.plugin.cls.__qualname__:
        return None
    if module.__name__.startswith("lpkit_target_") or "." not in module.__name__:
        return f"{Path(file).resolve()}:{subject.plugin.cls.__qualname__}"
    return f"{module.__name__}:{subject.plugin.cls.__qualname__}"


class LP605(Check):
    """Results do not depend on the clock.

    With clocks that jump by hours between calls the logits stay the same: those of `time`, and `datetime.now`.

    Why: ranks read their clocks at different moments, so they disagree. A request replayed later also differs.

    Fix: decide by tokens and positions, not by time; seed random numbers from the request.
    """

    code, name, requires = "LP605", "ignores-clock", ("LP101", "LP301", "LP402")

    def run(self, subject: Subject) -> str | None:
        ops = [*mixed_arrivals(5), Step(4), Finish("r1"), Step(3)]

        def timed(by: float, pause: float = 0.0) -> list[calls.Observation]:
            # Each run draws the same random numbers, which LP602 judges.
            with subject.as_imported(), jumping_clock(subject.plugin.cls, by):
                return observed(subject, ops, pause)

        still, jumping = partial(timed, NO_JUMP), partial(timed, JUMP)
        with process_settings.threads_started() as threads:
            first = still()
        if not parted(first, jumping()):
            return None
        if not parted(first, jumping()) or parted(first, still(PAUSE if threads else 0.0)):
            raise Skipped("the plugin is not reproducible, which LP601 judges")
        name, line = parting_of(still, jumping)
        summary, got = "the logits depend on the time of day", "different logits when the clock jumps"
        name = name or trails.set_by(line)
        cause = advice.cause(advice.sign(self.code, line) or "earlier", self.code)
        cause = cause.format(name=f" for `{name}`" if name else "")
        raise Failed(Finding(summary, {}, "equal logits", got, cause=cause, location=line, state=name))


class LP606(Check):
    """The plugin leaves no process running.

    Processes started by the import, the constructor or a request have ended when the last instance is gone.

    Why: every worker and the front end load the plugin, and vLLM does not end its processes: they accumulate
    with each restart, hold ports and GPU memory, and keep a container from stopping.

    Fix: do not start processes; if you must, end them when the instance goes (``weakref.finalize``) and at exit.
    """

    code, name, hosts, once = "LP606", "leaves-no-process", (), True
    judges_processes = True
    requires, method = ("LP001",), "__init__"

    def run(self, subject: Subject) -> str | None:
        if not Path("/proc/self/stat").exists():
            raise Skipped("this system does not list the child processes of a process")
        try:
            ranks.first_rank(subject)
        except calls.PluginError:
            raise Skipped("the plugin raises; other checks say where") from None
        gc.collect()
        # Python's own, which unlinks shared memory once this process has ended.
        tracker = getattr(resource_tracker, "_resource_tracker", None)
        others = {*subject.setup.bystanders, getattr(tracker, "_pid", None)}
        last = time.monotonic() + GRACE_SECONDS
        while left := {pid: name for pid, name in tree.children().items() if pid not in others}:
            if time.monotonic() > last:
                break
            time.sleep(0.05)
        if left:
            named = ", ".join(f"{command} (process {process})" for process, command in sorted(left.items()))
            raise Failed(
                f"{len(left)} process{'es' if len(left) > 1 else ''} left running",
                {},
                "no process of the plugin after its instances are gone",
                named,
                cause=advice.cause("left", self.code),
            )
        return None
