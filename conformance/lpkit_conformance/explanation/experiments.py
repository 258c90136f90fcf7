"""The table of experiments, each of which proves one cause of a failure, and the line that each blames."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import (
    MakeHost,
    blank_slots,
    declaring_tokens,
    exchanged,
    hiding_outputs,
    in_order,
    keeping_objects,
    sparing_buffers,
    users_at_once,
    with_equal_arguments,
    with_equal_lengths,
    with_equal_totals,
    with_first_lists,
    with_own_parameters,
    with_rows_mapped,
    with_swaps_apart,
    without_drafts,
)
from lpkit_conformance.explanation.findings import (
    Style,
    declaration,
    kept_buffer,
    line_of_moves,
    makes_one,
    method_location,
    readers_of,
    reading_line,
    style_of,
)
from lpkit_conformance.explanation.hazards import CHANGES, Hazard, hazards
from lpkit_conformance.explanation.instances import in_its_place
from lpkit_conformance.explanation.row_values import SOLO, Apart
from lpkit_conformance.explanation.scenes import Culprit, Scene
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Program
from lpkit_conformance.results import Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1, V2


@dataclass(frozen=True)
class Reproduction:
    """A small program that fails, and what decides which experiments apply to it.

    Attributes:
        mismatch: the row that differs.
        finding: the evidence.
        line: ``file:line`` that edited the row.
        culprit: the state at fault, if some is.
        apart: the first difference from the solo run, if there is one.
        judged: the only request that has to be right; empty: all have to.
    """

    subject: Subject
    make_host: MakeHost
    program: Program
    mismatch: Mismatch
    finding: Finding
    line: str
    culprit: Culprit | None
    apart: Apart | None
    judged: str = ""

    @property
    def request(self) -> str:
        return self.mismatch.request

    @property
    def ops(self) -> Sequence[Op]:
        return self.program.ops

    @property
    def interface(self) -> str:
        return self.subject.setup.interface

    @cached_property
    def style(self) -> Style:
        return style_of(self.subject.plugin.cls, self.subject.setup.host)

    @cached_property
    def hazards(self) -> set[Hazard]:
        return hazards(self.ops, self.interface, self.program.max_num_seqs)

    @property
    def uses(self) -> bool:
        """True if the request whose row differs uses the plugin."""
        return any(isinstance(op, Arrive) and op.request == self.request and op.variant is not None for op in self.ops)

    @property
    def mixes(self) -> bool:
        """True if other requests' values may be taken for the row's own: no state of a row is known to hold them."""
        return not (self.culprit and self.culprit.stored) and not (self.apart and self.apart.kind == "asked")

    @property
    def pads(self) -> bool:
        """True if the padding behind the row's own values may be taken for values."""
        return self.mixes and self.style != "adapter" and not (self.culprit and self.culprit.holder)

    @property
    def by_slot(self) -> bool:
        """True if a value of another slot may be taken for that of the row, which keeps its slot."""
        return self.style == "raw" and self.interface == V2 and self.mixes and not self.hazards & CHANGES

    def judging(self, request: str, *programs: Sequence[Op]) -> list[Reproduction]:
        """Return the same of a single request, with each of these programs; none if one of them is empty."""
        return [replace(case, judged=request) for case in self.doing(*programs)] if all(programs) else []

    def doing(self, *programs: Sequence[Op]) -> list[Reproduction]:
        """Return the same with each of these programs; an empty one is none."""
        return [replace(self, program=replace(self.program, ops=tuple(ops))) for ops in programs if ops]


@dataclass(frozen=True)
class Experiment:
    """One cause of a failure.

    Attributes:
        cause, fix: keys of ``advice.toml``; without a key, the finding stays as it is.
        applies: True if the failure may have this cause.
        change: the failure with one thing changed in its subject, host or operations. All of these runs must pass, and
            there must be one. None: nothing needs to be run.
        blames: ``file:line`` at fault, unless other state is, and the name of the state; empty where it tells none.
        rules: True if this is the line, whatever wrote the state.
        alone: True if the row of the solo run is the wrong one: the finding's sides change, and no state is at fault.
    """

    applies: Callable[[Reproduction], object]
    change: Callable[[Reproduction], Sequence[Reproduction]] | None = None
    cause: str = ""
    fix: str = ""
    blames: Callable[[Reproduction], tuple[str, str]] = lambda case: ("", "")
    rules: bool = False
    alone: bool = False


def _reported(case: Reproduction) -> tuple[str, str]:
    """Return the method that gets new requests, or what the author wrote for it."""
    return method_location(case.subject.plugin.cls, HOSTS[case.subject.setup.host].told_by), ""


def _equal_and(case: Reproduction, request: str, *programs: Sequence[Op]) -> list[Reproduction]:
    """Return the same with equal arguments, and with these programs for one request; none if one is empty."""
    judged = case.judging(request, *programs)
    return judged and [*case.doing(with_equal_arguments(case.ops, case.request)), *judged]


def _others(case: Reproduction) -> list[Reproduction]:
    """Return the same with equal arguments, and for the only other request as it is and in another order."""
    others = [op.request for op in users_at_once(case.ops) if op.request != case.request]
    reordered = exchanged(case.ops, case.request, 0) or exchanged(case.ops, case.request, -1)
    return _equal_and(case, others[0], case.ops, reordered) if len(others) == 1 else []


def _optional(case: Reproduction) -> bool:
    """True if the state is left to the next request because a condition on the arguments does not hold."""
    culprit = case.culprit
    if not culprit or not culprit.line or "replace" not in case.hazards or case.hazards & {"swap", "move"}:
        return False
    file, _, number = culprit.line.rpartition(":")
    test = linecache.getline(file, int(number)).strip()
    return case.uses and test.startswith(("if ", "elif ")) and culprit.name.partition("[")[0] not in test


RETURNS: Final[frozenset[Hazard]] = frozenset({"drafts", "resume", "twins", "prefill"})
"""After which a request has another history or object than before; they have fixes of their own."""

EXPERIMENTS: Final = (
    Experiment(
        cause="copied-list",
        fix="copied-list",
        alone=True,
        applies=lambda case: case.style == "raw" and case.interface == V1 and "resume" in case.hazards,
        change=lambda case: [replace(case, make_host=with_first_lists(case.make_host))],
    ),
    Experiment(
        cause="placeholders",
        fix="placeholders",
        applies=lambda case: case.style == "adapter",
        change=lambda case: [replace(case, subject=subject) for subject in declaring_tokens(case.subject)],
        blames=lambda case: (declaration(case.subject.plugin.cls, "history"), ""),
    ),
    Experiment(
        cause="same-callable",
        fix="company",
        applies=lambda case: case.style == "adapter" and "company" in case.hazards and makes_one(case.subject),
    ),
    Experiment(
        cause="by-address",
        fix="by-address",
        applies=lambda case: any(isinstance(op, Finish) for op in case.ops),
        change=lambda case: [replace(case, make_host=keeping_objects(case.make_host))],
    ),
    Experiment(
        cause="too-early",
        fix="too-early",
        applies=lambda case: case.style == "raw" and case.interface == V2,
        change=lambda case: [replace(case, make_host=blank_slots(case.make_host))],
        blames=_reported,
    ),
    Experiment(
        cause="kept-buffer",
        fix="kept-buffer",
        applies=lambda case: case.style == "raw" and case.interface == V2,
        change=lambda case: [replace(case, make_host=sparing_buffers(case.make_host))],
        blames=lambda case: kept_buffer(case.make_host(case.subject, case.program.max_num_seqs)),
    ),
    Experiment(
        cause="behind",
        fix="behind",
        applies=lambda case: case.style == "raw" and case.interface == V2 and "replace" in case.hazards,
        change=lambda case: [replace(case, make_host=blank_slots(case.make_host, for_good=True))],
        blames=lambda case: reading_line(case.subject.plugin.cls, "all_token_ids"),
        rules=True,
    ),
    Experiment(
        cause="prefill-as-prompt",
        fix="prefill-as-prompt",
        applies=lambda case: case.style == "raw" and case.interface == V2 and "resume" in case.hazards,
        change=lambda case: [replace(case, make_host=hiding_outputs(case.make_host))],
        blames=_reported,
    ),
    Experiment(
        cause="size",
        fix="size",
        applies=lambda case: not case.culprit and "alone" in case.hazards and case.program.max_num_seqs > SOLO,
        change=lambda case: [replace(case, program=replace(case.program, max_num_seqs=SOLO))],
    ),
    Experiment(
        cause="padding",
        fix="padding",
        applies=lambda case: case.pads,
        change=lambda case: case.doing(with_equal_lengths(case.subject, case.ops)),
    ),
    Experiment(
        cause="histories",
        fix="histories",
        applies=lambda case: case.pads,
        change=lambda case: case.doing(with_equal_totals(case.ops, case.request)),
    ),
    Experiment(
        cause="rows-of-before",
        fix="move",
        applies=lambda case: case.by_slot,
        change=lambda case: [replace(case, make_host=in_order(case.make_host, first)) for first in (1, 2, 3)],
    ),
    Experiment(
        cause="by-row",
        fix="move",
        applies=lambda case: case.by_slot,
        change=lambda case: [replace(case, make_host=in_order(case.make_host), judged=case.request)],
    ),
    Experiment(
        cause="reduces",
        fix="reduces",
        applies=lambda case: case.mixes and case.apart and case.apart.mixes,
    ),
    Experiment(
        cause="stored",
        fix="stored",
        applies=lambda case: case.culprit.stored if case.culprit else case.apart and case.apart.kind == "way",
        change=lambda case: _equal_and(case, case.request, exchanged(case.ops, case.request, 0)),
    ),
    Experiment(
        cause="first",
        fix="single",
        applies=lambda case: case.mixes,
        change=lambda case: _equal_and(case, case.request, exchanged(case.ops, case.request, 0)),
    ),
    Experiment(
        cause="last",
        fix="single",
        applies=lambda case: case.mixes,
        change=lambda case: _equal_and(case, case.request, exchanged(case.ops, case.request, -1)),
    ),
    Experiment(
        cause="extreme",
        fix="single",
        applies=lambda case: case.mixes,
        change=_others,
    ),
    Experiment(
        cause="neighbours",
        fix="company",
        applies=lambda case: case.mixes,
        change=lambda case: case.doing(with_equal_arguments(case.ops, case.request)),
    ),
    Experiment(
        cause="same-object",
        fix="same-object",
        applies=lambda case: "twins" in case.hazards,
        change=lambda case: case.doing(with_own_parameters(case.ops)),
    ),
    Experiment(
        cause="per-request",
        applies=lambda case: case.style == "raw" and case.interface == V2 and "drafts" in case.hazards,
        change=lambda case: [replace(case, make_host=with_rows_mapped(case.make_host))],
        blames=lambda case: reading_line(case.subject.plugin.cls, "idx_mapping"),
        rules=True,
    ),
    Experiment(
        cause="drafts",
        applies=lambda case: not case.culprit and "drafts" in case.hazards,
        change=lambda case: case.doing(without_drafts(case.ops)),
    ),
    Experiment(
        fix="read",
        applies=lambda case: (
            not case.culprit
            and case.apart
            and case.apart.kind != "padded"
            and case.hazards & CHANGES
            and not case.hazards & RETURNS
        ),
    ),
    Experiment(
        fix="order",
        applies=lambda case: case.style == "raw" and case.interface == V1,
        change=lambda case: case.doing(with_swaps_apart(case.ops)),
        blames=lambda case: (line_of_moves(case.subject.plugin.cls), ""),
        rules=True,
    ),
)
"""The first that is proven explains a failure."""


def blamed(case: Reproduction, passes: Callable[[Reproduction], bool]) -> Finding:
    """Return the finding with the line at fault, and with cause and fix where an experiment proves them."""
    if case.apart and case.apart.mixes and case.culprit and not case.culprit.holder and "[" not in case.culprit.name:
        case = replace(case, culprit=None)  # a table of the rows that mix: without the others, any row is right
    proven = next((experiment for experiment in EXPERIMENTS if _proven(experiment, case, passes)), None)
    finding, culprit, readers = case.finding, case.culprit, readers_of(case.subject)
    line, state = proven.blames(case) if proven else ("", "")
    causes = []
    key = ""
    apart = case.apart
    named = culprit and ("[" in culprit.name or culprit.how)
    if apart is not None and apart.kind == "asked" and case.uses and not named:
        line, causes = apart.line, [apart.cause]
        finding = replace(finding, state=apart.name, fix=advice.fix("cache").replace("{name}", apart.name))
    elif culprit is not None:
        line = (line if proven and proven.rules else "") or culprit.line or line
        if not (proven and proven.alone):
            causes.append(culprit.cause(finding.where["request"]))
        finding = replace(finding, state=culprit.name)
        changed = case.hazards & (CHANGES | RETURNS | {"idle", "alone"})
        single = culprit.common and (culprit.holder or (proven and proven.fix == "single"))
        single = single or (culprit.common and not culprit.table and not changed and not culprit.how)
        first = culprit.how == "carried" or (single and proven and proven.cause == "first")
        key = "optional" if _optional(case) else "cache" if first else "common" if single else ""
        if culprit.unwritten and not changed:
            key = "unwritten"
            causes.append(advice.cause(key))
        key = "derived" if culprit.table and case.hazards & CHANGES and case.style == "raw" else key
        if key:
            finding = replace(finding, fix=advice.fix(key, *readers).replace("{name}", culprit.name))
    elif apart is not None and (case.uses or apart.kind != "asked"):
        line, causes = line or apart.line, [apart.cause]
        finding = replace(finding, state=apart.name if apart.kind in ("read", "held") else "")
        if fix := {"held": "scratch", "padded": "padding"}.get(apart.kind):
            finding = replace(finding, fix=advice.fix(fix).replace("{name}", apart.name))
    if proven is not None and proven.cause and key != "common" and not (apart is not None and apart.kind == "padded"):
        causes.append(advice.cause(proven.cause).replace("{call}", apart.mixes if apart else ""))
    if proven is not None and proven.alone:
        summary = (
            f"request {finding.where['request']} does not follow its output: it got other logits once it had resumed"
        )
        finding = replace(finding, summary=summary, expected=finding.got, got=finding.expected)
    if proven is not None and proven.fix and not (culprit and culprit.common and proven.fix in ("single", "company")):
        finding = replace(finding, fix=advice.fix(proven.fix, *readers))
    cause = "; ".join(causes) or finding.cause
    finding = replace(finding, location=line or case.line, cause=cause, state=finding.state or state)
    return _neutral(case, finding) if cause == advice.cause("stray") else finding


def _neutral(case: Reproduction, finding: Finding) -> Finding:
    """Return the finding with the number in a table that leaves the row as it was, if there is one."""
    at = case.subject, case.ops, case.program.max_num_seqs, case.mismatch, case.make_host, in_its_place
    if found := Scene(*at, lambda host, seen, row: seen.before[row]).neutral():
        words = dict(zip(("name", "value", "number"), found, strict=True))
        cause, fix = (text("neutral").format(**words) for text in (advice.cause, advice.fix))
        return replace(finding, cause=cause, fix=fix, state=found[0])
    return finding


def _proven(experiment: Experiment, case: Reproduction, passes: Callable[[Reproduction], bool]) -> bool:
    if not experiment.applies(case):
        return False
    if experiment.change is None:
        return True
    runs = experiment.change(case)
    return bool(runs) and all(map(passes, runs)) and not passes(case)
