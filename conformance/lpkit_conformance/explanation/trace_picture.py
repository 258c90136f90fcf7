"""The picture and the timeline of a recorded trace: what the programs of other findings have, read off the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lpkit_conformance.explanation.picture import Frame, argument_text
from lpkit_conformance.explanation.steps import rows_of
from lpkit_conformance.explanation.timeline import with_batch
from lpkit_conformance.hosts import Observation
from lpkit_conformance.hosts.recorded import TraceHost
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.subject import Subject


def pictured(
    finding: Finding, subject: Subject, host: TraceHost, seen: Sequence[Observation], culprit: tuple[int, str] | None
) -> Finding:
    """The finding with the batch drawn up to the row that differs, or to the last step before an exception."""
    frames = [_frame(item, host.places[item.step]) for item in seen]
    if culprit is not None:
        frames = [frame for frame in frames if frame.step <= culprit[0]]
    if not frames:
        return finding
    variants = {name: active.variant for name, active in host.requests.items()}
    arguments = {name: argument_text(subject, variant) for name, variant in variants.items()}
    ops = list(_ops(frames, variants))
    rows = rows_of(subject, host.requests, seen, culprit) if culprit else ()
    return with_batch(finding, subject, frames, ops, arguments, culprit, frames[0].step, rows)


def _frame(seen: Observation, places: Mapping[str, int]) -> Frame:
    tokens = {item.request: item.position for item in reversed(seen.rows)}
    prefills = {item.request for item in seen.rows if item.discarded}
    prefills -= {item.request for item in seen.rows if not item.discarded}
    positions = {place: request for request, place in places.items()}
    return Frame(seen.step, positions, frozenset(prefills), tokens)


def _ops(frames: Sequence[Frame], variants: Mapping[str, int | None]) -> Iterator[Op]:
    """Derive the operations from who is present: a step per number, without tokens where nothing was applied."""
    last = {request: frame.step for frame in frames for request in frame.positions.values()}
    here: set[str] = set()
    seen: set[str] = set()
    number = frames[0].step - 1
    for frame in frames:
        now = set(frame.positions.values())
        for request in sorted(here - now):
            yield Preempt(request) if last[request] > frame.step else Finish(request)
        for request in (name for name in frame.positions.values() if name not in here):
            yield Resume(request) if request in seen else Arrive(request, variants[request])
        for _ in range(number + 1, frame.step):
            yield Idle()
        yield Step()
        here, seen, number = now, seen | now, frame.step
