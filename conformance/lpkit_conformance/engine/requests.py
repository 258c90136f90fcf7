"""The requests that a real engine serves: some use the plugin, and others do not."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, NamedTuple

from lpkit_conformance.checks.engine.asks import Answer, Ask, Workload
from lpkit_conformance.engine.drafted import REFUSED
from lpkit_conformance.settings.cases import FOREIGN_ARGS, Case
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

BLOCK = 32
MAX_MODEL_LEN = 96
MAX_NUM_SEQS = 6
ROOMY_MODEL_LEN = 512
"""Model length of an engine that serves a saved failure or a trace."""

LARGE_VOCAB = 4096
"""Above it every position costs so much that the short workloads have to do."""

MOST_BAD = 16

MOST_TEXT = 40
"""Most tokens of a request whose case names output, if its shape has fewer."""

TEMPERATURES = (1.0, 0.7, 1.3)
"""Temperatures of sampled requests whose case names none."""


class Shape(NamedTuple):
    """One request: prompt length, output tokens, arrival step, whether it uses the plugin, whether it is sampled."""

    prompt: int
    tokens: int
    at: int
    uses: bool
    sampled: bool
    abort_at: int | None = None


# 32 tokens per step and eight blocks of 32: long prompts come in pieces, and not all requests fit.
TIGHT: dict[Runner, tuple[Shape, ...]] = {
    V1: (
        Shape(60, 30, 0, True, False),
        Shape(60, 30, 0, False, False),
        Shape(40, 20, 1, True, True),
        Shape(5, 24, 1, False, True),
        Shape(61, 30, 2, True, False),
        Shape(7, 12, 2, False, False),
        Shape(33, 25, 4, True, True),
        Shape(3, 40, 5, False, False),
        Shape(20, 30, 9, True, False, 20),
        Shape(9, 14, 14, True, False),
        Shape(12, 20, 18, False, True),
        Shape(50, 20, 22, True, False),
        Shape(4, 10, 30, False, False),
        Shape(6, 12, 33, True, True),
    ),
    V2: (
        Shape(60, 7, 0, True, False),
        Shape(60, 7, 0, False, False),
        Shape(61, 6, 1, True, True),
        Shape(60, 6, 1, True, False),
        Shape(5, 4, 3, False, True),
        Shape(33, 3, 9, False, False),
        Shape(9, 4, 14, True, True),
    ),
}

# Short requests that come and go in waves; none is interrupted, so that each may have a seed (below).
LENGTHS = (2, 9, 4, 13, 6, 3, 11)
WAVES: dict[Runner, tuple[Shape, ...]] = {
    V1: tuple(Shape(3 + i % 4, LENGTHS[i % 7], 2 * i + i // 6 * 8, i % 3 != 2, i % 2 == 0) for i in range(18)),
    V2: tuple(Shape(3 + i % 4, (2, 5, 3, 6, 4)[i % 5], i + i // 4 * 3, i % 3 != 2, i % 2 == 0) for i in range(7)),
}


def make(
    runner: Runner,
    cases: Sequence[Case],
    invariant: bool,
    bad: Sequence[tuple[str, dict[str, Any]]],
    vocab_size: int,
    seed: int,
) -> Workload:
    """The workload of a runner.

    Args:
        cases: ways to use the plugin, given out in turn.
        invariant: V1's claim of the plugin.
        bad: arguments that the plugin refuses, as text and as ``extra_args``.
    """
    size: Runner = V2 if vocab_size > LARGE_VOCAB else runner
    maker = _Maker(cases, vocab_size, seed, invariant)
    tight = tuple(maker.asks("t", TIGHT[size], seeded=False))
    waves = tuple(maker.asks("w", WAVES[size], seeded=True))
    if any(len(ask.prompt_token_ids) + ask.params["max_tokens"] >= BLOCK for ask in waves):
        # A seed in a partial prefill ends vLLM's V1 engine on a CPU, and longer requests may be preempted.
        waves = tuple(
            replace(ask, params={key: value for key, value in ask.params.items() if key != "seed"}) for ask in waves
        )
    refused = [
        (text, Ask(f"bad{n}", maker.prompt(f"bad{n}", 4), {**arguments(None, 3, False), "extra_args": args}, at=n))
        for n, (text, args) in enumerate(bad[:MOST_BAD])
    ]
    both = {ask.request_id: ask for ask in (*tight, *waves)}
    unjudged = frozenset(name for name, ask in both.items() if invariant and ask.params["temperature"] == 0)
    drafted = tuple(maker.drafted()) if runner == V2 else ()
    company = tuple(ask for ask in waves if ask.params["temperature"] == 0 or "seed" in ask.params)[:4]
    listed = _listed([batch for batch in (tight, waves, drafted) if batch], frozenset(maker.users))
    return Workload((tight, waves), frozenset(maker.users), unjudged, tuple(refused), company, listed, drafted=drafted)


def _listed(batches: Sequence[Sequence[Ask]], users: frozenset[str]) -> tuple[str, ...]:
    lines = []
    for batch, what in zip(
        batches, ("prompts in pieces, preemption", "waves of short requests", "drafts"), strict=False
    ):
        uses = sum(ask.request_id in users for ask in batch)
        lines.append(f"{batch[0].request_id}..{batch[-1].request_id}: {what}; {uses} of {len(batch)} use the plugin")
    return tuple(lines)


class _Maker:
    def __init__(self, cases: Sequence[Case], vocab_size: int, seed: int, invariant: bool) -> None:
        self._cases, self._vocab, self._seed, self._invariant = cases, vocab_size, seed, invariant
        self._next = 0
        self.users: set[str] = set()

    def asks(self, prefix: str, shapes: Sequence[Shape], seeded: bool) -> Iterator[Ask]:
        for n, shape in enumerate(shapes):
            name = f"{prefix}{n}"
            case = None
            if shape.uses:
                case = self._cases[self._next % len(self._cases)]
                self._next += 1
                self.users.add(name)
            # Greedy requests say nothing about a processor that they do not concern.
            sampled = shape.sampled or (self._invariant and n % 4 != 1)
            text = self._text(case, shape.tokens) if case else ()
            tokens = len(text) or shape.tokens
            params = arguments(case, tokens, sampled, n)
            if seeded and params["temperature"]:
                params["seed"] = 100 + n
            prompt_end = case.prompt_token_ids if case else ()
            prompt = (*self.prompt(name, max(shape.prompt - len(prompt_end), 1)), *prompt_end)
            prompt = prompt[-(MAX_MODEL_LEN - tokens) :]
            yield Ask(name, prompt, params, shape.at, shape.abort_at, logits=True, text=text)

    def drafted(self) -> Iterator[Ask]:
        """Requests whose prompts hold their texts with errors, so that of a step's drafts none, some or all are right.

        Greedy or sampled, with and without the plugin.
        """
        for n, tokens in enumerate((12, 9, 14, 7)):
            name, uses = f"d{n}", n != 1
            case = self._cases[n % len(self._cases)] if uses else None
            if uses:
                self.users.add(name)
            loop = (case.output_token_ids if case else ()) or self.prompt(f"{name} text", 7)
            text = tuple(islice(cycle(loop), tokens))
            prompt = list(islice(cycle(loop), 2 * len(loop)))
            for place in range(2, len(prompt), 4 + n % 3):
                prompt[place] = self.prompt(f"{name} error {place}", 1)[0]
            params = arguments(case, tokens, n % 2 == 0, n)
            params = {key: value for key, value in params.items() if key not in REFUSED}
            prompt_end = case.prompt_token_ids if case else ()
            yield Ask(name, (*prompt, *prompt_end)[-(MAX_MODEL_LEN - tokens) :], params, 2 * n, logits=True, text=text)

    def _text(self, case: Case, tokens: int) -> tuple[int, ...]:
        """The output that the case names, repeated; empty if it names none."""
        named = case.output_token_ids
        return tuple(islice(cycle(named), max(tokens, min(len(named) + 2, MOST_TEXT)))) if named else ()

    def prompt(self, name: str, length: int) -> tuple[int, ...]:
        rng = random.Random(f"{self._seed} {name}")
        return tuple(rng.randrange(self._vocab) for _ in range(length))


def arguments(case: Case | None, tokens: int, sampled: bool, n: int = 0) -> dict[str, Any]:
    """Return the fields of the ``n``-th request's ``SamplingParams``; without a case it does not use the plugin."""
    fields = copy.deepcopy(dict(case.fields)) if case else {}
    for name in ("n", "seed", "stop", "stop_token_ids", "logprobs", "prompt_logprobs"):
        fields.pop(name, None)
    if case is None and (args := FOREIGN_ARGS[n % len(FOREIGN_ARGS)]) is not None:
        fields["extra_args"] = dict(args)
    fields["temperature"] = fields.get("temperature", TEMPERATURES[n % len(TEMPERATURES)]) if sampled else 0.0
    return {**fields, "max_tokens": tokens, "min_tokens": 0, "ignore_eos": True}


def following(asks: Sequence[Ask], alone: Mapping[str, Answer]) -> tuple[Ask, ...]:
    """The requests again; a sampled one is to follow the text that it sampled alone."""
    return tuple(
        replace(ask, text=tuple(alone[ask.request_id].token_ids))
        if ask.params["temperature"] and ask.request_id in alone
        else ask
        for ask in asks
    )
