"""Checks a target in a child process: a plugin that hangs, exits or crashes fails a check, not the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpkit_conformance.check import all_checks
from lpkit_conformance.results import CheckResult, Finding, TargetResult, result_from_json
from lpkit_conformance.session import Plan, inactive

LIMIT_SECONDS = 120.0
"""For one check, and for loading the plugin."""

POLL_SECONDS = 0.02
MOST_LOSSES = 4
TAIL = 2_000


@dataclass
class Progress:
    """Told about every check as it starts and ends; for a terminal."""

    started: Callable[[str, int, int], None] = lambda label, done, total: None
    finished: Callable[[CheckResult], None] = lambda result: None


@dataclass
class _State:
    """What the events of a target's workers have said so far."""

    against: str = ""
    interface: str = ""
    hosts: tuple[str, ...] = ()
    labels: list[str] = field(default_factory=list)
    results: dict[str, CheckResult] = field(default_factory=dict)
    current: str | None = None
    hint: str = ""
    error: str = ""
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
        before = len(state.results)
        if lost == MOST_LOSSES:
            state.error = f"gave up after the plugin ended or blocked the process {lost} times"
            break
        lost += 1
        _one_worker(target, plan, path, state, progress, limit)
        if len(state.results) == before and not state.ended:
            state.error = state.error or "the child process ended without a result"
            break
    results = tuple(state.results[label] for label in state.labels if label in state.results) or tuple(
        state.results.values()
    )
    error = state.error
    if not error and inactive(results):
        error = state.hint
    return TargetResult(target, state.hosts, results, state.interface, state.against, error)


def _one_worker(target: str, plan: Plan, path: list[str], state: _State, progress: Progress, limit: float) -> None:
    """Run a child until it is done, dies, or says nothing for too long."""
    with tempfile.TemporaryDirectory(prefix="lpkit-", ignore_cleanup_errors=True) as folder:
        job, events, output = (Path(folder) / name for name in ("job.json", "events.jsonl", "output.txt"))
        job.write_text(json.dumps({"target": target, "path": path, "plan": _plan_json(plan, state)}), encoding="utf-8")
        events.touch()
        with output.open("wb") as sink:
            child = subprocess.Popen(
                [sys.executable, "-m", "lpkit_conformance.worker", str(job), str(events)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
        try:
            reason = _follow(child, events, state, progress, limit)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        if state.ended:
            return
        tail = output.read_bytes()[-TAIL:].decode("utf-8", "replace").strip()
        _blame(state, reason, tail, progress)


def _environment() -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH", "")
    own = [entry for entry in sys.path if entry]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*own, inherited]) if inherited else os.pathsep.join(own),
        "OMP_NUM_THREADS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    }


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
        "done": {label: result.status for label, result in state.results.items()},
    }


def _follow(child: subprocess.Popen[bytes], events: Path, state: _State, progress: Progress, limit: float) -> str:
    """Take in events until the child is done; why it is over."""
    deadline = time.monotonic() + limit
    with events.open(encoding="utf-8") as lines:
        pending = ""
        while True:
            over = child.poll() is not None
            text = lines.read()
            if text:
                deadline = time.monotonic() + limit
                pending += text
                *whole, pending = pending.split("\n")
                for line in whole:
                    _take(json.loads(line), state, progress)
            if state.ended:
                return ""
            if over:
                return f"the process ended with exit code {child.returncode}"
            if time.monotonic() > deadline:
                return f"it did not come back within {limit:g} s"
            time.sleep(POLL_SECONDS)


def _take(event: dict[str, Any], state: _State, progress: Progress) -> None:
    kind = event.pop("event")
    if kind == "ready":
        state.against = event["against"]
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
        state.current, state.hint = None, event["hint"]
        _add(result_from_json(event["result"]), state, progress)
    elif kind == "done":
        state.ended = True


def _add(result: CheckResult, state: _State, progress: Progress) -> None:
    state.results[result.label] = result
    progress.finished(result)


def _blame(state: _State, reason: str, tail: str, progress: Progress) -> None:
    """The child is gone without saying so: the check that was running failed, or loading did."""
    last = tail.splitlines()[-1] if tail else ""
    got = f"{reason}; the last it printed: {last}"[:400] if last else reason
    if state.current is None and state.labels:
        state.error = f"the checking process was lost between two checks: {reason}"
        state.ended = True
        return
    label = state.current or "LP001"
    code, _, host = label.rstrip("]").partition("[")
    name = next(check.name for check in all_checks() if check.code == code)
    what = "loading the plugin" if state.current is None else "the check"
    finding = Finding(
        f"the plugin ended or blocked the process during {what}: {reason}",
        expected="the process goes on",
        got=got,
        cause="a call of exit or os._exit, a crash in native code, or a loop without end",
        fix="run the method in a debugger with the operations of this check",
    )
    state.current = None
    _add(CheckResult(code, name, host, "failed", finding.summary, finding), state, progress)
    if not state.labels:
        state.ended = True
