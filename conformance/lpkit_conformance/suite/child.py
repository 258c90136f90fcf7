"""The child process in which a plugin's code runs; see :mod:`lpkit_conformance.suite.supervisor` for its parent.

It reads its job from one file of a folder and writes one JSON object per line to another, so that whatever the
plugin prints, breaks or ends, the parent knows how far it came.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from lpkit_conformance.processes import children
from lpkit_conformance.vllm_api.choose import STANDIN, prepare

if TYPE_CHECKING:
    from lpkit_conformance.settings.plan import Plan

PATIENCE = 0.8
"""Of the time limit, after which the stacks are written down."""


def main(folder: Path) -> None:
    """Run the job in ``folder``."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    with (
        (folder / "events.jsonl").open("a", encoding="utf-8") as events,
        (folder / "stacks.txt").open("w", encoding="utf-8") as stacks,
    ):
        faulthandler.enable(stacks)
        trace_exits(stacks)
        try:
            work(job, Events(events), Watch(stacks, job["limit"] * PATIENCE))
        finally:
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()


class Watch:
    """Notes where the process is shortly before its parent loses patience."""

    def __init__(self, file: TextIO, seconds: float) -> None:
        self._file, self._seconds = file, seconds

    def restart(self) -> None:
        faulthandler.dump_traceback_later(self._seconds, file=self._file)


class Events:
    """Writes events, each at once."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def send(self, kind: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": kind, **fields}) + "\n")
        self._file.flush()


def work(job: dict[str, Any], events: Events, watch: Watch) -> None:
    """Load the plugin and run its checks."""
    import torch

    # One thread: sums come out the same every time, and several targets may be checked side by side.
    torch.set_num_threads(1)
    against = prepare(job["lost"])
    from lpkit.loading import LoadError, interfaces_of, resolve_target

    from lpkit_conformance.errors import CaseError
    from lpkit_conformance.oracle.fingerprint_child import second_process
    from lpkit_conformance.suite.in_process import hosts_for, inactivity_hint, labels, run
    from lpkit_conformance.vllm_api.stub import lend_buffers

    events.send("ready", against=against)
    try:
        plan = plan_of(job["plan"], against.startswith(STANDIN))
    except CaseError as error:
        events.send("unusable", problem=str(error))
        return
    lend_buffers(torch.device(plan.device))
    watch.restart()
    children.adopt_orphans()
    sys.path[:0] = job["path"]  # not before: what is ours must not come from a project's folder
    try:
        target = resolve_target(job["target"])
    except LoadError as error:
        events.send("unloadable", **load_failure(job["target"], error, plan.standin))
        return
    planned = {f"{check.code}[{host}]" if host else check.code: check for check, host in labels(target.cls, plan)}
    interface = " and ".join(sorted(interfaces_of(target.cls)))
    events.send(
        "loaded",
        interface=interface,
        hosts=hosts_for(target.cls, plan),
        labels=list(planned),
    )

    def started(label: str) -> None:
        events.send("started", label=label)
        watch.restart()

    with contextlib.ExitStack() as stack:
        second = None
        if any(check.compares_processes for label, check in planned.items() if label not in plan.done):
            second = stack.enter_context(second_process())
        for result in run(job["target"], target.cls, plan, started, second):
            hint = inactivity_hint(plan, target.cls) if result.never_active else ""
            events.send("result", result=asdict(result), hint=hint)
    left = children.children()
    for process in left:  # one that leads a session of its own would outlive this one
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    events.send("done", children=len(left))


def plan_of(data: dict[str, Any], uses_standin: bool) -> Plan:
    """A ``Plan`` from its JSON form."""
    from lpkit_conformance.programs.as_json import program_from_json
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.settings.plan import Plan

    return Plan(
        cases=tuple(Case.parse(case) for case in data["cases"]) or (Case(),),
        hosts=tuple(data["hosts"]) if data["hosts"] is not None else None,
        select=tuple(data["select"]),
        ignore=tuple(data["ignore"]),
        vocab_size=data["vocab_size"],
        max_num_seqs=data["max_num_seqs"],
        seed=data["seed"],
        device=data["device"],
        standin=uses_standin,
        done=data["done"],
        program=program_from_json(data["program"]) if data["program"] else None,
        trace=tuple(data["trace"]) if data["trace"] else None,
        strangers=frozenset(),  # whatever this process starts from here on is the plugin's
    )


def load_failure(target: str, error: Any, uses_standin: bool) -> dict[str, Any]:
    """Why a target does not load. ``broken``: it exists and is at fault, which is a failed check."""
    from lpkit.loading import ImportFailedError, WrongInterfaceError

    from lpkit_conformance.instruments.author_lines import place_of
    from lpkit_conformance.vllm_api.stub import missing

    cause = error.__cause__
    beyond = uses_standin and isinstance(cause, ImportError) and (cause.name or "").partition(".")[0] == "vllm"
    module = target.partition(":")[0]
    absent = (
        isinstance(cause, ModuleNotFoundError)
        and cause.name is not None
        and (module == cause.name or module.startswith(f"{cause.name}."))
    )
    broken = isinstance(error, WrongInterfaceError) or (isinstance(error, ImportFailedError) and not absent)
    problem, remedy = error.problem, error.remedy
    if beyond:
        name = re.search(r"cannot import name '(\w+)'", str(cause))
        problem, remedy = missing(f"{cause.name}.{name[1]}" if name else cause.name), ""
    return {
        "broken": broken and not beyond,
        "problem": problem,
        "remedy": remedy,
        "place": place_of(cause) if cause is not None else "",
    }


def trace_exits(stacks: TextIO) -> None:
    """Let ``os._exit`` say where it was called: nothing else will."""
    leave, pid = os._exit, os.getpid()

    def traced(status: int) -> NoReturn:
        if os.getpid() == pid:
            faulthandler.dump_traceback(stacks)
        leave(status)

    os._exit = traced


def start(arguments: Sequence[str]) -> None:
    """Entry of the child process."""
    main(Path(arguments[0]))
