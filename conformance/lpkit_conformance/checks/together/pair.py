"""Two plugins on one runner: their requests, and the model that serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any
from zlib import crc32

import torch

from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Step, Swap
from lpkit_conformance.settings.cases import Case, knows_field
from lpkit_conformance.subject.model import Model
from lpkit_conformance.subject.plugin import Plugin
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.tokenizer import words_in

BUDGET = "thinking_token_budget"

USES = ((0, 0), (0, None), (None, 0), (1, 1), (1, None), (None, 1), (0, 1), (0, 0))
"""The case of each plugin for each ``variant`` of an arrival; None: the request does not use the plugin."""

BOTH = tuple(variant for variant, (first, second) in enumerate(USES) if first is not None and second is not None)

THINKING = 7
"""The variant with a thinking budget: its prompt opens a thought, and the outputs end the thought in time."""

GRAMMAR = frozenset({"both 2", "both 4", "first 2", "second 2"})
"""Requests with structured outputs: a grammar has masked half of the tokens before any plugin runs."""

PROGRAM: tuple[Op, ...] = (
    Arrive("both 1", 0),
    Arrive("first 1", 1, prompt_len=4),
    Arrive("second 1", 2, prompt_len=7),
    Arrive("neither", None),
    Arrive("both 2", 3, prompt_len=6),
    Step(3),
    Finish("first 1"),
    Arrive("both 3", 6, prompt_len=7, greedy=True),
    Swap(0, 1),
    Step(2),
    Preempt("both 1"),
    Step(),
    Finish("second 1"),
    Arrive("first 2", 4, prompt_len=5),
    Arrive("second 2", 5, prompt_len=4, greedy=True),
    Step(2),
    Idle(),
    Resume("both 1", new_list=True),
    Finish("neither"),
    Arrive("both 4", THINKING, prompt_len=8, chunks=1),
    Swap(1, 3),
    Step(6),
)
"""Requests that use both plugins, one or neither arrive, leave, move and are preempted or chunked."""


@dataclass(frozen=True)
class PairedPlugin:
    """A plugin of the pair.

    Attributes:
        name: as the user named it.
        cases: two cases that switch it on.
    """

    name: str
    cls: Any
    cases: tuple[Case, Case]


class MaskedModel(Model):
    """The model behind a grammar, which masks tokens of some requests."""

    def rows(self, keys: list[tuple[str, int]]) -> torch.Tensor:
        raw = super().rows(keys)
        for row, (name, position) in zip(raw, keys, strict=True):
            if name in GRAMMAR:
                drawn = torch.Generator().manual_seed(crc32(f"{self._setup.seed} {name} {position}".encode()))
                row[torch.rand(len(row), generator=drawn).to(row.device) < 0.5] = -torch.inf
        return raw


@dataclass(frozen=True)
class Pair(Subject):
    """Two plugins on a runner, as a subject whose variants are those of :data:`USES`.

    Attributes:
        plugins: both.
    """

    plugins: tuple[PairedPlugin, ...] = ()

    @classmethod
    def made(cls, plugins: tuple[PairedPlugin, PairedPlugin], settings: Subject) -> Pair:
        """Return a pair on the runner of one of the two, with the settings of its run."""
        cases = [case for plugin in plugins for case in plugin.cases]
        last = settings.setup.vocab_size - 1
        markers = next((case.reasoning for case in cases if case.reasoning), None)
        markers = markers or {"start": (last - 9,), "end": (last - 10,)}
        setup = replace(
            settings.setup,
            case=merged([*cases, Case(reasoning=markers)]),
            vocabulary=words_in([case.fields for case in cases]),
        )
        name = " + ".join(plugin.name for plugin in plugins)
        pair = cls(Plugin(name, object), setup, settings.foreign, plugins=plugins)
        requests = [merged([case for case in pair.brought(variant) if case]) for variant in range(len(USES))]
        requests[THINKING] = _thinking(requests[THINKING], markers)
        return replace(pair, relatives=tuple(requests))

    def served_by(self, cls: Any) -> Pair:
        """Return the pair's requests, served by this class."""
        return replace(self, plugin=Plugin(self.plugin.target, cls))

    @cached_property
    def model(self) -> Model:
        return MaskedModel(self.setup, self.cases)

    def brought(self, variant: int | None) -> tuple[Case | None, Case | None]:
        """Return each plugin's case for this variant; None: the request does not use the plugin."""
        left, right = (None, None) if variant is None else USES[variant]
        first, second = self.plugins
        return None if left is None else first.cases[left], None if right is None else second.cases[right]

    def arguments(self, variant: int | None) -> str:
        """The arguments of a request, for people."""
        return Case({}).text if variant is None else self.cases[variant].text

    def refusal(self, which: int, variant: int) -> BaseException | None:
        """Return the exception of a plugin's own validation for a request; None if it accepts the request."""
        return self.served_by(self.plugins[which].cls).plugin.refusal(self.asked(variant))


def _thinking(case: Case, markers: Mapping[str, tuple[int, ...]]) -> Case:
    """Return the case with a thinking budget, as far as this vLLM has the field."""
    fields = {**case.fields, **({BUDGET: 2} if knows_field(BUDGET) else {})}
    prompt, outputs = (*case.prompt_token_ids, *markers["start"]), (3, 4, *markers["end"], *case.output_token_ids)
    return replace(case, fields=fields, prompt_token_ids=prompt, output_token_ids=outputs)


def merged(cases: Sequence[Case]) -> Case:
    """Merge cases: all fields of all cases; the last case's value wins."""
    fields: dict[str, Any] = {}
    for case in cases:
        extra = {**(fields.get("extra_args") or {}), **(case.fields.get("extra_args") or {})}
        fields |= case.fields
        if extra:
            fields["extra_args"] = extra
    return Case(
        fields,
        tuple(chain.from_iterable(case.prompt_token_ids for case in cases)),
        tuple(chain.from_iterable(case.output_token_ids for case in cases)),
        max((case.generated for case in cases), default=0),
        next((case.reasoning for case in cases if case.reasoning), {}),
    )
