"""The child process in which a plugin's code runs: ``python -m lpkit_conformance.worker JOB EVENTS``.

It reads its job from one file and writes one JSON object per line to the other, so that whatever the plugin
prints, breaks or ends, the parent knows how far it came.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO


def main(job_file: str, events_file: str) -> None:
    """Run the job; see :mod:`lpkit_conformance.isolation` for its form."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    with Path(events_file).open("a", encoding="utf-8") as events:
        work(job, Events(events))


class Events:
    """Writes events, each at once."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def send(self, kind: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": kind, **fields}) + "\n")
        self._file.flush()


def work(job: dict[str, Any], events: Events) -> None:
    """Load the plugin and run its checks."""
    sys.path[:0] = job["path"]
    import torch

    # One thread: sums come out the same every time, and several targets may be checked side by side.
    torch.set_num_threads(1)
    from lpkit_conformance import standin

    against = standin.prepare()
    events.send("ready", against=against)
    from lpkit.loading import LoadError, interfaces_of, resolve_target

    from lpkit_conformance.session import Plan, hosts_for, inactivity_hint, labels, run

    plan = plan_of(job["plan"], against.startswith("lpkit"))
    try:
        target = resolve_target(job["target"])
    except LoadError as error:
        events.send("unloadable", **load_failure(job["target"], error))
        return
    interface = " and ".join(sorted(interfaces_of(target.cls)))
    events.send(
        "loaded",
        interface=interface,
        hosts=hosts_for(target.cls, plan),
        labels=[f"{check.code}[{host}]" if host else check.code for check, host in labels(target.cls, plan)],
    )

    def started(label: str) -> None:
        events.send("started", label=label)

    assert isinstance(plan, Plan)
    for result in run(job["target"], target.cls, plan, started):
        events.send("result", result=asdict(result), hint=inactivity_hint(plan))
    events.send("done")


def plan_of(data: dict[str, Any], uses_standin: bool) -> Any:
    """A ``Plan`` from its JSON form."""
    from lpkit_conformance.cases import Case
    from lpkit_conformance.session import Plan

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
    )


def load_failure(target: str, error: Any) -> dict[str, Any]:
    """Whether the target does not exist, or exists and is broken; the latter is a failed check."""
    from lpkit.loading import ImportFailedError, WrongInterfaceError

    from lpkit_conformance.hosts.observe import place_of

    cause = error.__cause__
    module = target.partition(":")[0]
    absent = (
        isinstance(cause, ModuleNotFoundError)
        and cause.name is not None
        and (module == cause.name or module.startswith(f"{cause.name}."))
    )
    broken = isinstance(error, WrongInterfaceError) or (isinstance(error, ImportFailedError) and not absent)
    return {
        "broken": broken,
        "problem": error.problem,
        "remedy": error.remedy,
        "place": place_of(cause) if cause is not None else "",
    }


def start(arguments: Sequence[str]) -> None:
    """Entry of the child process."""
    # What a plugin prints goes nowhere near our own output.
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main(*arguments)


if __name__ == "__main__":
    start(sys.argv[1:])
