"""The numbers of a bench, and their JSON form (``docs/reference/schemas.md`` describes it)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "lpkit-bench/1"


@dataclass(frozen=True)
class Times:
    """Seconds per call, over ``rounds`` calls."""

    median: float
    least: float
    rounds: int


@dataclass(frozen=True)
class CandidateResult:
    """One candidate at one size.

    Attributes:
        kind: ``target``, ``alternative`` or ``floor``.
        host: ``v1`` or ``v2``, or empty for a plain function.
        apply: one ``apply``, until its result is there.
        first: seconds of the first step of a new instance of the target, bookkeeping and compilation included.
        launch: the part of ``apply`` until the call returned: on a GPU, the host's part.
        gpu: GPU time of one ``apply`` while the host runs ahead; None on other devices.
        churn: bookkeeping of a step in which requests come and go.
        idle: bookkeeping of a step in which no request comes or goes.
        operations, syncs: of one ``apply``.
        launches: operations and Triton kernels in a step in which no request comes or goes, bookkeeping included; None
            if they could not be counted.
        launch_budget: launches that lpkit grants a rule of this kind; None for a class without lpkit's base.
        peak: most bytes that one ``apply`` holds at the same time, besides the logits.
        acted: the first step changed a logit.
        problem: the reason why there are no numbers.
        versus_target: its ``apply`` time over that of the target on V1 (else V2), median of the rounds.
        versus_floor: its ``apply`` time over one read and write of the logits.
    """

    name: str
    kind: str
    host: str = ""
    apply: Times | None = None
    launch: Times | None = None
    gpu: Times | None = None
    churn: Times | None = None
    idle: Times | None = None
    first: float | None = None
    operations: int | None = None
    launches: int | None = None
    launch_budget: int | None = None
    syncs: dict[str, int] = field(default_factory=dict)
    peak: int | None = None
    acted: bool = True
    problem: str = ""
    versus_target: float | None = None
    versus_floor: float | None = None


@dataclass(frozen=True)
class Point:
    """One size. ``problem`` is the reason why nothing was measured there."""

    batch: int
    vocab: int
    logits_bytes: int
    sides: tuple[CandidateResult, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class TargetBench:
    """One target; ``error`` is the reason why it was not measured, or not completely."""

    target: str
    interface: str = ""
    case: str = "{}"
    judged_with: str = ""
    points: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def measured(self) -> bool:
        return any(side.kind == "target" and side.apply for point in self.points for side in point.sides)


@dataclass(frozen=True)
class Bench:
    """A whole run.

    Attributes:
        environment, settings: the machine, versions and options that the numbers depend on.
        worse: a sentence for each number that exceeds the budget.
    """

    targets: tuple[TargetBench, ...]
    environment: dict[str, Any]
    settings: dict[str, Any]
    worse: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        if not self.targets or any(target.error or not target.measured for target in self.targets):
            return 2
        return 1 if self.worse else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "environment": self.environment,
            "settings": self.settings,
            "targets": [asdict(target) for target in self.targets],
            "worse": list(self.worse),
        }
