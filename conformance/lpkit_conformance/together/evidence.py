"""Evidence about a pair, computed once for all of its checks, and findings that name both plugins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from lpkit.runtime import StepRow

from lpkit_conformance.explanation.findings import method_location, raised
from lpkit_conformance.results import Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.together.engines import Moment, RaisedBeside, Run, carry_out, replaced, spied
from lpkit_conformance.together.pair import BOTH, PROGRAM, Pair

ORDERS = ((0, 1), (1, 0))
"""In which the two can be loaded."""


class RunRow(NamedTuple):
    """One row of one step of a run."""

    run: Run
    moment: Moment
    nth: int

    @property
    def row(self) -> StepRow:
        return self.moment.rows[self.nth]

    @property
    def variant(self) -> int | None:
        """The arguments of the row's request."""
        return self.run.requests[self.row.request_id].variant


def run_of(pair: Pair, order: tuple[int, ...]) -> Run:
    """The program with both plugins, loaded in this order."""
    if order not in pair.known:
        pair.known[order] = carry_out(pair, order, PROGRAM, spied(pair))
    found = pair.known[order]
    assert isinstance(found, Run)
    return found


def apart(pair: Pair, run: Run, kept: int, *, edits: bool = True) -> Run:
    """Return the same run with one plugin's recorded results in its place; without ``edits`` the plugin does
    nothing."""
    return carry_out(pair, run.order, PROGRAM, replaced(pair, run, kept, edits=edits), run.tokens)


def places(run: Run, which: int | None = None) -> Iterator[RunRow]:
    """Yield the rows whose results count. Of a plugin: the rows that it received, if its edit is not discarded."""
    for moment in run.moments:
        for index, row in enumerate(moment.rows):
            if row.discarded:
                continue
            if which is None or (which in moment.edits and not run.late(which, row.request_id)):
                yield RunRow(run, moment, index)


def acted(run: Run, which: int) -> bool:
    """Return True if a plugin edited a request that uses both."""
    return any(
        place.variant in BOTH and not torch.equal(*(edit[place.nth] for edit in place.moment.edits[which]))
        for place in places(run, which)
    )


def located(pair: Pair, place: RunRow, which: int, finding: Finding) -> Finding:
    """A finding with both plugins, the request and its arguments; ``which`` is to blame."""
    return replace(
        finding,
        where={
            "loaded": in_order(pair, place.run.order),
            "request": place.row.request_id,
            "arguments": pair.arguments(place.variant),
            "step": str(place.moment.step),
            **finding.where,
        },
        location=finding.location or location_of(pair, which, "apply"),
    )


def in_order(pair: Pair, order: tuple[int, ...]) -> str:
    """The plugins as a list of what is loaded."""
    return ", ".join(pair.plugins[which].name for which in order)


def raised_beside(pair: Pair, run: Run, failure: RaisedBeside) -> Finding:
    """Return the finding that a plugin of the pair raised."""
    plugin, other = pair.plugins[failure.which], pair.plugins[1 - failure.which]
    finding = raised(plugin.cls, failure.error)
    alone = carry_out(pair, (failure.which,), PROGRAM, spied(pair))
    cause = f"it does so without {other.name}, too" if alone.failure else finding.cause
    return replace(
        finding,
        summary=f"{plugin.name} beside {other.name}: {finding.summary}",
        where={"loaded": in_order(pair, run.order), "arguments": pair.arguments(BOTH[0]), **finding.where},
        cause=cause,
        fix=f"see `lpkit check` of {plugin.name}" if alone.failure else finding.fix,
    )


def location_of(pair: Pair, which: int, method: str = "") -> str:
    """Return ``file:line`` of a plugin's method, by default of the method that receives requests."""
    return method_location(pair.plugins[which].cls, method or HOSTS[pair.host].told_by)
