"""What ``lpkit replay`` tells about a failure that ran again."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.failures import Failure, Outcome
from lpkit_conformance.report.terminal import one_line
from lpkit_conformance.report.text import check_lines, headline
from lpkit_conformance.results import TargetResult


def lines(failure: Failure, result: TargetResult, outcome: Outcome) -> Iterator[str]:
    """The evidence, if it still fails, and the verdict."""
    yield headline(result)
    label = f"{failure.code}[{failure.host}]"
    if outcome == "fixed":
        yield f"FIXED  {label} passes these operations now; `lpkit check` runs all of them"
        return
    for check in result.checks:
        yield ""
        yield from check_lines(check)
    if result.error:
        yield f"  could not judge: {one_line(result.error)}"
    yield ""
    yield f"{'STILL FAILING' if outcome == 'failing' else 'ERROR'}  {label}"
