"""A request with and without its processors, and its JSON form (``docs/reference/schemas.md`` describes it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lpkit_conformance.results import CheckResult, StepView

SCHEMA = "lpkit-show/1"

MOVED = 1e-6
"""Probability that a stage must move to count as acting; less is rounding."""


@dataclass(frozen=True)
class ProcessorReceipt:
    """The effect of a processor on the request.

    Attributes:
        acted: number of steps at which it moved probability.
        moved: probability that it moved at these steps, on average.
        first, last: numbers of the first and the last of these steps, from 1; None without any.
        banned: tokens that it made impossible, summed over the steps.
        chose: numbers of the steps at which another token would have been chosen without it.
        emptied: numbers of the steps at which it left no token.
        note: why it never acted; empty if it acted.
    """

    name: str
    acted: int
    steps: int
    moved: float
    first: int | None
    last: int | None
    banned: int
    chose: tuple[int, ...]
    emptied: tuple[int, ...]
    note: str = ""

    @property
    def said(self) -> str:
        """The receipt as a sentence."""
        if not self.acted:
            return f"never acted: {self.note}"
        when = f"token {self.first}" if self.first == self.last else f"from token {self.first} to {self.last}"
        text = f"acted on {self.acted} of {self.steps} tokens ({when}); shifted {self.moved:.0%} of the probability"
        text += " on average" * (self.acted > 1)
        if self.banned:
            mean = self.banned / self.acted
            few = f"{self.banned} ban{'s' * (self.banned > 1)} in all"
            text += f"; banned {mean:,.0f} candidates each time" if mean >= 10 else f"; {few}"
        if self.emptied:
            text += f"; left nothing to choose from at token {', '.join(map(str, self.emptied[:3]))}"
        if not self.chose:
            return f"{text}; changed no token"
        changed = "1 token" if len(self.chose) == 1 else f"{len(self.chose)} tokens"
        return f"{text}; changed {changed}, the first is token {self.chose[0]}"


@dataclass(frozen=True)
class Compared:
    """The request with another value of a parameter, or another processor.

    Attributes:
        value: ``parameter=value``, or the processor.
        reply: its tokens.
        parted: number of the first step, from 1, whose token differs from the first reply; None if all are equal.
        problem: why the reply ended early, or empty.
    """

    value: str
    reply: tuple[str, ...]
    parted: int | None
    receipts: tuple[ProcessorReceipt, ...]
    problem: str


@dataclass(frozen=True)
class Show:
    """One request with and without its processors.

    Attributes:
        model, toy, host, judged_with: the model, whether it is the built-in one, the runner, and the source of vLLM's
            interfaces.
        case: the request's SamplingParams, as JSON.
        names: of the processors, in the order of loading.
        notes: for each processor, why the engine left the request to itself; empty if it did not.
        steps: the reply's tokens.
        plain: the whole reply that the same random numbers give without processors.
        problem: why there are no steps, or no more; empty if the reply is complete.
        compared: the same request with other values of a parameter, or with other processors.
        check: in place of a reply, a failed check whose finding has the steps.
    """

    model: str = ""
    toy: bool = True
    host: str = ""
    judged_with: str = ""
    case: str = "{}"
    seed: int = 0
    prompt: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[StepView, ...] = ()
    plain: tuple[str, ...] = ()
    problem: str = ""
    compared: tuple[Compared, ...] = ()
    check: CheckResult | None = None

    @property
    def parted(self) -> int | None:
        """Number of the first step, from 1, whose token is not that of the reply without processors."""
        return first_difference(self.reply, self.plain)

    @property
    def telling(self) -> int | None:
        """Number of the step, from 1, that shows best what the processors do; None if there is no step."""
        moved = [step.moved for step in self.steps]
        return self.parted or (1 + moved.index(max(moved)) if moved else None)

    @property
    def reply(self) -> tuple[str, ...]:
        """The reply's tokens."""
        return tuple(step.token for step in self.steps)

    @property
    def receipts(self) -> tuple[ProcessorReceipt, ...]:
        """A receipt for each processor."""
        return () if self.check else tuple(self._receipt(number) for number in range(len(self.names)))

    def _receipt(self, number: int) -> ProcessorReceipt:
        seen = [(n, stage) for n, step in enumerate(self.steps, 1) if (stage := step.of(number))]
        acting = [(n, stage) for n, stage in seen if stage.moved > MOVED]
        return ProcessorReceipt(
            self.names[number],
            len(acting),
            len(self.steps),
            sum(stage.moved for _, stage in acting) / max(len(acting), 1),
            acting[0][0] if acting else None,
            acting[-1][0] if acting else None,
            sum(stage.banned for _, stage in seen),
            tuple(n for n, step in enumerate(self.steps, 1) if step.without[number] != step.token),
            tuple(n for n, stage in seen if stage.banned and not any(stage.ranks)),
            "" if acting else self._why_never(number, called=bool(seen)),
        )

    def _why_never(self, number: int, called: bool) -> str:
        if self.notes and self.notes[number]:
            return self.notes[number]
        if not self.steps:
            return "the reply has no token"
        return "no effect: it was called and moved no probability" if called else "the engine never called it"

    @property
    def exit_code(self) -> int:
        return 2 if self.problem else 0

    def to_json(self) -> dict[str, Any]:
        receipts = [{**asdict(receipt), "said": receipt.said} for receipt in self.receipts]
        check = self.check and self.check.to_json()
        return {"schema": SCHEMA, **asdict(self), "parted": self.parted, "receipts": receipts, "check": check}


def first_difference(reply: Sequence[str], other: Sequence[str]) -> int | None:
    """Return the number of the first token, from 1, that differs; None if one reply is the beginning of the other."""
    return next((n for n, pair in enumerate(zip(reply, other, strict=False), 1) if pair[0] != pair[1]), None)
