"""LP2, continued: several hazards at once, generated, recorded, and of engines other than vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lpkit_conformance import traces
from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import (
    Subject,
    beams,
    calls,
    compare,
    findings,
    parts,
    recorded,
    rules,
    solo,
    speculation,
    trace_picture,
)
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Finish, Preempt, Program, Resume, Step, Swap, program, soak
from lpkit_conformance.results import Failed, NeverActive, Skipped
from lpkit_conformance.settings.hosts import EXPORT
from lpkit_conformance.traces.patterns import RECORDED, TELLING, TELLING_TRACES


class LP219(LadderCheck):
    """Random mixtures of batch changes work.

    Long random mixtures of arrivals, departures, preemptions, moves, swaps, partial prefills and idle steps. Several
    cases share the mixtures.

    Why: some defects appear only after a combination of changes.

    Fix: the operations shown are the smallest failing sequence that was found; step through them by hand.
    """

    code, name, shared = "LP219", "soak", False
    requires = tuple(f"LP{code}" for code in range(201, 215))

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "departures, an arrival, moves and swaps in one update",
            mixed_arrivals(8),
            Step(),
            [*(Finish(f"r{i}") for i in (0, 2, 3, 7)), Arrive("x", 1), Swap(0, 1), Swap(1, 3), Swap(2, 4), Swap(0, 2)],
            Step(2),
        )
        strangers = [[Finish(f"y{i}"), Arrive(f"y{i + 1}", None, character="y"), Step()] for i in range(3)]
        yield program(
            "strangers take turns, then a user comes",
            [Arrive("a", 0), Arrive("y0", 1), Step()],
            *strangers,
            [Finish("y3"), Arrive("b", 0), Step(2)],
        )
        soaks = [soak(subject.setup.seed * 100 + n) for n in range(3)]
        yield from subject.setup.share([*soaks, soak(subject.setup.seed * 100 + 50, steps=25, max_num_seqs=48)])


class LP220(Check):
    """Recorded engine traces give correct results.

    The batch updates and rows of real vLLM runs are replayed, with their drafts and placeholders. In each trace a
    mixture of requests uses the plugin. The most revealing traces are also replayed with every second request. Several
    cases take turns.

    Why: the generated programs model vLLM; the traces were recorded from it.

    Fix: look up the update by the trace and step shown; docs/explanation/traces.md explains the format.
    """

    code, name, method = "LP220", "recorded-traces", STATE
    replays = True
    requires = ("LP219", "LP501", "LP802", "LP804")
    needs_action = True

    def run(self, subject: Subject) -> str | None:
        alone = solo.solo_runs(subject)
        acted = False
        replays = self._replays(subject)
        if not replays:
            raise Skipped(f"no trace was recorded for {subject.setup.interface.upper()}")
        loaded = {name: traces.load(name) for name in replays}
        drafting = any(trace.settings.get("speculative_config") for trace in loaded.values())
        if drafting and not speculation.speculating(subject):
            loaded = {name: trace for name, trace in loaded.items() if "speculative_config" not in trace.settings}
            if not loaded:
                raise Skipped("the constructor refuses drafts")
        played = [(trace, pattern) for name, trace in loaded.items() for pattern in replays[name]]
        lengths = recorded.reached(subject, played)
        for name, trace in loaded.items():
            for pattern in replays[name]:
                where = {"trace": name, "pattern": pattern}
                scenario = {**findings.settings_of(subject), **where}
                host = parts.parts_of(subject.setup.host).recorded(subject, trace, pattern)
                seen: list[calls.Observation] = []
                try:
                    seen.extend(host.run())
                    acted |= alone.prepare(host.requests, lengths)
                except calls.PluginError as error:
                    finding = replace(findings.raised(subject.plugin.cls, error), where=where, scenario=scenario)
                    raise Failed(trace_picture.pictured(finding, subject, host, seen, None)) from error
                if pattern == RECORDED:
                    rules.judge_replay(seen, where, scenario)
                for observation in seen:
                    mismatch = compare.compare(observation, alone)
                    if mismatch is not None:
                        finding = replace(findings.departure(mismatch, where), scenario=scenario)
                        if mismatch.kind == "stale":  # no experiment has shown what it is left of
                            key = "user" if host.requests[mismatch.request].variant is not None else "stranger"
                            finding = replace(finding, cause=advice.cause(key, self.code))
                        if _set_apart_by_drafts(subject, host, seen, mismatch):
                            line = findings.at_fault(subject, "apply")
                            fix = advice.fix("drafts", *findings.readers_of(subject))
                            finding = replace(finding, fix=fix, location=line)
                        culprit = (mismatch.step, mismatch.request)
                        raise Failed(trace_picture.pictured(finding, subject, host, seen, culprit))
        if not acted:
            raise NeverActive
        return f"{sum(len(replays[name]) for name in loaded)} replays of {len(loaded)} traces"

    @staticmethod
    def _replays(subject: Subject) -> dict[str, Sequence[str]]:
        """Return traces with their patterns: one pattern for each trace, more for the most revealing traces.
        Cases take turns."""
        if subject.setup.trace is not None:
            return {subject.setup.trace[0]: subject.setup.trace[1:]}
        telling = subject.setup.share(TELLING)
        every = telling[:1] if subject.setup.turn[0] == 0 else ()
        chosen = {name: telling if name in TELLING_TRACES else every for name in traces.names(subject.setup.interface)}
        return {name: patterns for name, patterns in chosen.items() if patterns}


def _set_apart_by_drafts(
    subject: Subject, host: recorded.TraceHost, seen: Sequence[calls.Observation], mismatch: compare.Mismatch
) -> bool:
    """Return True if the request had drafts, and no state that the author keeps was another request's before."""
    drafted = any(row.request == mismatch.request and row.local for item in seen for row in item.rows)
    before = (places.items() for step, places in host.places.items() if step <= mismatch.step)
    place = host.places[mismatch.step][mismatch.request]
    others = {name for items in before for name, at in items if at == place} - {mismatch.request}
    return drafted and (not others or findings.style_of(subject.plugin.cls, subject.setup.host) != "raw")


class LP231(LadderCheck):
    """Rows may be copies of other rows, and hold tokens that the plugin forbids.

    With beams an engine copies a row and continues it with another token, even a masked token. Rows have no names and
    change their order at each step. A finished row stays in the batch, filled up with padding. Drafts are shown and
    taken back. lpkit identifies a row by its tokens, and adds the others as requests with output tokens.

    Why: on vLLM a row holds tokens that the plugin allowed, so a rule may look them up in its own tables. In
    transformers, SGLang or mlx-lm the same lookup raises, and ends the generation of every row.

    Fix: handle any token; leave a row unchanged if the rule cannot continue its tokens.
    """

    code, name, hosts = "LP231", "beams-and-drafts", (EXPORT,)
    quick = "first"
    requires = ("LP101", "LP301", "LP201", "LP202", "LP204", "LP210", "LP211")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "comings and goings",
            mixed_arrivals(5),
            Step(4),
            [Finish("r0"), Preempt("r1"), Arrive("x", 2)],
            Step(3),
            [Resume("r1"), Arrive("y", None, 6), Arrive("x2", twin_of="x")],
            Step(6),
        )
        growing = [*mixed_arrivals(3), Step(3), *mixed_arrivals(12, start=3), Step(3)]
        yield program("the batch grows", growing, max_num_seqs=16)
        later = [Arrive("b", twin_of="a"), Arrive("c", 0), Step(8)]
        yield program("a second call", Arrive("a", 0), Step(16), Finish("a"), Step(2), later)

    def host(self, subject: Subject, max_num_seqs: int) -> beams.BeamsHost:
        return beams.BeamsHost(subject, max_num_seqs)

    def run(self, subject: Subject) -> str | None:
        try:
            return super().run(subject)
        except Failed as failure:
            # Its bookkeeping is right, as the checks that this one requires have shown.
            raise Failed(replace(failure.finding, cause=advice.cause("elsewhere", self.code), fix="")) from None
