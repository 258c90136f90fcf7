"""Checks a target in a child process: a plugin that hangs, exits or crashes fails a check, not the run."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpkit_conformance.catalogue import all_checks, inactive
from lpkit_conformance.instruments.author_lines import place_in
from lpkit_conformance.processes import children
from lpkit_conformance.programs.as_json import program_to_json
from lpkit_conformance.results import CheckResult, Finding, TargetResult, result_from_json
from lpkit_conformance.settings.plan import Plan

LIMIT_SECONDS = 120.0
"""For one check, and for loading the plugin."""

START_SECONDS = 120.0
"""Until the child has imported torch, and vLLM where it is installed; no plugin runs before."""

POLL_SECONDS = 0.02
LEAVES_PROCESSES = "LP606"
"""The check that says so itself."""

MOST_LOSSES = 3
MOST_OUTPUT = 8 * 2**20
TAIL = 2_000

CAUSE_OF_EXIT = "a call of os._exit, or a crash in native code"
CAUSE_OF_HANG = "a loop without end, a deadlock, or a wait for something that does not come"
CAUSE_OF_OUTPUT = "printing or logging per row or per token"


@dataclass
class Progress:
    """Told about every check as it starts and ends; for a terminal."""

    started: Callable[[str, int, int], None] = lambda label, done, total: None
    finished: Callable[[CheckResult], None] = lambda result: None


@dataclass
class _State:
    """What the events of a target's workers have said so far."""

    lost: str = ""
    against: str = ""
    interface: str = ""
    hosts: tuple[str, ...] = ()
    labels: list[str] = field(default_factory=list)
    results: dict[str, CheckResult] = field(default_factory=dict)
    current: str | None = None
    latest: str | None = None
    places: dict[str, str] = field(default_factory=dict)
    hint: str = ""
    error: str = ""
    notes: list[str] = field(default_factory=list)
    ended: bool = False


def check_target(
    target: str,
    plan: Plan,
    path: list[str],
    progress: Progress | None = None,
    limit: float = LIMIT_SECONDS,
) -> TargetResult:
    """Everything about one target. Never raises for what the plugin does.

    Args:
        target: entry-point name, ``module:Class`` or ``file.py:Class``.
        plan: which checks, cases and hosts.
        path: folders to put on the child's ``sys.path``.
        limit: seconds without news after which the child is ended.
    """
    state = _State()
    progress = progress or Progress()
    lost = 0
    while not state.ended:
        if lost == MOST_LOSSES:
            state.error = f"gave up after the plugin ended or blocked the process {lost} times"
            break
        lost += 1
        _one_worker(target, plan, path, state, progress, limit)
    _give_up(state)
    results = tuple(state.results[label] for label in state.labels if label in state.results) or tuple(
        state.results.values()
    )
    error = state.error
    if not error and inactive(results):
        error = state.hint
    return TargetResult(target, state.hosts, results, state.interface, state.against, error, tuple(state.notes))


def _one_worker(target: str, plan: Plan, path: list[str], state: _State, progress: Progress, limit: float) -> None:
    """Run a child until it is done, dies, prints without end or says nothing for too long."""
    with tempfile.TemporaryDirectory(prefix="lpkit-", ignore_cleanup_errors=True) as name:
        files = _Files(Path(name))
        job = {"target": target, "path": path, "plan": _plan_json(plan, state), "limit": limit, "lost": state.lost}
        files.job.write_text(json.dumps(job), encoding="utf-8")
        files.events.touch()
        with files.output.open("wb") as sink:
            child = children.spawn(["lpkit_conformance.suite.child", name], sink, children.environment())
        try:
            loss = _follow(child, files, state, progress, limit)
        finally:
            children.end(child)
        if loss is not None:
            _blame(state, loss, files, progress)


@dataclass(frozen=True)
class _Files:
    """What parent and child share: a folder."""

    folder: Path

    @property
    def job(self) -> Path:
        return self.folder / "job.json"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def output(self) -> Path:
        """What the plugin prints."""
        return self.folder / "output.txt"

    @property
    def stacks(self) -> Path:
        """Where the interpreter says what it was doing when it crashed or hung."""
        return self.folder / "stacks.txt"

    def last_line(self) -> str:
        with self.output.open("rb") as file:
            file.seek(max(self.output.stat().st_size - TAIL, 0))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


@dataclass(frozen=True)
class _Loss:
    """How a child was lost, and what usually does that."""

    what: str
    cause: str


def _plan_json(plan: Plan, state: _State) -> dict[str, Any]:
    return {
        "cases": [json.loads(case.text) for case in plan.cases],
        "hosts": plan.hosts,
        "select": plan.select,
        "ignore": plan.ignore,
        "vocab_size": plan.vocab_size,
        "max_num_seqs": plan.max_num_seqs,
        "seed": plan.seed,
        "device": plan.device,
        "program": program_to_json(plan.program) if plan.program else None,
        "trace": plan.trace,
        "done": {label: result.status for label, result in state.results.items()},
    }


def _follow(
    child: subprocess.Popen[bytes], files: _Files, state: _State, progress: Progress, limit: float
) -> _Loss | None:
    """Take in events until the child is done; how it was lost, if it was."""
    patience = max(limit, START_SECONDS)
    deadline = time.monotonic() + patience
    with files.events.open(encoding="utf-8") as lines:
        pending = ""
        while True:
            over = child.poll() is not None
            text = lines.read()
            if text:
                pending += text
                *whole, pending = pending.split("\n")
                for line in whole:
                    _take(json.loads(line), state, progress)
                    patience = limit  # the first event says that everything of our own is there
                deadline = time.monotonic() + patience
            if files.output.stat().st_size > MOST_OUTPUT:
                return _Loss(f"the plugin printed more than {MOST_OUTPUT >> 20} MiB", CAUSE_OF_OUTPUT)
            if state.ended:
                return None
            if over:
                return _Loss(exit_text(child.returncode), CAUSE_OF_EXIT)
            if time.monotonic() > deadline:
                return _Loss(f"the plugin did not come back within {patience:g} s", CAUSE_OF_HANG)
            time.sleep(POLL_SECONDS)


def exit_text(code: int) -> str:
    """How a process ended that did not say."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"


def _take(event: dict[str, Any], state: _State, progress: Progress) -> None:
    kind = event.pop("event")
    if kind == "ready":
        state.against = event["against"]
    elif kind == "unusable":
        state.ended, state.error = True, event["problem"]
    elif kind == "unloadable":
        state.ended = True
        if event["broken"]:
            finding = Finding(event["problem"], fix=event["remedy"], place=event["place"])
            _add(CheckResult("LP001", "is-a-processor", "", "failed", event["problem"], finding), state, progress)
        else:
            state.error = ". ".join(part for part in (event["problem"], event["remedy"]) if part)
    elif kind == "loaded":
        state.interface, state.hosts, state.labels = event["interface"], tuple(event["hosts"]), event["labels"]
    elif kind == "started":
        state.current = event["label"]
        progress.started(event["label"], len(state.results), len(state.labels))
    elif kind == "result":
        state.current, state.hint = None, event["hint"] or state.hint
        _add(result_from_json(event["result"]), state, progress)
    elif kind == "done":
        state.ended = True
        if event["children"] and not any(result.code == LEAVES_PROCESSES for result in state.results.values()):
            state.notes.append("the plugin left a process running; it was ended with the run")


def _add(result: CheckResult, state: _State, progress: Progress) -> None:
    state.results[result.label] = result
    state.latest = result.label
    progress.finished(result)


def _give_up(state: _State) -> None:
    """Checks that were planned and did not run are told as such."""
    for label in state.labels:
        if label not in state.results:
            result = CheckResult(*_parts(label), "blocked", "the run was given up")
            state.results[label] = result


def _parts(label: str) -> tuple[str, str, str]:
    """Code, name and host of a check's label."""
    code, _, host = label.rstrip("]").partition("[")
    return code, next(check.name for check in all_checks() if check.code == code), host


def _blame(state: _State, loss: _Loss, files: _Files, progress: Progress) -> None:
    """The child is gone without saying so: the check that was running failed, or loading did."""
    last = files.last_line()
    got = f"{loss.what}; the last it printed: {last[:200]}" if last else loss.what
    if not state.against:
        if not state.lost and importlib.util.find_spec("vllm") is not None:
            state.lost = f"importing it, {loss.what}"
        else:
            state.error, state.ended = f"the checking process did not start: {got}", True
        return
    # Between two checks only the plugin's finalizers run: what the last check left behind.
    label = state.current or state.latest or "LP001"
    state.current = None
    during = "while the plugin was loaded" if not state.labels else "during the check"
    stacks = files.stacks.read_text(encoding="utf-8", errors="replace") if files.stacks.exists() else ""
    place = place_in(stacks)
    root = place or (loss.cause if loss.cause == CAUSE_OF_OUTPUT else "")
    if root and root in state.places:  # one root cause, one failure
        _add(CheckResult(*_parts(label), "blocked", f"needs {state.places[root]}"), state, progress)
        return
    state.places[root] = label
    finding = Finding(
        f"{loss.what}, {during}",
        expected="the process goes on: an engine that hangs or exits takes all requests with it",
        got=got,
        cause=loss.cause,
        fix="see the line below" if place else "run the method in a debugger",
        place=place,
    )
    _add(CheckResult(*_parts(label), "failed", finding.summary, finding), state, progress)
    if not state.labels:
        state.ended = True
