"""The result of a check from what it raises."""

from __future__ import annotations

import pytest
from lpkit_conformance.checks.base import Check, judge
from lpkit_conformance.results import Failed, Finding
from lpkit_conformance.subject.subject import Subject


class Advice(Check):
    """Something is advised."""

    code, name, tier = "LP999", "advised", "advice"

    def run(self, subject: Subject) -> str | None:
        return None


class Optional(Advice):
    """Something is advised for engines with an option."""

    option = "--rarely-used"


@pytest.mark.parametrize(
    ("check", "exception", "status"),
    [
        (Advice, "", "advice"),
        (Advice, "KeyError", "failed"),
        (Optional, "KeyError", "advice"),
        (Optional, "", "advice"),
    ],
)
def test_an_exception_fails_unless_the_engine_needs_an_option_for_it(
    check: type[Advice], exception: str, status: str
) -> None:
    def run() -> str | None:
        raise Failed(Finding("wrong", exception=exception))

    result = judge(check, "v1", run)
    assert result.status == status
    assert result.finding is not None and ("--rarely-used" in result.finding.where.values()) == bool(check.option)
