"""Two plugins on one runner: their requests, and the model that both see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import torch
from lpkit.runtime import ThinkingMarkers

from lpkit_conformance.hosts.requests import ActiveRequest, make_active
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Step, Swap
from lpkit_conformance.settings.cases import Case, WatchedArgs, knows_field
from lpkit_conformance.subject import plugin as subjects
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.tokenizer import words_in

BUDGET = "thinking_token_budget"

USES = ((0, 0), (0, None), (None, 0), (1, 1), (1, None), (None, 1), (0, 1))
"""The case of each plugin for each ``variant`` of an arrival; None: the request does not use the plugin."""

BOTH = tuple(variant for variant, (one, other) in enumerate(USES) if one is not None and other is not None)

GRAMMAR = frozenset({"both 2", "both 4", "first 2", "second 2"})
"""Requests with structured outputs: a grammar has masked half of the tokens before any plugin runs."""

THINKING = "both 4"
"""The request with a thinking budget, which the engine enforces behind the plugins."""

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
    Arrive("both 4", 0, prompt_len=8, chunks=1),
    Swap(1, 3),
    Step(6),
)
"""Programs in which requests that use both plugins, one or neither arrive, leave, move and are preempted or chunked."""


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


class Pair:
    """Two plugins on a runner.

    Args:
        plugins: both.
        subject: one of them on that runner, with the settings of the run.

    Attributes:
        known: results about the pair, shared by the checks.
        on: the same pair by runner, for runners that both support.
    """

    def __init__(self, plugins: tuple[PairedPlugin, PairedPlugin], subject: Subject) -> None:
        self.plugins = plugins
        self.host = subject.setup.host
        self.device = subject.setup.device
        self.max_num_seqs = subject.setup.max_num_seqs
        cases = [case for plugin in plugins for case in plugin.cases]
        markers = next((case.reasoning for case in cases if case.reasoning), None)
        last = subject.setup.vocab_size - 1
        self._reasoning = markers or {"start": (last - 9,), "end": (last - 10,)}
        self._subject = replace(subject, plugin=subjects.Plugin(self.name, object)).having(
            case=merged([*cases, Case(reasoning=self._reasoning)]), vocabulary=words_in([case.fields for case in cases])
        )
        self._subjects: dict[int | None, Subject] = {}
        self.known: dict[Any, Any] = {}
        self.on: dict[str, Pair] = {}

    @property
    def name(self) -> str:
        """As the report names the pair."""
        return " + ".join(plugin.name for plugin in self.plugins)

    @property
    def markers(self) -> ThinkingMarkers:
        """Token ids of the markers that begin and end a thought."""
        return ThinkingMarkers(**self._reasoning)

    @property
    def vocab_size(self) -> int:
        return self._subject.setup.vocab_size

    @property
    def max_model_len(self) -> int:
        return self._subject.setup.world.max_model_len

    def config(self) -> Any:
        """The ``vllm_config`` for the constructors."""
        return self._subject.setup.config(self.max_num_seqs)

    def case(self, variant: int | None) -> Case:
        """Return the arguments of both plugins for a request of this variant."""
        return merged([case for case in self.brought(variant) if case is not None])

    def brought(self, variant: int | None) -> tuple[Case | None, Case | None]:
        """Return each plugin's case for this variant; None: the request does not use the plugin."""
        one, other = (None, None) if variant is None else USES[variant]
        first, second = self.plugins
        return None if one is None else first.cases[one], None if other is None else second.cases[other]

    def arguments(self, variant: int | None) -> str:
        """The arguments of a request, for people."""
        return self.case(variant).text

    def refusal(self, which: int, variant: int) -> BaseException | None:
        """Return the exception of a plugin's own validation for a request; None if it accepts the request."""
        return subjects.Plugin(self.name, self.plugins[which].cls).refusal(self._of(variant).asked(0))

    def request(self, op: Arrive, looked_at: set[str] | None = None) -> ActiveRequest:
        """The request that comes; what is read of its ``extra_args`` is added to ``looked_at``."""
        subject = self._of(op.variant)
        active = make_active(subject, replace(op, variant=None if op.variant is None else 0))
        request = active.request
        if looked_at is not None and request.params.extra_args is not None:
            request.params.extra_args = WatchedArgs(request.params.extra_args, looked_at)
        if op.request == THINKING and knows_field(BUDGET):
            setattr(request.params, BUDGET, 2)
            assert request.prompt_token_ids is not None
            request.prompt_token_ids += self._reasoning["start"]
            request.prompt_len = len(request.prompt_token_ids)
        active.variant = op.variant
        return active

    def rows(self, actives: Sequence[ActiveRequest], positions: Sequence[int]) -> torch.Tensor:
        """Return the model's logits at these positions, as the first processor gets them."""
        raw = self._subject.model.rows(
            [(active.logits_key, position + 1) for active, position in zip(actives, positions, strict=True)]
        )
        for row, (active, position) in enumerate(zip(actives, positions, strict=True)):
            self._want(raw[row], active, position + 1 - active.request.prompt_len)
            if active.id in GRAMMAR:
                drawn = torch.Generator().manual_seed(
                    crc32(f"{self._subject.setup.seed} {active.id} {position}".encode())
                )
                raw[row, torch.rand(raw.shape[1], generator=drawn).to(raw.device) < 0.5] = -torch.inf
        return raw

    def _want(self, row: torch.Tensor, active: ActiveRequest, nth: int) -> None:
        """Make a token the likeliest; a token that the case makes the model emit gets a much larger margin."""
        if nth < 0:
            return
        subject = self._of(active.variant)
        variant = None if active.variant is None else 0
        wanted = subject.model.emit(active.logits_key, variant, nth)
        row[wanted] = row.amax() + (4.0 if wanted in subject.setup.case.output_token_ids else 1.0)

    def _of(self, variant: int | None) -> Subject:
        """The requests of a variant."""
        if variant not in self._subjects:
            self._subjects[variant] = self._subject.having(case=self.case(variant))
        return self._subjects[variant]

    @cached_property
    def combinations(self) -> list[int]:
        """The variants that bring both plugins' arguments, no two with the same."""
        found: dict[str, int] = {}
        for variant in BOTH:
            found.setdefault(self.arguments(variant), variant)
        return list(found.values())


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
        tuple(_all(case.prompt_token_ids for case in cases)),
        tuple(_all(case.output_token_ids for case in cases)),
        max((case.generated for case in cases), default=0),
        next((case.reasoning for case in cases if case.reasoning), {}),
    )


def _all(lists: Iterable[tuple[int, ...]]) -> Iterator[int]:
    for tokens in lists:
        yield from tokens
