"""What can be told about a check beyond its docstring: for ``lpkit explain`` and the generated pages."""

from __future__ import annotations

from lpkit_conformance.check import REGISTRY, Check, all_checks

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


def every_check() -> list[type[Check]]:
    """All checks there are, on whatever they run, by code."""
    all_checks()
    return [REGISTRY[code] for code in sorted(REGISTRY)]


def dependents(code: str) -> list[str]:
    """Codes of the checks that need ``code`` to pass, directly or through others."""
    found = {code}
    pending = True
    while pending:
        more = {check.code for check in every_check() if found & set(check.requires)} - found
        pending = bool(more)
        found |= more
    return sorted(found - {code})


def turning_off(check: type[Check]) -> str:
    """What is no longer seen when the check is ignored, or failing is what its project expects."""
    others = dependents(check.code)
    if not others:
        return f"Ignoring {check.code} hides this rule and nothing else; no other check builds on it."
    named = [*others[:MOST_NAMED], *([f"{len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else [])]
    return (
        f"With {check.code} ignored, checks that build on it run without it and may report the same fault in other "
        f"words. While it fails, also when its project expects that, they do not run: {', '.join(named)}."
    )
