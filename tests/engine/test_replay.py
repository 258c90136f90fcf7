"""The real engine and ours on the same requests: the same calls with the same contents, and the same greedy tokens.

Scheduling decisions and logits come from the real engine; what is made of them is each engine's own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.releases import Release, is_before
from unusual_engines import SPECULATIVE, needs_v2_drafts

pytestmark = pytest.mark.engine

Engines = Callable[..., EngineProcess]
V1 = ("replay_probes:V1Log", "replay_probes:V1LogInvariant")
V2 = ("replay_probes:V2Log",)
PREEMPTING: dict[str, Any] = {"max_model_len": 96, "num_gpu_blocks_override": 9, "block_size": 32}


def _asks(
    count: int,
    prompt: int,
    tokens: int,
    every: float = 1.0,
    few: int = 512,
    greedy: bool = False,
    without: Sequence[str] = (),
) -> tuple[Ask, ...]:
    """Requests of random lengths and options, of which some are aborted."""
    rng = random.Random(f"{count} {prompt} {tokens}")
    asks = []
    for index in range(count):
        params: dict[str, Any] = {
            "temperature": rng.choice([0.0, 0.0, 1.0]),
            "max_tokens": rng.randint(4, tokens),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.0, 1.4]),
            "min_p": rng.choice([0.0, 0.0, 0.1]),
            "logit_bias": rng.choice([None, None, {3: 4.0}]),
            "frequency_penalty": rng.choice([0.0, 0.0, 1.0]),
            "allowed_token_ids": rng.choice([None, None, list(range(0, 512, 3))]),
            "min_tokens": rng.choice([0, 0, 4]),
            "stop_token_ids": rng.choice([None, None, list(range(0, 512, 16))]),
        }
        params = {name: value for name, value in params.items() if name not in without}
        if greedy:
            params["temperature"] = 0.0
        at = int(index * every)
        abort = at + rng.randint(0, tokens) if rng.random() < 0.2 else None
        ids = tuple(rng.randrange(few) for _ in range(rng.randint(1, prompt)))
        asks.append(Ask(f"r{index}", ids, params, at=at, abort_at=abort))
    return tuple(asks)


def same(found: dict[str, Any], in_flight: int = 0) -> Counter[str]:
    """Compare every call of every step, and the tokens; return what there was to compare.

    ``in_flight``: steps that begin before the host has the tokens of the last one.
    """
    seen: Counter[str] = Counter()
    for step, theirs, ours in zip(found["steps"], *found["events"], strict=True):
        assert theirs == ours, step
        seen["steps"] += 1
        seen["calls"] += len(theirs)
        seen["preempted"] += len(step["preempted"])
        seen["drafted"] += sum(map(len, step["drafts"].values()))
        seen["kept"] += step["kept"]
    assert not any(found["errors"]), found["errors"]
    theirs, ours = found["tokens"]
    # Drafts that are kept beyond a request's last token are dropped by the scheduler, and the worker's are not.
    most = SPECULATIVE["num_speculative_tokens"]
    beyond = most + in_flight * (most + 1) if seen["drafted"] else 0
    for name, tokens in theirs.items():
        reason = found["reasons"][name]
        seen[reason] += 1
        seen["greedy tokens"] += len(tokens) if found["greedy"][name] else 0
        assert ours.get(name, [])[: len(tokens)] == tokens, name
        assert reason != "length" or len(ours[name]) <= len(tokens) + beyond, name
    return seen


@pytest.fixture(scope="session")
def wrong(release: Release | None) -> tuple[str, ...]:
    """Arguments that this vLLM mixes up: before 0.31 masks of allowed tokens stay in rows that requests leave."""
    return ("allowed_token_ids",) if is_before(release, (0, 31, 0)) else ()


# What vLLM refuses together with drafts.
REFUSED = ("min_p", "logit_bias")
DIFFERENTIAL = "replay_probes:differential"
ASYNC = {"async_scheduling": True}
BOTH = pytest.mark.parametrize("extra", [{}, ASYNC], ids=["sync", "async"])


@BOTH
def test_v1_arrivals_chunks_and_aborts(engines: Engines, extra: dict[str, Any], wrong: tuple[str, ...]) -> None:
    engine = engines(EngineSettings("v1", max_num_batched_tokens=32, extra=extra), V1)
    seen = same(engine.inspect(DIFFERENTIAL, _asks(40, 60, 20, without=wrong)))
    assert seen["steps"] > 60 and seen["greedy tokens"] > 200 and seen["abort"] and seen["stop"]


@BOTH
def test_v1_preemptions(engines: Engines, extra: dict[str, Any], wrong: tuple[str, ...]) -> None:
    engine = engines(EngineSettings("v1", extra=extra, **PREEMPTING), V1)
    seen = same(engine.inspect(DIFFERENTIAL, _asks(20, 40, 50, every=3, without=wrong)))
    assert seen["steps"] > 60 and seen["greedy tokens"] > 200 and seen["preempted"]


def test_v1_installed_under_asynchronous_scheduling(
    engines: Engines, installed: Callable[..., Path], wrong: tuple[str, ...]
) -> None:
    """Placeholders that are never repaired, and lists that shrink when they are."""
    folder = installed("log", a_log=V1[0], b_log=V1[1])
    settings = EngineSettings("v1", max_num_batched_tokens=32, extra=ASYNC)
    # As soon as one request has a penalty, all lists of the batch are repaired.
    asks = _asks(40, 60, 20, without=("repetition_penalty", "frequency_penalty", *wrong))
    params = {"temperature": 0.0, "max_tokens": 6, "presence_penalty": 0.5}
    penalised = (Ask(f"p{at}", (1, 2, 3), params, at=at) for at in (15, 40))
    found = engines(settings, (), [folder]).inspect(DIFFERENTIAL, (*asks, *penalised), False)
    seen = same(found)
    outputs = [ids for step in found["events"][0] for event in step if event[1] == "apply" for ids in event[-1]]
    assert sum(ids.count(-1) > 1 for ids in outputs) > 20
    assert seen["steps"] > 60 and seen["greedy tokens"] > 200 and seen["abort"] and seen["stop"]


@BOTH
def test_v2_arrivals_chunks_and_aborts(engines: Engines, extra: dict[str, Any]) -> None:
    engine = engines(EngineSettings("v2", max_num_seqs=6, max_num_batched_tokens=32, extra=extra), V2)
    seen = same(engine.inspect(DIFFERENTIAL, _asks(24, 60, 14)))
    assert seen["steps"] > 30 and seen["greedy tokens"] > 60 and seen["abort"] and seen["stop"]


@BOTH
def test_v2_preemptions(engines: Engines, extra: dict[str, Any]) -> None:
    engine = engines(EngineSettings("v2", max_num_seqs=6, extra=extra, **PREEMPTING), V2)
    seen = same(engine.inspect(DIFFERENTIAL, _asks(7, 40, 45)))
    assert seen["steps"] > 40 and seen["greedy tokens"] > 60 and seen["preempted"]


@needs_v2_drafts
@BOTH
def test_v2_drafts(engines: Engines, extra: dict[str, Any]) -> None:
    """Drafts looked up in what was written so far, among preemptions and aborts."""
    method = {"method": "ngram_gpu"} if extra else {}  # the one that is drafted where the tokens are
    drafting = {"speculative_config": {**SPECULATIVE, **method}, **extra}
    settings = EngineSettings("v2", max_num_seqs=6, extra=drafting, **PREEMPTING)
    engine = engines(settings, V2)
    seen = same(
        engine.inspect(DIFFERENTIAL, _asks(12, 40, 50, few=8, greedy=True, without=REFUSED)), in_flight=len(extra)
    )
    assert seen["drafted"] > 200 and seen["kept"] > 20 and seen["greedy tokens"] > 100 and seen["abort"]
