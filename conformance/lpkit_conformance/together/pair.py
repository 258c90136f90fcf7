"""Two plugins on one runner: their requests, and the model that both see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import torch
from lpkit.runtime import ThinkingMarkers

from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, make_active
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Step, Swap
from lpkit_conformance.settings.cases import Case, knows_field
from lpkit_conformance.vllm_api.tokenizer import words_in

BUDGET = "thinking_token_budget"

USES = ((0, 0), (0, None), (None, 0), (1, 1), (1, None), (None, 1), (0, 1))
"""What ``variant`` of an arrival means here: which of each plugin's cases the request brings."""

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
"""Requests that use both plugins, one and none come, go, move, are preempted and prefilled in parts."""


@dataclass(frozen=True)
class Plugin:
    """One of the two.

    Attributes:
        name: as the user named it.
        cases: two ways to switch it on.
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
        known: what the checks have found out about the pair, shared by them.
        on: the same pair by runner, on those that both can run on.
    """

    def __init__(self, plugins: tuple[Plugin, Plugin], subject: PluginUnderTest) -> None:
        self.plugins = plugins
        self.host = subject.host
        self.device = subject.device
        self.max_num_seqs = subject.max_num_seqs
        cases = [case for plugin in plugins for case in plugin.cases]
        markers = next((case.reasoning for case in cases if case.reasoning), None)
        last = subject.vocab_size - 1
        self._reasoning = markers or {"start": (last - 9,), "end": (last - 10,)}
        self._subject = replace(
            subject,
            target=self.name,
            cls=object,
            case=merged([*cases, Case(reasoning=self._reasoning)]),
            words=words_in([case.fields for case in cases]),
            solo_runs=None,
            activity=None,
            odd_requests=None,
            histories={},
        )
        self._subjects: dict[int | None, PluginUnderTest] = {}
        self.known: dict[Any, Any] = {}
        self.on: dict[str, Pair] = {}

    @property
    def name(self) -> str:
        """As the report names the pair."""
        return " + ".join(plugin.name for plugin in self.plugins)

    @property
    def markers(self) -> ThinkingMarkers:
        """What begins and ends a thought."""
        return ThinkingMarkers(**self._reasoning)

    @property
    def vocab_size(self) -> int:
        return self._subject.vocab_size

    @property
    def max_model_len(self) -> int:
        return self._subject.world.max_model_len

    def config(self) -> Any:
        """What the constructors get as ``vllm_config``."""
        return self._subject.config(self.max_num_seqs)

    def case(self, variant: int | None) -> Case:
        """What a request of this variant brings, of both plugins."""
        return merged([case for case in self.brought(variant) if case is not None])

    def brought(self, variant: int | None) -> tuple[Case | None, Case | None]:
        """The same by plugin; None: it does not use it."""
        one, other = (None, None) if variant is None else USES[variant]
        first, second = self.plugins
        return None if one is None else first.cases[one], None if other is None else second.cases[other]

    def arguments(self, variant: int | None) -> str:
        """The arguments of a request, for people."""
        return self.case(variant).text

    def refusal(self, which: int, variant: int) -> BaseException | None:
        """What a plugin's own validation raises for a request; None if it lets the request in."""
        subject = self._of(variant)
        return replace(subject, cls=self.plugins[which].cls).refusal(subject.asked(0))

    def request(self, op: Arrive, looked_at: set[str] | None = None) -> ActiveRequest:
        """The request that comes; what is read of its ``extra_args`` is added to ``looked_at``."""
        subject = self._of(op.variant)
        subject.looked_at = set() if looked_at is None else looked_at
        active = make_active(subject, replace(op, variant=None if op.variant is None else 0))
        request = active.request
        if op.request == THINKING and knows_field(BUDGET):
            setattr(request.params, BUDGET, 2)
            assert request.prompt_token_ids is not None
            request.prompt_token_ids += self._reasoning["start"]
            request.prompt_len = len(request.prompt_token_ids)
        active.variant = op.variant
        return active

    def rows(self, actives: Sequence[ActiveRequest], positions: Sequence[int]) -> torch.Tensor:
        """The model's logits behind these positions, as the first processor gets them."""
        raw = self._subject.rows(
            [(active.logits_key, position + 1) for active, position in zip(actives, positions, strict=True)]
        )
        for row, (active, position) in enumerate(zip(actives, positions, strict=True)):
            self._want(raw[row], active, position + 1 - active.request.prompt_len)
            if active.id in GRAMMAR:
                drawn = torch.Generator().manual_seed(crc32(f"{self._subject.seed} {active.id} {position}".encode()))
                raw[row, torch.rand(raw.shape[1], generator=drawn).to(raw.device) < 0.5] = -torch.inf
        return raw

    def _want(self, row: torch.Tensor, active: ActiveRequest, nth: int) -> None:
        """Make a token the likeliest, and one that the case has the model emit much likelier."""
        if nth < 0:
            return
        subject = self._of(active.variant)
        variant = None if active.variant is None else 0
        wanted = subject.emit(active.logits_key, variant, nth)
        row[wanted] = row.amax() + (4.0 if wanted in subject.case.output_token_ids else 1.0)

    def _of(self, variant: int | None) -> PluginUnderTest:
        """The requests of a variant."""
        if variant not in self._subjects:
            self._subjects[variant] = replace(self._subject, case=self.case(variant))
        return self._subjects[variant]

    @cached_property
    def combinations(self) -> list[int]:
        """The variants that bring both plugins' arguments, no two with the same."""
        found: dict[str, int] = {}
        for variant in BOTH:
            found.setdefault(self.arguments(variant), variant)
        return list(found.values())


def merged(cases: Sequence[Case]) -> Case:
    """One case with everything that these have; of a field that several have, the last one's."""
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
