"""What a bench found, and its JSON form (``docs/reference/schemas.md`` describes it)."""

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
class Bound:
    """What binds a step's time.

    Attributes:
        by: ``waiting``, ``host``, ``launches``, ``allocation``, ``memory`` or ``computation``; empty: it takes about as
            long as one read and write of the logits, or less.
        why: the evidence.
        advice: what makes it faster.
    """

    by: str
    why: str
    advice: str


@dataclass(frozen=True)
class Prediction:
    """What a step moves by :mod:`lpkit.kernels.traffic`, in sizes of the logits, and the seconds that this takes.

    Attributes:
        least_read, most_read: from the GPU's memory, if as good as no token and if one in every span stays.
        written: there at most.
        least, most: seconds at the speed of the floors, without launches.
    """

    least_read: float
    most_read: float
    written: float
    least: float
    most: float


@dataclass(frozen=True)
class CandidateResult:
    """One thing that was measured at one size.

    Attributes:
        kind: ``target``, ``alternative`` or ``floor``.
        host: whose calls it got: ``v1``, ``v2``, or empty for a plain function.
        apply: one ``apply``, until its result is there.
        first: seconds of the first step of a new instance of the target, bookkeeping included: what is compiled or
            set up at the first request.
        launch: on a GPU, the host's part of it.
        gpu: on a GPU, what it works on one ``apply`` whose host is ahead of it; None elsewhere.
        churn: bookkeeping of a step in which requests come and go.
        idle: bookkeeping of a step in which none does.
        operations, views, syncs: of one ``apply``.
        launches: operations and Triton kernels that a GPU is asked for in a step in which no request comes or goes,
            bookkeeping included; None: could not be counted.
        launch_budget: how many of these lpkit grants a rule of this kind; None: to a class of another base.
        kernels: of these launches, the Triton kernels by name.
        predicted: what the kernels of one ``apply`` should take; None where other operations go over the logits too.
        passes: elements that the operations of one ``apply`` went over, by those of the logits.
        allocated: bytes of new tensors in one ``apply``.
        peak: the most bytes that one ``apply`` held at the same time, besides the logits.
        to_device, to_host: bytes copied in one step, bookkeeping included; None: could not be told.
        acted: whether the first step changed a logit.
        problem: why there are no numbers.
        versus_target: its ``apply`` time over that of the target on V1 (else V2), median of the rounds.
        versus_floor: its ``apply`` time over one read and write of the logits.
        bound: what binds the ``apply`` of a processor.
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
    views: int | None = None
    launches: int | None = None
    launch_budget: int | None = None
    kernels: dict[str, int] | None = None
    predicted: Prediction | None = None
    syncs: dict[str, int] = field(default_factory=dict)
    passes: float | None = None
    allocated: int | None = None
    peak: int | None = None
    to_device: int | None = None
    to_host: int | None = None
    acted: bool = True
    problem: str = ""
    versus_target: float | None = None
    versus_floor: float | None = None
    bound: Bound | None = None


@dataclass(frozen=True)
class Point:
    """One size. ``problem`` says why nothing was measured there."""

    batch: int
    vocab: int
    logits_bytes: int
    sides: tuple[CandidateResult, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Acceptance:
    """What one case costs in drafts, by a drafter equal to the model without the processor.

    Attributes:
        rows: positions of texts that were looked at.
        mean: probability that a draft is accepted.
        lowest: that at the tenth of the positions where it is lowest is at most this.
        changed: share of the positions where it is below 1.
        tokens_per_step: by the number of drafts per step, as text: accepted tokens and the one that is sampled.
    """

    case: str
    rows: int
    mean: float
    lowest: float
    changed: float
    tokens_per_step: dict[str, float]


@dataclass(frozen=True)
class TargetBench:
    """One target; ``error`` says why it could not be measured, or not to the end."""

    target: str
    interface: str = ""
    case: str = "{}"
    judged_with: str = ""
    points: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    drafts: tuple[Acceptance, ...] = ()

    @property
    def measured(self) -> bool:
        return bool(self.drafts) or any(
            candidate.kind == "target" and candidate.apply for point in self.points for candidate in point.sides
        )

    def to_json(self) -> dict[str, Any]:
        """Its part of ``lpkit-bench/1``, where a key is older than the name ``judged_with``."""
        return {"against" if key == "judged_with" else key: value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Bench:
    """A whole run. ``environment`` and ``settings`` are what its numbers depend on.

    Attributes:
        worse: what has got worse than a budget, in sentences.
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
            "targets": [target.to_json() for target in self.targets],
            "worse": list(self.worse),
        }


def point_from_json(value: dict[str, Any]) -> Point:
    """Inverse of ``asdict``."""
    return Point(**{**value, "sides": tuple(_candidate(candidate) for candidate in value["sides"])})


def _candidate(value: dict[str, Any]) -> CandidateResult:
    times = {key: Times(**value[key]) if value[key] else None for key in ("apply", "launch", "gpu", "churn", "idle")}
    bound = Bound(**value["bound"]) if value["bound"] else None
    predicted = Prediction(**value["predicted"]) if value["predicted"] else None
    return CandidateResult(**{**value, **times, "bound": bound, "predicted": predicted})
