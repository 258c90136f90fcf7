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
    with_swaps_apart,
)
from lpkit_conformance.explanation.fault import Fault
from lpkit_conformance.explanation.findings import method_location, own_line
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
    """

    subject: Subject
    make_host: MakeHost
    program: Program
    finding: Finding
    fault: Fault

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

    @property
    def keeps_books(self) -> bool:
        """True if the method that gets new requests is the author's own, and not lpkit's or vLLM's."""
        return bool(own_line(self.subject.plugin.cls, HOSTS[self.subject.setup.host].told_by))

    @property
    def admits(self) -> str:
        """The author's method for a new request where lpkit keeps the books."""
        cls = self.subject.plugin.cls
        return own_line(cls, "admit") or own_line(cls, "new_req_logits_processor")

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
        where: the line at fault.
    """

    applies: Callable[[Reproduction], object]
    where: Callable[[Reproduction], str]
    change: Callable[[Reproduction], Sequence[Reproduction]] | None = None
    cause: str = ""
    fix: str = ""


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
        cause="placeholders",
        fix="placeholders",
        applies=lambda case: case.style == "adapter",
        change=_declaring_tokens,
        where=lambda case: case.fault.line,
    ),
    Experiment(
        cause="by-address",
        fix="by-address",
        applies=lambda case: any(isinstance(op, Finish) for op in case.ops),
        change=lambda case: [replace(case, make_host=keeping_objects(case.make_host))],
        where=lambda case: case.fault.line,
    ),
    Experiment(
        cause="too-early",
        fix="too-early",
        applies=lambda case: case.style == "raw" and case.interface == V2,
        change=lambda case: [replace(case, make_host=blank_slots(case.make_host))],
        where=lambda case: case.reported,
    ),
    Experiment(
        cause="prefill-as-prompt",
        fix="prefill-as-prompt",
        applies=lambda case: case.style == "raw" and case.interface == V2 and "resume" in case.hazards,
        change=lambda case: [replace(case, make_host=hiding_outputs(case.make_host))],
        where=lambda case: case.reported,
    ),
    Experiment(
        cause="same-arguments",
        fix="same-arguments",
        applies=lambda case: case.neighbours[0],
        change=lambda case: case.doing(*case.neighbours[1]),
        where=lambda case: case.reported,
    ),
    Experiment(
        cause="read",
        fix="read",
        applies=_may_be_read,
        where=lambda case: case.fault.line,
    ),
    Experiment(
        fix="order",
        applies=lambda case: case.style == "raw" and case.interface == V1,
        change=lambda case: case.doing(with_swaps_apart(case.ops)),
        where=lambda case: "",
    ),
    Experiment(
        fix="replace",
        applies=lambda case: not case.keeps_books and case.admits and not case.fault.read and case.hazards & CHANGES,
        where=lambda case: case.admits,
    ),
    # Where lpkit keeps the books, where nobody left or moved, and where what V2's `apply` reads is new.
    Experiment(
        applies=lambda case: (
            not case.keeps_books
            or all(isinstance(op, Arrive | Step) for op in case.ops)
            or (case.fault.read and case.interface == V2)
        ),
        where=lambda case: case.fault.line,
    ),
)
"""The first that is proven explains a failure."""


def blamed(case: Reproduction, passes: Callable[[Reproduction], bool]) -> Finding:
    """Return the finding with the line at fault, and with cause and fix where an experiment proves them."""
    for experiment in EXPERIMENTS:
        if not experiment.applies(case):
            continue
        if experiment.change is not None:
            runs = experiment.change(case)
            if not (runs and all(map(passes, runs)) and not passes(case)):
                continue
        return _explained(case, experiment)
    return case.finding


def _explained(case: Reproduction, experiment: Experiment) -> Finding:
    finding = replace(case.finding, location=experiment.where(case))
    if experiment.cause:
        arguments = ", ".join(f"`{name}`" for name in case.neighbours[0])
        finding = replace(finding, cause=advice.cause(experiment.cause).replace("{arguments}", arguments))
    if experiment.fix:
        finding = replace(finding, fix=advice.fix(experiment.fix, *readers_of(case.subject)))
    return finding
