"""The runs of a pair that all of its checks judge, and findings that name both plugins."""

from __future__ import annotations

from dataclasses import replace

from lpkit_conformance.checks.together.both import Run, RunRow, carry_out
from lpkit_conformance.checks.together.pair import BOTH, Pair
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.findings import method_location, raised
from lpkit_conformance.results import Failed, Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.memo import fact

ORDERS = ((0, 1), (1, 0))
"""In which the two can be loaded."""


@fact
def both_orders(pair: Pair) -> tuple[Run, Run]:
    """Return the program with both plugins, in either order of loading."""
    return carry_out(pair, ORDERS[0]), carry_out(pair, ORDERS[1])


def judged(pair: Pair, run: Run) -> Run:
    """Return the run; fail if a plugin raised."""
    if run.failure is None:
        return run
    plugin, other = pair.plugins[run.current], pair.plugins[1 - run.current]
    finding = raised(plugin.cls, run.failure)
    finding = replace(
        finding,
        summary=f"{plugin.name} beside {other.name}: {finding.summary}",
        where={"loaded": in_order(pair, run), "arguments": pair.arguments(BOTH[0]), **finding.where},
    )
    if carry_out(pair, (run.current,)).failure:
        cause = advice.cause("alone", "together").format(other=other.name)
        finding = replace(finding, cause=cause, fix=advice.fix("alone", "together").format(name=plugin.name))
    raise Failed(finding)


def located(pair: Pair, there: RunRow, which: int, finding: Finding) -> Failed:
    """A failure with both plugins, the request and its arguments; ``which`` is to blame."""
    where = {
        "loaded": in_order(pair, there.run),
        "request": there.row.request,
        "arguments": pair.arguments(there.variant),
        "step": str(there.seen.step),
        **finding.where,
    }
    return Failed(replace(finding, where=where, location=finding.location or location_of(pair, which, "apply")))


def in_order(pair: Pair, run: Run) -> str:
    """The plugins as a list of what is loaded."""
    return ", ".join(pair.plugins[which].name for which in run.order)


def location_of(pair: Pair, which: int, method: str = "") -> str:
    """Return ``file:line`` of a plugin's method, by default of the method that receives requests."""
    return method_location(pair.plugins[which].cls, method or HOSTS[pair.setup.host].told_by)
