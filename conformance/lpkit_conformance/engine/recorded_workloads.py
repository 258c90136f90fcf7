"""The workloads that are recorded: fixed requests of fixed lengths, so that events never depend on tokens.

Stop tokens are ignored and every request has its length from ``max_tokens``: the scheduler then does the same thing on
every machine, whatever is sampled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.drafted import NGRAM
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.runners import V1, V2, Runner


@dataclass(frozen=True)
class RecordedWorkload:
    """``asks`` sent to an engine with ``settings``; None for both: driven through vLLM's InputBatch alone.

    ``decodes_first``: V1 sorts its batch, as some attention backends ask for.
    """

    runner: Runner
    name: str
    summary: str
    settings: EngineSettings | None = None
    asks: tuple[Ask, ...] = ()
    decodes_first: bool = False

    @property
    def trace_name(self) -> str:
        return f"{self.runner}_{self.name}"


def _asks(
    count: int,
    prompt: Callable[[int, random.Random], int],
    tokens: Callable[[int, random.Random], int],
    at: Callable[[int, random.Random], int] = lambda i, rng: 0,
    abort: Callable[[int, random.Random], int | None] = lambda i, rng: None,
) -> tuple[Ask, ...]:
    """Requests r0, r1, ...: every third greedy, the others sampled from the engine's random numbers.

    None has a seed: on a CPU, a seeded request in a partial prefill kills the V1 engine of vLLM 0.32.
    """
    rng = random.Random(20)
    asks = []
    for index in range(count):
        prompt_ids = tuple(rng.randrange(EngineSettings.vocab_size) for _ in range(prompt(index, rng)))
        params: dict[str, Any] = {"max_tokens": tokens(index, rng), "temperature": 1.0 if index % 3 else 0.0}
        asks.append(Ask(f"r{index}", prompt_ids, params, at=at(index, rng), abort_at=abort(index, rng)))
    return tuple(asks)


def _preempting(runner: Runner, max_num_seqs: int) -> EngineSettings:
    # Nine blocks of 32 tokens, one of them reserved: three requests of 96 tokens do not fit.
    return EngineSettings(runner, max_num_seqs=max_num_seqs, max_model_len=96, num_gpu_blocks_override=9, block_size=32)


_LOOP = (57, 164, 499, 431, 413, 495, 192, 193, 54, 275, 181, 124, 231)
"""Greedy output of the exact model after any of these tokens: the loop, again and again."""


def _drafting() -> tuple[Ask, ...]:
    """Requests whose prompts hold the loop with errors, so that of a step's drafts none, some or all are right.

    How many tokens a step commits depends on the tokens, and so on a model whose logits are the same on every machine.
    """
    prompts, tokens, arrivals = (50, 56, 9, 61, 40, 14, 20), (16, 40, 10, 26, 22, 8, 12), (0, 0, 1, 2, 3, 6, 9)
    rng = random.Random(21)
    asks = []
    for index, (length, count, at) in enumerate(zip(prompts, tokens, arrivals, strict=True)):
        written = [_LOOP[(place + 2 * index) % len(_LOOP)] for place in range(length)]
        for place in range(rng.randrange(2, 5), length - 1, 4 + index % 3):
            written[place] = rng.choice([token for token in range(EngineSettings.vocab_size) if token not in _LOOP])
        params = {"max_tokens": count, "temperature": 1.0 if index % 3 == 2 else 0.0}
        asks.append(Ask(f"r{index}", tuple(written), params, at=at))
    return tuple(asks)


def _speculating(config: Mapping[str, Any], **extra: Any) -> EngineSettings:
    settings = replace(_preempting(V2, 6), max_num_batched_tokens=64, exact=True)
    return replace(settings, extra={"speculative_config": config, **extra})


_V1 = (
    RecordedWorkload(
        V1,
        "steady",
        "six requests that arrive together and decode together",
        EngineSettings(V1),
        _asks(6, lambda i, rng: 4 + 3 * i, lambda i, rng: 40),
    ),
    RecordedWorkload(
        V1,
        "churn",
        "forty requests of all lengths through eight rows: replacements, removals, condense moves",
        EngineSettings(V1),
        _asks(
            40,
            lambda i, rng: rng.randint(1, 24),
            lambda i, rng: rng.choice((1, 2, 3, 5, 8, 13, 21)),
            at=lambda i, rng: 2 * i + rng.randrange(3),
        ),
    ),
    RecordedWorkload(
        V1,
        "chunked",
        "prompts longer than a step's token budget: rows that are sampled before their prompt is complete",
        EngineSettings(V1, max_num_batched_tokens=32),
        _asks(
            12,
            lambda i, rng: rng.choice((3, 20, 40, 70, 120)),
            lambda i, rng: rng.randint(2, 16),
            at=lambda i, rng: 4 * i,
        ),
    ),
    RecordedWorkload(
        V1,
        "preempt",
        "more tokens than the cache holds: requests leave, and come back with their outputs",
        _preempting(V1, 8),
        _asks(12, lambda i, rng: rng.randint(8, 40), lambda i, rng: rng.randint(20, 50), at=lambda i, rng: 3 * i),
    ),
    RecordedWorkload(
        V1,
        "aborts",
        "requests aborted while waiting, in a partial prefill, while decoding, and all at once",
        EngineSettings(V1, max_num_batched_tokens=48),
        _asks(
            28,
            lambda i, rng: rng.choice((4, 9, 30, 100)),
            lambda i, rng: rng.randint(6, 24),
            at=lambda i, rng: 2 * i if i < 20 else 70,
            abort=lambda i, rng: 76 if i >= 20 else 2 * i + rng.randint(1, 9) if i % 2 else None,
        ),
    ),
    RecordedWorkload(
        V1,
        "big",
        "a batch of up to ninety-six requests",
        EngineSettings(V1, max_num_seqs=96),
        _asks(150, lambda i, rng: rng.randint(1, 6), lambda i, rng: rng.randint(2, 24), at=lambda i, rng: i // 30),
    ),
    RecordedWorkload(
        V1,
        "async",
        "asynchronous scheduling: the newest output is a placeholder during the update, and requests come back "
        "with a new list",
        replace(_preempting(V1, 6), max_num_batched_tokens=64, extra={"async_scheduling": True}),
        _asks(
            12,
            lambda i, rng: (58, 60, 9, 61, 30, 4)[i % 6],
            lambda i, rng: rng.randint(3, 12),
            at=lambda i, rng: 2 * i,
            abort=lambda i, rng: 2 * i + 4 if i % 5 == 4 else None,
        ),
    ),
    RecordedWorkload(
        V1,
        "sorted",
        "a running engine that sorts its batch, decodes before prefills: swaps next to arrivals, moves and partial "
        "prefills",
        EngineSettings(V1, max_num_batched_tokens=40),
        _asks(
            16,
            lambda i, rng: (12, 3, 60, 20, 75, 5)[i % 6],
            lambda i, rng: (2, 9, 4, 14, 3, 6, 11)[i % 7],
            at=lambda i, rng: i + i // 4,
            abort=lambda i, rng: i + i // 4 + 5 if i % 6 == 2 else None,
        ),
        decodes_first=True,
    ),
    RecordedWorkload(V1, "swaps", "swaps and chains of swaps among adds, removes and moves, through vLLM's InputBatch"),
)

_V2 = (
    RecordedWorkload(
        V2,
        "steady",
        "four requests that arrive together and decode together",
        EngineSettings(V2),
        _asks(4, lambda i, rng: 4 + 3 * i, lambda i, rng: 12),
    ),
    RecordedWorkload(
        V2,
        "churn",
        "twenty requests of all lengths through six slots",
        EngineSettings(V2, max_num_seqs=6),
        _asks(
            20,
            lambda i, rng: rng.randint(1, 16),
            lambda i, rng: rng.choice((1, 2, 3, 5, 8)),
            at=lambda i, rng: i + rng.randrange(2),
        ),
    ),
    RecordedWorkload(
        V2,
        "chunked",
        "prompts longer than a step's token budget",
        EngineSettings(V2, max_num_seqs=4, max_num_batched_tokens=32),
        _asks(6, lambda i, rng: (5, 70, 40, 9, 100, 33)[i], lambda i, rng: 4 + i, at=lambda i, rng: 2 * i),
    ),
    RecordedWorkload(
        V2,
        "preempt",
        "more tokens than the cache holds: requests leave, and come back in other slots",
        _preempting(V2, 6),
        _asks(7, lambda i, rng: 20 + 2 * i, lambda i, rng: 24 + 6 * (i % 4)),
    ),
    RecordedWorkload(
        V2,
        "drafts",
        "three n-gram drafts per request and step: rows behind rows, drafts that are right, wrong or left out, next to "
        "partial prefills and preemption",
        _speculating(NGRAM),
        _drafting(),
    ),
    RecordedWorkload(
        V2,
        "async",
        "drafts under asynchronous scheduling: the host bounds count the last step's drafts as right, and slots "
        "are freed a step late",
        _speculating({**NGRAM, "method": "ngram_gpu"}, async_scheduling=True),
        _drafting(),
    ),
)

WORKLOADS: dict[str, RecordedWorkload] = {workload.trace_name: workload for workload in (*_V1, *_V2)}
