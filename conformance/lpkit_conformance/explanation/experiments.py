"""The table of experiments, each of which proves one cause of a failure, and the line that each blames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import (
    MakeHost,
    beside_others,
    blank_slots,
    declaring_tokens,
    hiding_outputs,
    keeping_objects,
    with_first_lists,
    with_own_parameters,
    with_swaps_apart,
    without_drafts,
)
from lpkit_conformance.explanation.culprit import Culprit
from lpkit_conformance.explanation.fault import Fault
from lpkit_conformance.explanation.findings import method_location
from lpkit_conformance.explanation.hazards import CHANGES, Hazard, hazards
from lpkit_conformance.explanation.styles import Style, readers_of, style_of
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Program, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1, V2


@dataclass(frozen=True)
class Reproduction:
    """A small program that fails, and what decides which experiments apply to it.

    Attributes:
        finding: the evidence, with the request whose row differs.
        fault: the result of the second look.
        culprit: the state at fault, if some is.
    """

    subject: Subject
    make_host: MakeHost
    program: Program
    finding: Finding
    fault: Fault
    culprit: Culprit | None

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

    @cached_property
    def neighbours(self) -> tuple[tuple[str, ...], list[list[Op]]]:
        """The arguments that the request shares with its neighbour, and programs with other neighbours."""
        return beside_others(self.subject, self.ops, self.finding.where["request"])

    @property
    def reported(self) -> str:
        """The method that gets new requests, or what the author wrote for it."""
        return method_location(self.subject.plugin.cls, HOSTS[self.subject.setup.host].told_by)

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
        reported: True if the method that gets new requests is at fault, where no line of it is known.
        alone: True if the row of the solo run is the wrong one: the finding's sides change, and no state is at fault.
    """

    applies: Callable[[Reproduction], object]
    change: Callable[[Reproduction], Sequence[Reproduction]] | None = None
    cause: str = ""
    fix: str = ""
    reported: bool = False
    alone: bool = False


def _declaring_tokens(case: Reproduction) -> list[Reproduction]:
    declaring = declaring_tokens(case.subject)
    return [replace(case, subject=declaring)] if declaring else []


def _may_be_read(case: Reproduction) -> bool:
    """True if the same row of a new instance proves something: it has not met a change that the program needs.

    It meets drafts, resumed requests, twins and prefills, too.
    """
    return case.fault.read and bool(case.hazards & CHANGES) and case.hazards.isdisjoint(MET_BY_NEW_INSTANCES)


MET_BY_NEW_INSTANCES: Final[frozenset[Hazard]] = frozenset({"drafts", "resume", "twins", "prefill"})

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
        change=_declaring_tokens,
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
        reported=True,
    ),
    Experiment(
        cause="prefill-as-prompt",
        fix="prefill-as-prompt",
        applies=lambda case: case.style == "raw" and case.interface == V2 and "resume" in case.hazards,
        change=lambda case: [replace(case, make_host=hiding_outputs(case.make_host))],
        reported=True,
    ),
    Experiment(
        cause="same-arguments",
        fix="same-arguments",
        applies=lambda case: case.neighbours[0],
        change=lambda case: case.doing(*case.neighbours[1]),
        reported=True,
    ),
    Experiment(
        cause="same-object",
        fix="same-object",
        applies=lambda case: "twins" in case.hazards,
        change=lambda case: case.doing(with_own_parameters(case.ops)),
    ),
    Experiment(
        cause="drafts",
        applies=lambda case: not case.culprit and "drafts" in case.hazards,
        change=lambda case: case.doing(without_drafts(case.ops)),
    ),
    Experiment(cause="read", fix="read", applies=lambda case: not case.culprit and _may_be_read(case)),
    Experiment(
        fix="order",
        applies=lambda case: case.style == "raw" and case.interface == V1,
        change=lambda case: case.doing(with_swaps_apart(case.ops)),
    ),
)
"""The first that is proven explains a failure."""


def blamed(case: Reproduction, passes: Callable[[Reproduction], bool]) -> Finding:
    """Return the finding with the line at fault, and with cause and fix where an experiment proves them."""
    proven = next((experiment for experiment in EXPERIMENTS if _proven(experiment, case, passes)), None)
    finding, culprit, readers = case.finding, case.culprit, readers_of(case.subject)
    line = case.reported if proven and proven.reported else case.fault.line
    causes = []
    if culprit is not None:
        line = culprit.line or line
        if not (proven and proven.alone):
            causes.append(culprit.cause(finding.where["request"]))
        finding = replace(finding, state=culprit.name)
        if culprit.common and culprit.holder:
            cache = "" if culprit.value else advice.fix("cache")  # a value without a short text is a table
            finding = replace(finding, fix=advice.fix("common", *readers).replace("{name}", culprit.name) + cache)
    if proven is not None and proven.cause:
        arguments = ", ".join(f"`{name}`" for name in case.neighbours[0])
        causes.append(advice.cause(proven.cause).replace("{arguments}", arguments))
    if proven is not None and proven.alone:
        summary = (
            f"request {finding.where['request']} does not follow its output: it got other logits once it had resumed"
        )
        finding = replace(finding, summary=summary, expected=finding.got, got=finding.expected)
    if proven is not None and proven.fix:
        finding = replace(finding, fix=advice.fix(proven.fix, *readers))
    if not causes and "company" in case.hazards and all(isinstance(op, Arrive | Step) for op in case.ops):
        causes.append(advice.cause("line"))
    return replace(finding, location=line, cause="; ".join(causes) or finding.cause)


def _proven(experiment: Experiment, case: Reproduction, passes: Callable[[Reproduction], bool]) -> bool:
    if not experiment.applies(case):
        return False
    if experiment.change is None:
        return True
    runs = experiment.change(case)
    return bool(runs) and all(map(passes, runs)) and not passes(case)
