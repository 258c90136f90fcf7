"""The text of ``lpkit replay``: a failure that ran again."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit_conformance.checks.lp9_engine import LP902
from lpkit_conformance.report.terminal import one_line
from lpkit_conformance.report.text import check_lines, headline
from lpkit_conformance.results import NOTHING_PROVEN, TargetResult
from lpkit_conformance.run.failures import Failure, Outcome


def lines(failure: Failure, result: TargetResult, outcome: Outcome, on_engine: bool = False) -> Iterator[str]:
    """Return the evidence, if the failure repeats, and the verdict; ``on_engine``: in a real engine."""
    yield headline(result)
    label = f"{failure.code}[{failure.host}]"
    if on_engine:
        yield from (f"  note: {one_line(note)}" for note in result.notes)
    if outcome == "fixed" and on_engine:
        yield from (f"  {check.code}  {check.message}" for check in result.checks if check.code == LP902.code)
        yield f"PASSED  the requests of {label} get the same logits in a real engine's batch as alone"
        return
    if outcome == "fixed":
        if failure.seen:
            yield f"FIXED  {label} passes these operations now; `lpkit check` runs all of them"
            return
        had = failure.plan.cases[0].fields.get("extra_args")
        arguments = (
            "with the arguments recorded or given" if had else "without arguments, as the trace's requests had none"
        )
        yield (
            f"PASSED  {label} passes these operations {arguments}. The trace has no tokens of the requests, and no "
            "fields like temperature: if they matter, give them as a case"
        )
        return
    if outcome == "silent":
        skipped = [check.message for check in result.checks if check.status == "skipped"]
        reasons = [failure.plan.unproven if reason.startswith(NOTHING_PROVEN) else reason for reason in skipped]
        why = "; ".join(map(one_line, dict.fromkeys(reasons)))
        why = why or "these operations did not fail each time when they were saved"
        yield f"DID NOT REPRODUCE  {label} {NOTHING_PROVEN}{why}. Give --case, or run `lpkit check`"
        return
    for check in result.checks:
        if on_engine and check.status != "failed":
            continue
        yield ""
        yield from check_lines(check)
    if result.error:
        yield f"  could not judge: {one_line(result.error)}"
    yield ""
    verdict = "FAILING IN A REAL ENGINE" if on_engine else "STILL FAILING"
    yield f"{verdict if outcome == 'failing' else 'ERROR'}  {label}"
