"""The registry of checks: by code and family, their requirements, and when a run counts as inactive.

Listing the checks imports their modules, and no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from lpkit_conformance.checks.base import Engine, Rule
from lpkit_conformance.results import NEEDS, CheckResult
from lpkit_conformance.settings.plan import Plan

FAMILIES = {
    "LP0": "Discovery and packaging",
    "LP1": "Construction and parameters",
    "LP2": "Bookkeeping",
    "LP3": "The logits contract",
    "LP4": "Stage and argmax claims",
    "LP5": "History",
    "LP6": "Determinism and growth",
    "LP7": "Cost",
    "LP8": "Rows on V2",
    "LP9": "On a real engine",
}

MOST_NAMED = 8

BOOKKEEPING = "LP2"
MOST_SILENT = 2
"""Ratio of bookkeeping checks without action to those with action from which the result counts as inactive."""


def _checks() -> Iterator[type[Rule]]:
    """Yield the checks of all modules of checks, which are named by families; bases have no code."""
    for file in iter_modules([str(Path(__file__).parent)]):
        if file.name.startswith("lp"):
            module = import_module(f"{__package__}.{file.name}")
            for value in vars(module).values():
                if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__:
                    yield from [value] if "code" in vars(value) else []


@cache
def by_code(engine: Engine | None = None) -> dict[str, type[Rule]]:
    """Return the checks that run on ``engine`` (None: all checks), by their codes, in the order of the codes.

    Raises:
        ValueError: if two checks share a code, or checks require each other.
    """
    if engine is not None:
        return {code: check for code, check in by_code().items() if check.engine == engine}
    checks: dict[str, type[Rule]] = {}
    for check in _checks():
        if check.code in checks:
            raise ValueError(f"{check.code} is taken by {checks[check.code].__qualname__}")
        checks[check.code] = check
    requirements_first(checks, lambda code: checks[code].requires)
    return dict(sorted(checks.items()))


def requirements_first(codes: Iterable[str], requires: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the codes and those that they require, directly or indirectly; each after the codes that it requires.

    Raises:
        ValueError: if checks require each other in a circle.
    """
    ordered: dict[str, None] = {}

    def visit(code: str, path: tuple[str, ...]) -> None:
        if code in path:
            raise ValueError(f"checks require each other: {' -> '.join([*path[path.index(code) :], code])}")
        if code not in ordered:
            for other in requires(code):
                visit(other, (*path, code))
            ordered[code] = None

    for code in codes:
        visit(code, ())
    return list(ordered)


def all_checks(engine: Engine | None = "reference") -> list[type[Rule]]:
    """Return the checks that run on ``engine``, by code; None: on any engine."""
    return list(by_code(engine).values())


def chosen(plan: Plan, engine: Engine = "reference") -> list[type[Rule]]:
    """Return the checks of a plan and those that they require, each after the checks that it requires."""
    rules = by_code(engine)

    def requires(code: str) -> list[str]:
        return [other for other in rules[code].requires if plan.wants(other) or not (plan.alone or plan.ignores(other))]

    wanted = filter(plan.wants, [*(code for code in plan.first if code in rules), *rules])
    return [rules[code] for code in requirements_first(wanted, requires)]


def inactive(results: Iterable[CheckResult]) -> bool:
    """Return True if the plugin acted in too few checks for a meaningful result.

    This is the case if all checks that need an active plugin were skipped for lack of action. It is also the case if
    most bookkeeping checks of any host were.
    """
    results = list(results)
    if not any(result.never_active for result in results):
        return False
    needing = [result for result in results if by_code()[result.code].needs_action]
    if all(result.status in ("skipped", "blocked") for result in needing):
        return True
    for host in {result.host for result in needing}:
        held = [result for result in needing if result.host == host and result.code.startswith(BOOKKEEPING)]
        silent = sum(result.never_active for result in held)
        acted = sum(result.status not in ("skipped", "blocked") for result in held)
        if silent > MOST_SILENT * acted:
            return True
    return False


def one_report_each(results: Sequence[CheckResult], announced: Collection[str] = ()) -> tuple[CheckResult, ...]:
    """Report each exception of the plugin, and each state at fault, once: by the first of these results that met it.

    Other failures with this root, failures that a suspect explains, and the results that they block, become blocked by
    that check. ``results`` are in the order of a whole run, independent of the order of execution. Checks that are
    ``announced`` to fail explain no other failure.
    """
    failed = [result for result in results if result.status == "failed"]  # advice must not hide a failure
    of_host = {(result.code, result.host): result for result in failed}
    first: dict[tuple[str, str], str] = {}
    roots: dict[tuple[str, str], str] = {}
    for result in failed:
        met = result.finding.root if result.finding else None
        # A row that is not to be edited has its own reason, whatever the edits of other rows are.
        suspects = () if result.finding and result.finding.of_stranger else by_code()[result.code].suspects
        for code in suspects:
            suspect = of_host.get((code, result.host))
            if code not in announced and suspect and suspect.finding and (met is None or met == suspect.finding.root):
                roots[result.code, result.host] = code
        if met and (result.code, result.host) not in roots:
            first.setdefault(met, result.code)
        raised = result.finding.where.get("raised in") if result.finding else None
        if met and raised and result.finding:  # the state at fault has another line than the exception
            first.setdefault((result.finding.exception, str(Path(met[1]).with_name(raised))), result.code)
    for result in results:
        met = result.finding.root if result.finding else None
        suspects = by_code()[result.code].suspects if result.finding and result.finding.of_stranger else ()
        if met in first and first[met] not in (result.code, *suspects):
            roots.setdefault((result.code, result.host), first[met])

    def explained(code: str, host: str) -> set[str]:
        on = [other for failing, other in of_host if failing == code and ("" in (host, other) or host == other)]
        return {roots.get((code, other), code) for other in on or [host]}

    def reported(result: CheckResult) -> CheckResult:
        root = roots.get((result.code, result.host))
        if root is None and result.status != "blocked":
            return result
        codes = {root for code in result.roots for root in explained(code, result.host)}
        if root is None and codes == result.roots:
            return result
        return CheckResult(
            result.code, result.name, result.host, "blocked", NEEDS + ", ".join(sorted({root} if root else codes))
        )

    return tuple(map(reported, results))


def dependents(code: str) -> list[str]:
    """Codes of the checks that need ``code`` to pass, directly or through others."""
    checks = by_code()
    return [
        other
        for other in checks
        if other != code and code in requirements_first([other], lambda needing: checks[needing].requires)
    ]


def turning_off(check: type[Rule]) -> str:
    """Return the defects that a project no longer sees if it ignores the check, or expects it to fail."""
    others = dependents(check.code)
    if not others:
        return f"Ignoring {check.code} hides only this rule; no other check depends on it."
    named = [*others[:MOST_NAMED], *([f"{len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else [])]
    return (
        f"With {check.code} ignored, checks that depend on it still run, and may report the same fault in other "
        f"words. While it fails, even as an expected failure, they do not run: {', '.join(named)}."
    )
