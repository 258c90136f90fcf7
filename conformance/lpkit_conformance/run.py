"""A whole run: which targets, with which settings, and what the project expected to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lpkit._nearest import did_you_mean

from lpkit_conformance.catalogue import all_checks
from lpkit_conformance.checks.base import Engine
from lpkit_conformance.errors import CaseError, ProjectError, UsageError
from lpkit_conformance.results import CheckResult, Report, TargetResult
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.cases import Case, knows_cases
from lpkit_conformance.settings.plan import Plan, resolve_device
from lpkit_conformance.settings.project import Expected, Project, entry_points_of
from lpkit_conformance.suite.supervisor import CALL_SECONDS, Progress, check_target


@dataclass(frozen=True)
class Options:
    """What the user asked for; None and empty leave the choice to the project and the defaults."""

    cases: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    seed: int = 0
    device: str = "cpu"
    limit: float | None = None
    engine: Engine = "reference"


def known_code(code: str, engine: Engine | None = None) -> str:
    """``code`` if it is a check's or begins some checks' codes; of those that run on ``engine``, if one is given.

    Raises:
        UsageError: with the nearest match.
    """
    codes = [check.code for check in all_checks(None)]
    if code.upper().startswith("LP") and any(known.startswith(code.upper()) for known in codes):
        if not any(check.code.startswith(code.upper()) for check in all_checks(engine)):
            raise UsageError(f"{code} does not run with --engine {engine}")
        return code.upper()
    raise UsageError(f"there is no check {code}", did_you_mean(code, codes) or "see `lpkit explain`")


def run(
    targets: Sequence[str],
    options: Options,
    folder: Path | None = None,
    progress_for: Callable[[str], Progress] = lambda _: Progress(),
) -> Report:
    """Check every target; without any, the entry points of the project in ``folder``.

    Raises:
        UsageError, ProjectError, CaseError, EngineUnavailable: before anything runs.
    """
    project = projects.find(folder or Path.cwd())
    names = list(targets) or entry_points_of(project, "check")
    for code in options.select:
        known_code(code, options.engine)
    for code in options.ignore:
        known_code(code)
    if options.engine == "vllm":
        _require_engine(options)
    if project:
        check_expected(project)
    # All plans first: a mistake in one of them is told before anything runs.
    jobs = [(name, _owner(name, project)) for name in dict.fromkeys(names)]
    plans = [plan_for(options, own) for _, own in jobs]
    return Report(
        tuple(_one(name, own, plan, options, progress_for(name)) for (name, own), plan in zip(jobs, plans, strict=True))
    )


def check_expected(project: Project) -> None:
    """Refuse expected failures of checks that do not exist.

    Raises:
        ProjectError: with the nearest code.
    """
    codes = [check.code for check in all_checks(None)] if project.expected else []  # knowing them takes torch
    for expected in project.expected:
        if expected.code not in codes:
            raise ProjectError(
                f"{project.root / 'pyproject.toml'}: [tool.lpkit.expected_failures] there is no check {expected.code}",
                did_you_mean(expected.code, codes),
            )


def _require_engine(options: Options) -> None:
    from lpkit_conformance.suite.on_engine import require_vllm

    if options.device == "cuda":
        raise UsageError("--engine vllm runs on the CPU: omit --device")
    require_vllm()


def _owner(name: str, project: Project | None) -> Project | None:
    return project if project and project.owns(name) else None


def plan_for(options: Options, project: Project | None) -> Plan:
    """The plan of a target; ``project`` is None if its settings are not meant for the target."""
    complete = knows_cases()
    cases = [Case.parse(text, complete) for text in options.cases]
    if not cases and project:
        try:
            cases = [Case.parse(value, complete) for value in project.cases]
        except CaseError as error:
            raise ProjectError(f"{project.root / 'pyproject.toml'}: [tool.lpkit] {error}") from None
    plan = Plan(
        cases=tuple(cases) or (Case(),),
        hosts=options.hosts or (project.hosts if project else None),
        select=tuple(known_code(code) for code in options.select),
        ignore=tuple(known_code(code) for code in options.ignore),
        seed=options.seed,
        device=resolve_device(options.device),
    )
    if project and project.vocab_size:
        plan = replace(plan, vocab_size=project.vocab_size)
    if project and project.max_num_seqs:
        plan = replace(plan, max_num_seqs=project.max_num_seqs)
    return plan


def _one(name: str, own: Project | None, plan: Plan, options: Options, progress: Progress) -> TargetResult:
    spec = own.entry_points.get(name, name) if own else name
    path = own.import_path if own else []
    if options.engine == "vllm":
        from lpkit_conformance.suite import on_engine as engines

        result = engines.check_target(spec, plan, path, progress, options.limit)
    else:
        result = check_target(spec, plan, path, progress, options.limit or CALL_SECONDS)
    result = replace(result, target=name)
    return expect(result, own.expected) if own else result


def expect(result: TargetResult, expected: Sequence[Expected]) -> TargetResult:
    """Turn failures that the project announced into ``expected``, and announced ones that passed into failures."""
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
