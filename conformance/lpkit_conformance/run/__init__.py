"""A whole run: which targets, with which settings, what the project expected to fail; and failures that run again."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points, version
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from lpkit import __version__
from lpkit._nearest import did_you_mean
from lpkit.interfaces.lookup import GROUP

from lpkit_conformance import traces
from lpkit_conformance.checks.base import Engine, Rule
from lpkit_conformance.checks.catalogue import all_checks, by_code
from lpkit_conformance.errors import CaseError, ProjectError, UsageError
from lpkit_conformance.processes.codec import encode
from lpkit_conformance.processes.supervise import Child
from lpkit_conformance.results import NOTHING_PROVEN, CheckResult, Report, TargetResult
from lpkit_conformance.settings import last_failures
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case, Requests
from lpkit_conformance.settings.expression import expression
from lpkit_conformance.settings.hosts import RUNNER_HOSTS
from lpkit_conformance.settings.plan import Plan, resolve_device
from lpkit_conformance.settings.project import NO_PROJECT, ExpectedFailure, Project, entry_points_of, owner
from lpkit_conformance.suite.release_rules import rules_of
from lpkit_conformance.suite.supervisor import CALL_SECONDS, Progress, check_target
from lpkit_conformance.traces.patterns import RECORDED
from lpkit_conformance.vllm_api.choose import STANDIN

MOST_CASES = 16
"""Most cases that are taken from the arguments in a trace."""

REPEATED = ("seed", "cases", "select", "ignore", "device", "vocab_size", "max_num_seqs")
"""The parts of a plan that a report repeats."""

TOGETHER: Final = "together"
"""The engine of the checks of two plugins."""


@dataclass(frozen=True)
class Options:
    """The user's options; None and empty leave the choice to the project and the defaults.

    Attributes:
        expression: narrows the checks down by their codes and names.
        release: the vLLM release whose rules apply; empty: the newest.
        quick: run only a few checks, most of them with the first case only, and the last failures first.
        trace: replay only this trace of ``lpkit watch``.
        engine: ``together``: check every two of the targets, on the reference runtime.
    """

    cases: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    expression: str = ""
    quick: bool = False
    seed: int = 0
    device: str = "cpu"
    limit: float | None = None
    engine: Engine = "reference"
    trace: Path | None = None
    release: str = ""


def known_code(code: str, engine: Engine | None = None) -> str:
    """Return the code that a check's name, its code or a prefix of codes stands for.

    Args:
        code: as the user wrote it.
        engine: on which the check must run, if given.

    Raises:
        UsageError: with the nearest match.
    """
    names = {check.name: check.code for check in all_checks(None)}
    wanted = names.get(code.lower(), code.upper())
    engines = {check.engine for check in all_checks(None) if check.code.startswith(wanted)}
    if wanted.startswith("LP") and engines:
        if engine is not None and engine not in engines:
            if engines == {TOGETHER}:
                raise UsageError(f"{code} is about two plugins", "add --together")
            raise UsageError(f"{code} does not run with --{'together' if engine == TOGETHER else f'engine {engine}'}")
        return wanted
    raise UsageError(f"there is no check {code}", did_you_mean(code, [*by_code(), *names]) or "see `lpkit explain`")


def wanted(options: Options, failed: Sequence[str] = ()) -> list[type[Rule]]:
    """Return the checks that the options select, without the checks that these require.

    Args:
        options: of the command.
        failed: checks that a quick run repeats because they failed last.

    Raises:
        UsageError: for codes that do not exist, or if no check is left.
    """
    select = tuple(known_code(code, options.engine) for code in options.select)
    ignore = tuple(known_code(code) for code in options.ignore)
    matches = expression(options.expression) if options.expression else None
    # All checks of real engines are few.
    few = options.quick and options.engine == "reference" and not (select or matches)
    selected = [
        check
        for check in all_checks(options.engine)
        if (not select or check.code.startswith(select))
        and not check.code.startswith(ignore)
        and (matches is None or matches(f"{check.code} {check.name}"))
        and (not few or check.quick or check.code in failed)
        and (options.hosts is None or not check.hosts or not set(options.hosts).isdisjoint(check.hosts))
    ]
    if not selected:
        words = {word for check in all_checks(None) for word in (check.name, *check.name.split("-"))}
        remedy = did_you_mean(options.expression, words) if options.expression else ""
        raise UsageError("no check is left to run with these options", remedy or "see `lpkit check --list-checks`")
    return selected


def run(
    targets: Sequence[str],
    options: Options,
    folder: Path | None = None,
    progress_for: Callable[[str], Progress] = lambda _: Progress(),
    ahead: Child | None = None,
) -> Report:
    """Check every target; without targets, the entry points of the project in ``folder``.

    Together: check every two of the targets; without targets, include the environment's entry points.

    ``ahead``: a process that was started for the first target (:func:`~lpkit_conformance.suite.ahead.start_ahead`).

    Raises:
        UsageError, ProjectError, CaseError, EngineUnavailable: before the first check.
    """
    project = projects.find(folder or Path.cwd())
    names = list(targets)
    if not names and options.engine == TOGETHER:  # all processors, in the order in which vLLM loads them
        names = [*(project.entry_points if project else ()), *(entry.name for entry in entry_points(group=GROUP))]
    elif not names:
        names = entry_points_of(project, "check")
    wanted(options)
    if options.engine == "vllm":
        if options.release:
            raise UsageError("--engine vllm judges by the vLLM that it runs: omit --vllm")
        _require_engine(options)
    if project:
        check_expected(project)
    # All plans first: a mistake in one of them is reported before anything runs.
    jobs = [(name, owner(name, project)) for name in dict.fromkeys(names)]
    if options.engine == TOGETHER:
        return Report(tuple(_pairs(jobs, options, progress_for, ahead)))
    failed = last_failures.load() if options.quick else {}
    plans = [_narrowed(plan_for(options, owning), options, failed.get(name, [])) for name, owning in jobs]
    if options.trace is not None:
        plans = [with_trace(plan, options, options.trace) for plan in plans]
    results = []
    for (name, owning), plan in zip(jobs, plans, strict=True):
        results.append(_target_result(name, owning, plan, options, progress_for(name), ahead))
        ahead = None
    return Report(tuple(results))


def _pairs(
    jobs: Sequence[tuple[str, Project]],
    options: Options,
    progress_for: Callable[[str], Progress],
    ahead: Child | None,
) -> Iterator[TargetResult]:
    """Check every two of the targets in one engine."""
    if len(jobs) < 2:
        named = f"only {jobs[0][0]} is" if jobs else "no processor is"
        raise UsageError(f"--together needs two targets, and {named} named or installed")
    if options.release:
        raise UsageError("--together judges by the rules of the newest release: omit --vllm")
    if options.trace is not None:
        raise UsageError("--trace replays what was recorded of one plugin: omit --together")
    if options.quick:
        raise UsageError("no check of two plugins is a quick one: omit --quick")
    if options.hosts and not set(options.hosts) & set(RUNNER_HOSTS):
        raise UsageError(f"--together runs on vLLM's runners: omit --host {','.join(options.hosts)}")
    plans = [_narrowed(plan_for(options, owning), options, []) for _, owning in jobs]
    for first, second in combinations(range(len(jobs)), 2):
        (name, home), (other, other_home) = jobs[first], jobs[second]
        target = f"{name} + {other}"
        path = list(dict.fromkeys([*home.import_path, *other_home.import_path]))
        limit = options.limit or CALL_SECONDS
        progress = progress_for(target)
        result = check_target(
            home.spec(name), plans[first], path, progress, limit, ahead, (other_home.spec(other), plans[second])
        )
        ahead = None
        settings = _settings(plans[first], result.judged_with)
        settings["together"] = [{"target": jobs[nth][0], "cases": encode(plans[nth].cases)} for nth in (first, second)]
        result = replace(result, target=target, settings=settings)
        # What is announced for the plugin beside one other need not come beside the next.
        failed = {check.code for check in result.checks if check.status in ("failed", "advice")}
        yield expect(result, [item for item in (*home.expected, *other_home.expected) if item.code in failed])


def check_expected(project: Project) -> None:
    """Refuse expected failures of checks that do not exist.

    Raises:
        ProjectError: with the nearest code.
    """
    codes = list(by_code())
    for expected in project.expected:
        if expected.code not in codes:
            raise ProjectError(
                f"{project.root / 'pyproject.toml'}: [tool.lpkit.expected_failures] there is no check {expected.code}",
                did_you_mean(expected.code, codes),
            )


def _require_engine(options: Options) -> None:
    from lpkit_conformance.engine.checking import require_vllm

    if options.device == "cuda":
        raise UsageError("--engine vllm runs on the CPU: omit --device")
    if options.hosts and not set(options.hosts) & set(RUNNER_HOSTS):
        raise UsageError(f"--engine vllm runs on vLLM's runners: omit --host {','.join(options.hosts)}")
    require_vllm()


def plan_for(options: Options, project: Project = NO_PROJECT) -> Plan:
    """Return the plan of a target; ``project``: the settings that apply to it."""
    cases = [Case.parse(text) for text in options.cases]
    if not cases:
        try:
            cases = [Case.parse(value) for value in project.cases]
        except CaseError as error:
            raise ProjectError(f"{project.root / 'pyproject.toml'}: [tool.lpkit] {error}") from None
    plan = Plan(
        cases=tuple(cases) or (Case(),),
        hosts=options.hosts or project.hosts,
        select=tuple(known_code(code) for code in options.select),
        ignore=tuple(known_code(code) for code in options.ignore),
        seed=options.seed,
        device=resolve_device(options.device),
        environment=project.environment,
        model=project.model,
        tokenizer=project.tokenizer,
        vocab_size=project.vocab_size or Plan.vocab_size,
        max_num_seqs=project.max_num_seqs or Plan.max_num_seqs,
    )
    if not options.release:
        return plan
    rules = rules_of(options.release)
    return replace(plan, release=rules.release, hosts=rules.hosts(plan.hosts), ignore=plan.ignore + rules.without)


def _narrowed(plan: Plan, options: Options, failed: Sequence[str]) -> Plan:
    """The plan with the checks that ``-k`` and ``--quick`` leave."""
    if not (options.expression or options.quick):
        return plan
    codes = tuple(entry.code for entry in wanted(options, failed))
    if not options.quick:
        return replace(plan, select=codes)
    return replace(plan, select=codes, first=tuple(failed), quick=True, alone=True)


def with_trace(plan: Plan, options: Options, path: Path) -> Plan:
    """Return the plan that replays a trace of ``lpkit watch`` on its runner, with the requests that used the plugin
    there, and with their arguments if the trace has them.

    Raises:
        TraceError: it cannot be read.
        UsageError: it is another kind of trace, or the options contradict it.
    """
    trace = traces.load(path)
    watch = trace.settings.get("watch")
    if watch is None:
        raise UsageError(f"{path} was not saved by lpkit watch; traces that ship are replayed without --trace")
    if options.quick or options.select or options.expression:
        raise UsageError("--trace replays a trace and runs no other check: omit --quick, --select, -k")
    if options.hosts and trace.runner not in options.hosts:
        raise UsageError(f"{path} is of {trace.runner.upper()}: omit --host {','.join(options.hosts)}")
    if not options.cases:
        plan = _with_recorded(plan, watch)
    select = tuple(check.code for check in all_checks(options.engine) if check.replays)
    return replace(plan, hosts=(trace.runner,), select=select, alone=True, trace=(str(path.resolve()), RECORDED))


def _with_recorded(plan: Plan, watch: Mapping[str, Any]) -> Plan:
    """Return the plan with the arguments of a trace's requests, or with the reason why they are not known."""
    used = {name: watch["arguments"][name] for name, uses in watch["uses"].items() if uses}
    if not any(used.values()):
        return replace(plan, cases=(Case(),), requests=Requests((Case(),)))
    if not watch["values"]:
        return replace(plan, unproven="the trace has no values of arguments, so the requests had others")
    ranked = sorted(used, key=lambda name: (name != watch["request"], not used[name]))  # the wrong row's come first
    texts = list(dict.fromkeys(json.dumps({"extra_args": used[name]}) for name in ranked))
    more = f"the trace's requests have {len(texts)} sets of arguments, of which {MOST_CASES} were given"
    cases = tuple(map(Case.parse, texts[:MOST_CASES]))
    return replace(plan, cases=cases, unproven=more if len(texts) > MOST_CASES else "")


def proven(result: TargetResult, plan: Plan) -> TargetResult:
    """Return the result; if the plan says that passing proves nothing, no check of it passes."""

    def judged(check: CheckResult) -> CheckResult:
        if not plan.unproven or check.status != "passed":
            return check
        return replace(check, status="skipped", message=f"{NOTHING_PROVEN}{plan.unproven}; give them with --case")

    return replace(result, checks=tuple(map(judged, result.checks)))


def _target_result(
    name: str, project: Project, plan: Plan, options: Options, progress: Progress, ahead: Child | None
) -> TargetResult:
    spec, path = project.spec(name), project.import_path
    if options.engine == "vllm":
        from lpkit_conformance.engine import checking

        result = checking.check_target(spec, plan, path, progress, options.limit)
    else:
        announced = [item.code for item in project.expected if not item.expired]
        limit = options.limit or CALL_SECONDS
        result = check_target(spec, plan, path, progress, limit, ahead, announced=announced)
    if options.release:
        result = replace(result, notes=(rules_of(options.release).note, *result.notes))
    result = replace(proven(result, plan), target=name, settings=_settings(plan, result.judged_with))
    return expect(result, project.expected)


def _settings(plan: Plan, judged_with: str) -> dict[str, Any]:
    """Return the settings that reproduce a result."""
    planned = encode(plan)
    return {
        **{key: planned[key] for key in REPEATED},
        **({"quick": True} if plan.quick else {}),
        "versions": {
            "lpkit": __version__,
            "vllm": "stand-in" if judged_with.startswith(STANDIN) else judged_with.removeprefix("vLLM ") or None,
            "torch": version("torch"),  # without importing it, which takes a second
            "python": platform.python_version(),
        },
    }


def expect(result: TargetResult, expected: Sequence[ExpectedFailure]) -> TargetResult:
    """Turn failures that the project announced into ``expected``, and announced failures that passed into failures."""
    by_code = {item.code: item for item in expected}
    ran = {check.code for check in result.checks if check.status in ("passed", "failed", "advice")}
    failed = {check.code for check in result.checks if check.status in ("failed", "advice")}

    def judge(check: CheckResult) -> CheckResult:
        item = by_code.get(check.code)
        if item is None:
            return check
        if item.expired and check.status in ("failed", "advice"):
            return replace(check, message=f"{check.message} (was expected until {item.until}: {item.reason})")
        if check.status in ("failed", "advice"):
            return replace(check, status="expected", message=f"{item.reason}: {check.message}")
        if check.status == "passed" and check.code in ran - failed:
            return replace(
                check,
                status="unexpected_pass",
                message=f"expected to fail ({item.reason}), but passes: remove it from expected_failures",
            )
        return check

    return replace(result, checks=tuple(judge(check) for check in result.checks))
