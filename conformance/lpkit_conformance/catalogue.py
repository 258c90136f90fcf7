"""Every check there is: by code and family, what depends on what, and what a run without an active plugin is.

Importing this module loads no check, and so no torch; asking for them does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from lpkit_conformance.checks.base import Check, Engine
from lpkit_conformance.results import CheckResult

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


def _modules() -> Iterator[ModuleType]:
    """The modules of checks, named by their families; a family may have several."""
    from lpkit_conformance import checks, engine_checks

    for room in (checks, engine_checks):
        for module in iter_modules(room.__path__):
            if module.name.startswith("lp"):
                yield import_module(f"{room.__name__}.{module.name}")


def _checks_in(module: ModuleType) -> Iterator[type[Check]]:
    """The checks that a module defines; those it imports, and bases without a code, are not its own."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Check) and value.__module__ == module.__name__:
            yield from [value] if "code" in vars(value) else []


@cache
def by_code() -> dict[str, type[Check]]:
    """Every check, by its code, in the order of the codes."""
    found: dict[str, type[Check]] = {}
    for check in (check for module in _modules() for check in _checks_in(module)):
        if check.code in found:
            raise ValueError(f"{check.code} is taken by {found[check.code].__qualname__}")
        found[check.code] = check
    return dict(sorted(found.items()))


def all_checks(engine: Engine | None = "reference") -> list[type[Check]]:
    """The checks that run on ``engine``, by code; None: on any."""
    return [check for check in by_code().values() if engine in (None, check.engine)]


def inactive(results: Iterable[CheckResult]) -> bool:
    """Whether every check that needs an active plugin was skipped for want of action."""
    results = list(results)
    if not any(result.never_active for result in results):
        return False  # without loading the checks
    needing = (result for result in results if by_code()[result.code].needs_action)
    return all(result.status in ("skipped", "blocked") for result in needing)


def dependents(code: str) -> list[str]:
    """Codes of the checks that need ``code`` to pass, directly or through others."""
    found = {code}
    pending = True
    while pending:
        more = {check.code for check in all_checks(None) if found & set(check.requires)} - found
        pending = bool(more)
        found |= more
    return sorted(found - {code})


def turning_off(check: type[Check]) -> str:
    """What a project no longer sees if it ignores the check, or expects it to fail."""
    others = dependents(check.code)
    if not others:
        return f"Ignoring {check.code} hides only this rule; no other check depends on it."
    named = [*others[:MOST_NAMED], *([f"{len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else [])]
    return (
        f"With {check.code} ignored, checks that depend on it still run, and may report the same fault in other "
        f"words. While it fails, even as an expected failure, they do not run: {', '.join(named)}."
    )
