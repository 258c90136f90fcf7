"""The subject of checks: a plugin, its setup, and the requests that use it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from lpkit.sampling_params import SamplingParams

from lpkit_conformance.settings.cases import FOREIGN_ARGS, RARE, Case, Foreign, make_params, neighbours, variants
from lpkit_conformance.settings.derived import words_of
from lpkit_conformance.subject.memo import Memo
from lpkit_conformance.subject.model import Model
from lpkit_conformance.subject.plugin import Plugin
from lpkit_conformance.subject.setup import Setup
from lpkit_conformance.subject.worlds import World

USUAL_PROMPT = 5
"""Tokens of a prompt, for checks that do not depend on the prompt's length."""

COOL, WARM, TOP_P = 0.75, 1.25, 0.9
"""Temperatures, and a `top_p`, of a third of the requests each."""


@dataclass(frozen=True)
class Subject:
    """A plugin in a setup. Checks read it and cannot change it; their results about it are facts.

    Attributes:
        plugin: the class under test.
        setup: the engine and the case.
        foreign: ``extra_args`` of other processors; requests that do not use the plugin carry only these. Empty: the
            plugin raises for them, and hosts leave them out.
        without, longest: kinds of requests that are left out, as in :class:`Requests`.
        strangers: True if only rows of requests that do not use the plugin can be foretold.
        relatives: other requests than those derived from the case, the case first; None: derive them.
        memo: the facts; new in every copy.
        home: the subject that :meth:`within` was asked of; None in every other copy.
    """

    plugin: Plugin
    setup: Setup
    foreign: Foreign = FOREIGN_ARGS
    without: tuple[str, ...] = ()
    longest: int | None = None
    strangers: bool = False
    relatives: tuple[Case, ...] | None = None
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)
    home: Subject | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, target: str, plugin: Any, host: str, case: Case, **setup: Any) -> Subject:
        """Return a class on a host with a case; ``setup`` are further attributes of :class:`Setup`."""
        return cls(Plugin(target, plugin), Setup(host, case, **setup))

    def having(self, **setup: Any) -> Subject:
        """Return the same plugin with changed attributes of its setup, and without facts."""
        return replace(self, setup=replace(self.setup, **setup))

    def within(self, world: World) -> Subject:
        """Return the same plugin and requests in another engine, without facts."""
        there = self.having(world=world, vocab_size=self.setup.vocab_size + world.more_tokens)
        object.__setattr__(there, "home", self)
        return there

    def as_imported(self) -> AbstractContextManager[None]:
        """Run with the plugin's modules as imported."""
        return self.plugin.as_imported()

    # The plugin's validation is asked only when a check needs it: it may hang, and that check is then to blame.
    @cached_property
    def cases(self) -> Sequence[Case]:
        """The case and its relatives; ``variant`` is an index into them. The neighbours come last."""
        return (*self._usual, *self._neighbours)

    @property
    def variants(self) -> range:
        """The case and its usual relatives, for checks that serve all of them."""
        return range(len(self._usual))

    @property
    def neighbours(self) -> range:
        """Relatives that differ from the case in one thing, and the other given cases."""
        return range(len(self._usual), len(self.cases))

    @property
    def others(self) -> range:
        """The other given cases, with which this case may share an engine."""
        count = sum(other.reasoning == self.setup.case.reasoning for other in self.setup.others)
        return range(len(self.cases) - count, len(self.cases)) if self.relatives is None else range(0)

    @property
    def accompanied(self) -> bool:
        """True if this case is one of the first case's :attr:`others`."""
        return self.setup.turn[0] > 0 and self.setup.others[0].reasoning == self.setup.case.reasoning

    @cached_property
    def _usual(self) -> Sequence[Case]:
        if self.relatives is not None:
            return self.relatives
        if self.home is not None:
            return self.home._usual
        accepted = self._related(variants)
        every = "extra_args" not in self.without
        full = (case for case in accepted if every or _arguments(case) == _arguments(accepted[0]))
        return tuple(case for case in full if case.text not in self.without)

    @cached_property
    def _neighbours(self) -> Sequence[Case]:
        if self.relatives is not None:
            return ()
        if self.home is not None:
            return self.home._neighbours
        case, others = self.setup.case, self.setup.others
        related = self._related(partial(neighbours, fields=self.plugin.fields_read))
        relatives = [relative for relative in related if relative.text not in self.without]
        return (*relatives, *(other for other in others if other.reasoning == case.reasoning))

    def _related(self, derive: Callable[..., list[Case]]) -> list[Case]:
        words = partial(words_of, self.plugin.cls)
        with self.as_imported():
            return derive(self.setup.case, self.plugin.accepts, self.setup.vocab_size, words)

    def most_outputs(self, variant: int | None) -> int | None:
        """Return the most output tokens of a request; None if neither its case nor the plugin limits them."""
        if variant is None:
            return None
        of_case = self.cases[variant % len(self.cases)].fields.get("max_tokens")
        return min(filter(None, (of_case, self.longest)), default=None)

    @property
    def with_less(self) -> list[int]:
        """The variants that lack one of the case's ``extra_args``."""
        return [n for n in self.variants if _arguments(self.cases[n]) < _arguments(self.cases[0])]

    @cached_property
    def model(self) -> Model:
        """The model that serves these requests."""
        if self.home is not None and self.home.setup.vocab_size == self.setup.vocab_size:
            return self.home.model
        return Model(self.setup, self.cases)

    def params(
        self, variant: int | None, greedy: bool = False, salt: int = 0, prompt_len: int = USUAL_PROMPT
    ) -> SamplingParams:
        """Return a request's parameters as they reach the engine; ``variant`` None does not use the plugin."""
        params = self.completed(self.asked(variant, greedy, salt), prompt_len)
        if self.longest and variant is not None:
            params.max_tokens = min(params.max_tokens or self.longest, self.longest)
        return params

    def completed(self, params: SamplingParams, prompt_len: int = USUAL_PROMPT) -> SamplingParams:
        """Return ``params`` with ``max_tokens``, which vLLM's ``InputProcessor`` fills in after validation."""
        if params.max_tokens is None:
            params.max_tokens = self.setup.world.max_model_len - prompt_len
        return params

    def asked(self, variant: int | None, greedy: bool = False, salt: int = 0) -> SamplingParams:
        """Return a request's parameters as a server makes them and ``validate_params`` gets them.

        Requests sometimes carry other plugins' keys, alone or next to this plugin's.
        """
        fields = self._server_fields(salt)
        foreign = copy.deepcopy(self.foreign[salt % len(self.foreign)]) if self.foreign else None
        if variant is None:
            fields["extra_args"] = foreign
        else:
            case = copy.deepcopy(dict(self.cases[variant % len(self.cases)].fields))
            if foreign:
                case["extra_args"] = {**foreign, **(case.get("extra_args") or {})}
            least = 0 if "min_tokens" in self.without or case.get("max_tokens") is not None else salt % 3
            if case.get("temperature") == 1.0:  # V2 would process its row for `top_p` alone, not for a `top_k` of all
                fields["top_p"] = 1.0
            fields = {"min_tokens": least, **fields, **case}
        if greedy and "temperature" not in self.without:
            fields["temperature"] = 0.0
        return make_params(fields)

    def _server_fields(self, salt: int) -> dict[str, Any]:
        """Return the fields that a server writes into every request, independent of the client's values."""
        size = self.setup.vocab_size
        stops = [size - 2, size - 3]  # no program's model chooses them
        second, last = salt % 3 == 1, salt % 3 == 2

        def of_kind(kind: str, turn: bool, value: Any, otherwise: Any = None) -> Any:
            return value if turn and kind not in self.without else otherwise

        rare = [name for nth, name in enumerate(RARE) if (salt + nth) % 2 == 0 and name in self.plugin.fields_read]
        return {
            "temperature": of_kind("cool", second, COOL, of_kind("warm", last, WARM, 1.0)),
            "max_tokens": (None, self.setup.world.max_model_len)[salt % 2],
            "seed": of_kind("seed", salt % 5 == 1, 1000 + salt),
            "top_p": of_kind("top_p", second, TOP_P, 1.0),
            "top_k": of_kind("top_k", last, size, 0),
            "ignore_eos": of_kind("ignore_eos", second, True, False),
            "stop_token_ids": of_kind("stop_token_ids", salt % 4 == 2, stops),
            **{name: RARE[name] for name in rare if name not in self.without},
        }


def _arguments(case: Case) -> int:
    return len(case.fields.get("extra_args") or ())
