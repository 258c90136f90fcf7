"""A batch that stands still at one step, so that the plugin can be applied to any logits as often as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from lpkit.runtime import Request

from lpkit_conformance.hosts import drive, parts_of
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.programs.generate import Op, Step
from lpkit_conformance.results import Finding, Skipped

Apply = Callable[[torch.Tensor], Any]


@dataclass(frozen=True)
class Stance:
    """A request at one step of its life.

    Attributes:
        variant: its arguments; None: it does not use the plugin.
        character: who it is for the model.
        length: tokens that it has generated.
        last, prompted, best: a token that is its last output, stands in its prompt, or has the largest logit.
    """

    variant: int | None
    character: str
    length: int
    last: int | None = None
    prompted: int | None = None
    best: int | None = None

    def request(self, subject: PluginUnderTest, name: str) -> Request:
        """The request as it enters a batch at this length: with its outputs, as after a preemption."""
        prompt = subject.prompt(self.character, 5, self.variant)
        if self.prompted is not None:
            prompt = [prompt[0], self.prompted, *prompt[1:]]
        params = subject.params(self.variant, salt=sum(self.character.encode()))
        request = Request(name, params, prompt, 10**6)
        request.output_token_ids += self._outputs(subject, request)
        if self.last is not None:
            request.output_token_ids[-1:] = [self.last]
        return request

    def _outputs(self, subject: PluginUnderTest, request: Request) -> list[int]:
        """What it has generated; a plugin that forbids tokens is asked about each, in an instance of its own."""
        wanted = [subject.emit(self.character, self.variant, n) for n in range(self.length)]
        if not subject.forbids:
            return wanted
        known = subject.histories.setdefault((self.character, self.variant, self.prompted), [])
        if len(known) < self.length:
            alone = Request("alone", request.params, list(request.prompt_token_ids or ()), 10**6)
            driver = drive(subject, 2)
            for n, token in enumerate(wanted):
                driver.begin(entering=[alone] if n == 0 else [])
                raw = subject.rows([(self.character, alone.total_len)])
                after = driver.step(driver.stage(raw, [alone.params]), [alone])
                driver.commit(alone, subject.sampled([token], after))
            known[:] = alone.output_token_ids
        return known[: self.length]


@dataclass(frozen=True)
class Standing:
    """Some requests at one step.

    Attributes:
        logits: as the plugin would get them, ``[rows, vocab]``.
        again: applies the plugin to any logits of that shape; the engine's side does not move on.
        after: what the plugin made of ``logits``.
        stances: by row, where they are known; a batch in the middle of a run has none.
    """

    logits: torch.Tensor
    again: Apply
    after: torch.Tensor
    stances: tuple[Stance, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether the plugin changes any of its rows."""
        return not torch.equal(self.logits, self.after)

    def located(self, finding: Finding) -> Finding:
        """``finding`` with the step at which the request of its row stands."""
        row = finding.where.get("row")
        if not self.stances or row is None:
            return finding
        return replace(finding, where={**finding.where, "output tokens": str(self.stances[int(row)].length)})


def stand_at(subject: PluginUnderTest, stances: Sequence[Stance]) -> Standing:
    """A new instance with these requests, each at its step; as after a preemption of all of them."""
    driver = drive(subject, max(subject.max_num_seqs, len(stances)))
    requests = [stance.request(subject, f"s{i}") for i, stance in enumerate(stances)]
    driver.begin(entering=requests)
    raw = subject.rows(
        [(stance.character, request.total_len) for stance, request in zip(stances, requests, strict=True)]
    )
    for row, stance in enumerate(stances):
        if stance.best is not None:
            raw[row, stance.best] = raw[row].max() + 1.0
    before = driver.stage(raw, [request.params for request in requests])
    after = driver.step(before, requests)
    context = driver.context(requests)

    def again(other: torch.Tensor) -> Any:
        with torch.inference_mode():
            return driver.edit(other, *context)

    return Standing(before, again, after, tuple(stances))


def stand_after(subject: PluginUnderTest, ops: Iterable[Op], steps: int = 3) -> Standing:
    """Some steps into a run.

    Raises:
        Skipped: if the engine never calls ``apply`` for these requests.
    """
    host = parts_of(subject.host).host(subject, subject.max_num_seqs)
    driver = host.driver
    calls: list[tuple[Any, ...]] = []
    latest: tuple[torch.Tensor, tuple[Any, ...], torch.Tensor] | None = None

    @contextmanager
    def spy(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method == "apply":
            calls.append((args[0].clone(), args[1:]))
        yield

    with driver.watched(spy):
        for seen in host.run([*ops, Step(steps)]):
            if calls:
                latest = (*calls.pop(), seen.after)
    if latest is None:
        raise Skipped("the engine never calls apply for these requests")
    host.rewind()
    logits, context, after = latest

    def again(other: torch.Tensor) -> Any:
        with torch.inference_mode():
            return driver.edit(other, *context)

    return Standing(logits, again, after)
