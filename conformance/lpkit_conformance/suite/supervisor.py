"""Checks a target in a child process: a plugin that hangs, exits or crashes fails a check, not the run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from lpkit_conformance.checks.catalogue import by_code, inactive, one_report_each
from lpkit_conformance.explanation import advice
from lpkit_conformance.instruments.author_lines import location_in
from lpkit_conformance.processes.codec import decode, encode
from lpkit_conformance.processes.pulse import GIVEN
from lpkit_conformance.processes.supervise import ONE_THREAD, Child, Event, Lost
from lpkit_conformance.results import BAD, NEEDS, CheckResult, Finding, TargetResult
from lpkit_conformance.settings.cases import FOREIGN_ARGS, Requests
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.agenda import SILENT, Agenda
from lpkit_conformance.suite.ahead import CHILD
from lpkit_conformance.suite.helper import Helper, divisible
from lpkit_conformance.suite.load_failures import LoadFailure
from lpkit_conformance.vllm_api.attempts import run_child

CALL_SECONDS = 20.0
"""Time limit of a call of the plugin, and between imports while it is loaded; a hang is reported within 30 s."""

MOST_LOSSES = 3

MOST_HANGS = 2
"""After which a run ends: each takes a whole time limit."""

_GOES_ON = "the process keeps running (an engine that hangs or exits fails all requests)"
EXPECTED = {"exit": _GOES_ON, "hang": _GOES_ON, "output": "little output: an engine runs the plugin for every token"}


@dataclass
class Progress:
    """Called as each check starts and ends; for a terminal."""

    started: Callable[[str, int, int], None] = lambda label, done, total: None
    finished: Callable[[CheckResult], None] = lambda result: None


def check_target(
    target: str,
    plan: Plan,
    path: list[str],
    progress: Progress | None = None,
    limit: float = CALL_SECONDS,
    ahead: Child | None = None,
    other: tuple[str, Plan] | None = None,
    announced: Collection[str] = (),
) -> TargetResult:
    """Return all results about one target. Never raises for what the plugin does.

    Args:
        target: entry-point name, ``module:Class`` or ``file.py:Class``.
        path: folders to put on the child's ``sys.path``.
        limit: seconds that one call of the plugin may take before the child is ended. What hung is not called again.
        ahead: a child that was started ahead (:func:`~lpkit_conformance.suite.ahead.start_ahead`); it is used first.
        other: another target with its plan, to check the two together. Of the plan, only the cases count.
        announced: codes of checks that the project expects to fail.
    """
    job = {"target": target, "path": path, "other": other and {"target": other[0], "plan": encode(other[1])}}
    run = _Supervision(plan, progress or Progress(), limit)
    run.judge_all(job, ahead, divided=other is None and divisible(plan))
    return run.result(target, announced)


class _Supervision:
    """The checks of one target, in one child after the other.

    Attributes:
        agenda: the checks and their results; empty until the plugin is loaded.
        requests: the requests that the checks send, once a child has found them.
        current, latest: labels of the check that the child is judging, and of the last that a child has judged.
        lost: labels of checks that lost a child, by the cause.
        hung: methods that did not return, with the label of the check that saw it.
    """

    def __init__(self, plan: Plan, progress: Progress, limit: float) -> None:
        self.plan, self.progress, self.limit = plan, progress, limit
        self.agenda = Agenda({})
        self.requests: dict[str, Any] | None = None
        self.judged_with = self.interface = self.hint = self.error = ""
        self.hosts: tuple[str, ...] = ()
        self.notes: dict[str, None] = {}
        self.current = self.latest = ""
        self.lost: dict[str, str] = {}
        self.hung: dict[str, str] = {}
        self.hangs = 0
        self.loaded = False
        self.helper: Helper | None = None

    def judge_all(self, job: dict[str, Any], ahead: Child | None, divided: bool) -> None:
        """Start children until every check has a result, or too many children were lost."""
        job |= {"plan": encode(self.plan), "hung": {}, "lost": "", "helped": divided, "first_rank": None}
        with ExitStack() as stack:
            if divided:
                self.helper = stack.enter_context(Helper({**job, "helped": False}, self.limit))
            for losses in range(1, MOST_LOSSES + 1):
                job |= {"hung": self.hung, "plan": {**encode(self.plan), "requests": self.requests}}
                self.loaded = False
                try:
                    run_child(CHILD, job, self._take, self.limit, ONE_THREAD, ahead, self._judge)
                    return
                except Lost as loss:
                    self._blame(loss)
                if not self.agenda.left:
                    return
                if losses == MOST_LOSSES or self.hangs == MOST_HANGS:
                    self.error = f"gave up after the plugin ended or blocked the process {losses} times"
                    return
                stack.close()
                ahead = self.helper = None  # the next child knows what hung

    def result(self, target: str, announced: Collection[str]) -> TargetResult:
        """Return the results in the order of the run."""
        by_label = self.agenda.results
        for label in self.agenda.left:
            by_label[label] = CheckResult(*_parts(label), "blocked", "the run was abandoned")
        results = one_report_each([by_label[label] for label in self.agenda.requires or by_label], announced)
        reported = any(result.status in BAD for result in results)  # what fails comes first
        error = self.error or (self.hint if not reported and inactive(results) else "")
        notes = tuple(note for note in self.notes if not (reported and SILENT in note))
        return TargetResult(target, self.hosts, results, self.interface, self.judged_with, error, notes)

    def _take(self, event: Event) -> None:
        kind = event["event"]
        if kind == "ready":
            self.judged_with = event["judged_with"]
        elif kind == "unusable":
            self.error = event["problem"]
        elif kind == "unloadable":
            failure = decode(LoadFailure, event["failure"])
            if failure.broken:
                self._add(failure.result())
            else:
                self.error = str(failure)
        elif kind == "loaded":
            self.loaded, self.interface, self.hosts = True, event["interface"], tuple(event["hosts"])
            if not self.agenda.requires:
                self.agenda = Agenda(event["requires"])
        elif kind == "requests":
            # A search that has begun may be what ends the process: then the next one sends the simplest requests.
            self.requests = event["requests"] or encode(Requests(self.plan.cases, FOREIGN_ARGS[:1]))
            if self.helper is not None and event["requests"]:
                self.helper.begin(self._divided(), event["requests"], event["first_rank"])
        elif kind == "started":
            self.current = event["label"]

    def _divided(self) -> list[str]:
        """Return the labels for the second child: of the other hosts, where they need no GPU, and of two ranks."""
        first_child = ("", *(self.hosts[:1] if self.plan.device == "cpu" else self.hosts))
        ranks = tuple(code for code, check in by_code().items() if check.compares_processes)
        return [label for label in self.agenda.left if label.startswith(ranks) or _parts(label)[2] not in first_child]

    def _judge(self, child: Child) -> None:
        """Get the results that are left, in their order, from a child that has loaded the plugin."""
        if not self.loaded:  # it has reported why there is nothing to judge
            return
        agenda = self.agenda
        for label in agenda.left:
            if blocked := agenda.blocked(label):
                self._add(CheckResult(*_parts(label), "blocked", blocked))
                continue
            self.progress.started(label, len(agenda.results), len(agenda.requires))
            self._add((self.helper and self.helper.passed(label)) or self._judged(child, label))
        reported = any(by_code()[result.code].judges_processes for result in agenda.results.values())
        if child.call("", self.limit) and not reported:
            self.notes["the plugin left a process running; it was ended with the run"] = None

    def _judged(self, child: Child, label: str) -> CheckResult:
        answer = child.call(label, self.limit, self._take)
        self.current, self.latest = "", label
        self.hint = answer["hint"] or self.hint
        self.notes |= dict.fromkeys(answer["notes"])
        return decode(CheckResult, answer["result"])

    def _add(self, result: CheckResult) -> None:
        self.agenda.results[result.label] = result
        self.progress.finished(result)

    def _blame(self, loss: Lost) -> None:
        """The child is gone without saying so: the check that was running failed, or loading did."""
        got = f"{loss.what}{loss.last_words}"
        if not self.judged_with:
            self.error = f"the checking process did not start: {got}"
            return
        # Between two checks only the plugin's finalizers run: what the last check left behind.
        label = self.current or self.latest or "LP001"
        if not self.current and label in self.agenda.results and self.agenda.results[label].status == "failed":
            return  # it says why: no call reaches the GPU any more
        self.current = ""
        location = location_in(loss.stacks)
        root = location or (loss.kind if loss.kind == "output" else "")
        if loss.kind == "hang":
            self.hangs += 1
            self.hung[loss.calls] = self.lost.get(root, label)
        if root and root in self.lost:  # one root cause, one failure
            self._add(CheckResult(*_parts(label), "blocked", NEEDS + self.lost[root]))
            return
        self.lost[root] = label
        rule = by_code()[label[:5]]
        method, _, argument = loss.calls.partition(GIVEN)
        reason = "given" if argument else loss.kind
        refused = {"needs": rule.option} if argument and rule.option else {}
        fix = "see the line below" if location and reason == "exit" else advice.fix(reason, "loss")
        finding = Finding(
            f"{loss.what}, {'during the check' if self.agenda.requires else 'while the plugin was loaded'}",
            {"method": method, "argument": argument, **refused} if argument else {},
            EXPECTED[loss.kind],
            got,
            cause=advice.cause(reason, "loss"),
            fix=rule.sections()["fix"] if refused else fix,
            location=location,
        )
        self._add(CheckResult(*_parts(label), "advice" if refused else "failed", finding.summary, finding))


def _parts(label: str) -> tuple[str, str, str]:
    """Return code, name and host of a check's label."""
    code, _, host = label.rstrip("]").partition("[")
    return code, by_code()[code].name, host
