"""Checks a target in a child process: a plugin that hangs, exits or crashes fails a check, not the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lpkit_conformance.catalogue import inactive, one_report_each
from lpkit_conformance.codec import decode, encode
from lpkit_conformance.index import index
from lpkit_conformance.instruments.author_lines import location_in
from lpkit_conformance.processes.supervise import ONE_THREAD, Child, Event, Lost
from lpkit_conformance.results import NEEDS, CheckResult, Finding, TargetResult
from lpkit_conformance.settings.cases import FOREIGN_ARGS, Requests
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.agenda import Agenda
from lpkit_conformance.suite.ahead import CHILD
from lpkit_conformance.suite.helper import Helper, divisible
from lpkit_conformance.suite.load_failures import LoadFailure
from lpkit_conformance.vllm_api.attempts import run_child

CALL_SECONDS = 20.0
"""For one call of the plugin, and while it is loaded from one import to the next: a hang is told within 30 seconds."""

LEAVES_PROCESSES = "LP606"
"""The check that says so itself."""

MOST_LOSSES = 3

MOST_HANGS = 2
"""After which a run ends: each takes a whole time limit."""

_GOES_ON = "the process keeps running (an engine that hangs or exits fails all requests)"
EXPECTED = {"exit": _GOES_ON, "hang": _GOES_ON, "output": "little output: an engine runs the plugin for every token"}
FIXES = {
    "exit": "run the method in a debugger",
    "hang": "run the method in a debugger",
    "output": "print nothing in methods that run for each step; log once, or at debug level",
}


@dataclass
class Progress:
    """Told about every check as it starts and ends; for a terminal."""

    started: Callable[[str, int, int], None] = lambda label, done, total: None
    finished: Callable[[CheckResult], None] = lambda result: None


@dataclass
class _State:
    """What the events of a target's workers have said so far."""

    judged_with: str = ""
    interface: str = ""
    hosts: tuple[str, ...] = ()
    agenda: Agenda = field(default_factory=lambda: Agenda({}))
    current: str | None = None
    latest: str | None = None
    lost: dict[str, str] = field(default_factory=dict)
    hung: dict[str, str] = field(default_factory=dict)
    hangs: int = 0
    hint: str = ""
    error: str = ""
    notes: dict[str, None] = field(default_factory=dict)
    given_up: bool = False
    requests: dict[str, Any] | None = None

    @property
    def results(self) -> dict[str, CheckResult]:
        return self.agenda.results


def check_target(
    target: str,
    plan: Plan,
    path: list[str],
    progress: Progress | None = None,
    limit: float = CALL_SECONDS,
    ahead: Child | None = None,
    other: tuple[str, Plan] | None = None,
) -> TargetResult:
    """Everything about one target. Never raises for what the plugin does.

    Args:
        target: entry-point name, ``module:Class`` or ``file.py:Class``.
        plan: which checks, cases and hosts.
        path: folders to put on the child's ``sys.path``.
        limit: seconds that one call of the plugin may take before the child is ended. What hung is not called again.
        ahead: a child that was started ahead (:func:`~lpkit_conformance.suite.ahead.start_ahead`); it is used first.
        other: another target with its plan, of which the cases count: the two are checked together.
    """
    state = _State()
    progress = progress or Progress()
    job: dict[str, Any] = {"target": target, "path": path, "hung": {}, "lost": "", "plan": encode(plan)}
    job["other"] = other and {"target": other[0], "plan": encode(other[1])}
    take = partial(_take, state, plan, progress)
    with ExitStack() as stack:
        divided = other is None and divisible(plan)
        helper = stack.enter_context(Helper({**job, "first": False}, limit)) if divided else None
        for losses in range(1, MOST_LOSSES + 1):
            job |= {"first": True, "hung": state.hung, "plan": {**encode(plan), "requests": state.requests}}
            judge = partial(_judge, state, progress, take, limit, helper)
            try:
                run_child(CHILD, job, take, limit, ONE_THREAD, ahead, judge)
                break
            except Lost as loss:
                _blame(state, loss, progress)
            if state.given_up or (state.agenda.requires and not state.agenda.left):
                break
            if losses == MOST_LOSSES or state.hangs == MOST_HANGS:
                state.error = f"gave up after the plugin ended or blocked the process {losses} times"
                break
            stack.close()
            ahead = helper = None  # the next child knows what hung
    for label in state.agenda.left:
        state.results[label] = CheckResult(*_parts(label), "blocked", "the run was abandoned")
    results = one_report_each([state.results[label] for label in state.agenda.requires or state.results])
    error = state.error
    if not error and inactive(results):
        error = state.hint
    return TargetResult(target, state.hosts, results, state.interface, state.judged_with, error, tuple(state.notes))


def _take(state: _State, plan: Plan, progress: Progress, event: Event) -> None:
    kind = event["event"]
    if kind == "ready":
        state.judged_with = event["judged_with"]
    elif kind == "unusable":
        state.error = event["problem"]
    elif kind == "unloadable":
        failure = decode(LoadFailure, event["failure"])
        if failure.broken:
            _add(failure.result(), state, progress)
        else:
            state.error = str(failure)
    elif kind == "loaded":
        state.interface, state.hosts = event["interface"], tuple(event["hosts"])
        if not state.agenda.requires:
            state.agenda = Agenda(event["requires"])
    elif kind == "requests":
        # A search that has begun may be what ends the process: then the next one sends the simplest requests.
        state.requests = event["requests"] or encode(Requests(plan.cases, FOREIGN_ARGS[:1]))


def _judge(
    state: _State, progress: Progress, take: Callable[[Event], None], limit: float, helper: Helper | None, child: Child
) -> None:
    """Get the results that are left, in their order, from a child that has loaded the plugin."""
    agenda = state.agenda
    if not agenda.requires:  # it has reported why there is nothing to judge
        return
    if helper is not None:
        helper.begin([label for label in agenda.left if _parts(label)[2] not in ("", *state.hosts[:1])])
    for label in agenda.left:
        if blocked := agenda.blocked(label):
            _add(CheckResult(*_parts(label), "blocked", blocked), state, progress)
            continue
        progress.started(label, len(agenda.results), len(agenda.requires))
        result = helper and helper.passed(label)
        if not result:
            state.current = label
            answer = child.call(label, limit, take)
            state.current, state.hint = None, answer["hint"] or state.hint
            state.notes |= dict.fromkeys(answer["notes"])
            result = decode(CheckResult, answer["result"])
        _add(result, state, progress)
    told = any(result.code == LEAVES_PROCESSES for result in state.results.values())
    if child.call("", limit) and not told:
        state.notes["the plugin left a process running; it was ended with the run"] = None


def _add(result: CheckResult, state: _State, progress: Progress) -> None:
    state.results[result.label] = result
    state.latest = result.label
    progress.finished(result)


def _parts(label: str) -> tuple[str, str, str]:
    """Code, name and host of a check's label."""
    code, _, host = label.rstrip("]").partition("[")
    return code, index()[code].name, host


def _blame(state: _State, loss: Lost, progress: Progress) -> None:
    """The child is gone without saying so: the check that was running failed, or loading did."""
    got = f"{loss.what}{loss.last_words}"
    state.given_up = not state.agenda.requires
    if not state.judged_with:
        state.error = f"the checking process did not start: {got}"
        return
    # Between two checks only the plugin's finalizers run: what the last check left behind.
    label = state.current or state.latest or "LP001"
    state.current = None
    location = location_in(loss.stacks)
    root = location or (loss.cause if loss.kind == "output" else "")
    if loss.kind == "hang":
        state.hangs += 1
        state.hung[loss.calls] = state.lost.get(root, label)
    if root and root in state.lost:  # one root cause, one failure
        _add(CheckResult(*_parts(label), "blocked", NEEDS + state.lost[root]), state, progress)
        return
    state.lost[root] = label
    finding = Finding(
        f"{loss.what}, {'during the check' if state.agenda.requires else 'while the plugin was loaded'}",
        expected=EXPECTED[loss.kind],
        got=got,
        cause=loss.cause,
        fix="see the line below" if location and loss.kind != "output" else FIXES[loss.kind],
        location=location,
    )
    _add(CheckResult(*_parts(label), "failed", finding.summary, finding), state, progress)
