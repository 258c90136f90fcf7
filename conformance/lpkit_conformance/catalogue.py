"""Every check there is: by code and family, what depends on what, and what a run without an active plugin is.

Importing this module loads no check, and so no torch; asking for them does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from lpkit_conformance.checks.base import Engine, Rule
from lpkit_conformance.index import ROOMS, index
from lpkit_conformance.results import CheckResult
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

QUICK = ("LP001", "LP101", "LP202", "LP203", "LP205", "LP301", "LP601", "LP802", "LP803", "LP231")
"""What ``lpkit check --quick`` runs: cheap checks of the mistakes that are made most."""

MOST_NAMED = 8

BOOKKEEPING = "LP2"
MOST_SILENT = 2
"""Checks of the bookkeeping that never saw the plugin act, for each one that did."""


def _modules(engine: Engine | None) -> Iterator[ModuleType]:
    """The modules of checks that run on ``engine``, named by their families; a family may have several."""
    for name, runs_on in ROOMS.items():
        if engine in (None, runs_on):
            room = import_module(f"{__package__}.{name}")
            for module in iter_modules(room.__path__):
                if module.name.startswith("lp"):
                    yield import_module(f"{room.__name__}.{module.name}")


def _checks_in(module: ModuleType) -> Iterator[type[Rule]]:
    """The checks that a module defines; those it imports, and bases without a code, are not its own."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__:
            yield from [value] if "code" in vars(value) else []


@cache
def by_code(engine: Engine | None = None) -> dict[str, type[Rule]]:
    """The checks that run on ``engine``, None: every one, by their codes and in the order of these.

    Raises:
        ValueError: if two checks have one code, or some require each other.
    """
    found: dict[str, type[Rule]] = {}
    for check in (check for module in _modules(engine) for check in _checks_in(module)):
        if check.code in found:
            raise ValueError(f"{check.code} is taken by {found[check.code].__qualname__}")
        found[check.code] = check
    requirements_first(found, lambda code: found[code].requires)
    return dict(sorted(found.items()))


def requirements_first(codes: Iterable[str], requires: Callable[[str], Iterable[str]]) -> list[str]:
    """The codes and those that they require, directly or through others; each after the ones it requires.

    Raises:
        ValueError: if some require each other, in a circle.
    """
    found: dict[str, None] = {}

    def visit(code: str, path: tuple[str, ...]) -> None:
        if code in path:
            raise ValueError(f"checks require each other: {' -> '.join([*path[path.index(code) :], code])}")
        if code not in found:
            for other in requires(code):
                visit(other, (*path, code))
            found[code] = None

    for code in codes:
        visit(code, ())
    return list(found)


def all_checks(engine: Engine | None = "reference") -> list[type[Rule]]:
    """The checks that run on ``engine``, by code; None: on any."""
    return list(by_code(engine).values())


def chosen(plan: Plan, engine: Engine = "reference") -> list[type[Rule]]:
    """The checks of a plan and those that they require, each after the ones it requires."""
    known = by_code(engine)

    def requires(code: str) -> list[str]:
        return [other for other in known[code].requires if plan.wants(other) or not (plan.alone or plan.ignores(other))]

    wanted = filter(plan.wants, [*(code for code in plan.first if code in known), *known])
    return [known[code] for code in requirements_first(wanted, requires)]


def inactive(results: Iterable[CheckResult]) -> bool:
    """Whether too few checks saw the plugin act to mean anything.

    That is so if every check that needs an active plugin was skipped for want of action, or, on any of the hosts, most
    of those that hold the bookkeeping.
    """
    results = list(results)
    if not any(result.never_active for result in results):
        return False
    needing = [result for result in results if index()[result.code].needs_action]
    if all(result.status in ("skipped", "blocked") for result in needing):
        return True
    for host in {result.host for result in needing}:
        held = [result for result in needing if result.host == host and result.code.startswith(BOOKKEEPING)]
        silent = sum(result.never_active for result in held)
        acted = sum(result.status not in ("skipped", "blocked") for result in held)
        if silent > MOST_SILENT * acted:
            return True
    return False


def dependents(code: str) -> list[str]:
    """Codes of the checks that need ``code`` to pass, directly or through others."""
    known = by_code()
    return [
        other
        for other in known
        if other != code and code in requirements_first([other], lambda needing: known[needing].requires)
    ]


def turning_off(check: type[Rule]) -> str:
    """What a project no longer sees if it ignores the check, or expects it to fail."""
    others = dependents(check.code)
    if not others:
        return f"Ignoring {check.code} hides only this rule; no other check depends on it."
    named = [*others[:MOST_NAMED], *([f"{len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else [])]
    return (
        f"With {check.code} ignored, checks that depend on it still run, and may report the same fault in other "
        f"words. While it fails, even as an expected failure, they do not run: {', '.join(named)}."
    )
