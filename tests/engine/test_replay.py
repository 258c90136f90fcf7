"""The real engine and ours on the same requests: the same calls with the same contents, and the same greedy tokens.

Scheduling decisions and logits come from the real engine; what is made of them is each engine's own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.recording.engine import Ask, EngineSettings
from lpkit_conformance.recording.process import EngineProcess

pytestmark = pytest.mark.engine

PROBES = Path(__file__).parent / "probes"
V1 = ("replay_probes:V1Log", "replay_probes:V1LogInvariant")
V2 = ("replay_probes:V2Log",)
SPECULATIVE = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
PREEMPTING = {"max_model_len": 96, "num_gpu_blocks_override": 9, "block_size": 32}


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


def same(found: dict[str, Any]) -> Counter[str]:
    """Compare everything; return what there was to compare."""
    seen: Counter[str] = Counter()
    for step, (theirs, ours) in enumerate(zip(*found["events"], strict=True)):
        assert theirs == ours, (step, found["steps"][step])
        seen["events"] += len(theirs)
        seen["applies"] += sum("apply" in event[:2] for event in theirs)
    assert not any(found["errors"]), found["errors"]
    theirs, ours = found["tokens"]
    for name, tokens in theirs.items():
        assert ours.get(name, [])[: len(tokens)] == tokens, name
        if found["reasons"][name] == "length":
            assert len(ours[name]) == len(tokens), name
        seen["tokens"] += len(tokens)
        seen["greedy tokens"] += len(tokens) if found["greedy"][name] else 0
    for step in found["steps"]:
        seen["steps"] += 1
        seen["preempted"] += len(step["preempted"])
        seen["drafted"] += sum(map(len, step["drafts"].values()))
        seen["idle"] += not step["plan"]
    seen["stopped"] = sum(reason == "stop" for reason in found["reasons"].values())
    seen["aborted"] = sum(reason == "abort" for reason in found["reasons"].values())
    print(dict(seen))
    return seen


class Process(EngineProcess):
    def restart(self, settings: EngineSettings, logits_processors: Sequence[Any] = ()) -> None:
        if settings.extra.get("async_scheduling"):
            self.call("plugin_probes:allow_async_scheduling")
        if settings.runner == "v2":
            self.call("plugin_probes:accept_integer_masks")
        super().restart(settings, logits_processors)


@pytest.fixture(scope="module")
def v1() -> Iterator[Process]:
    with Process(EngineSettings("v1"), V1, sys_path=[PROBES]) as engine:
        yield engine


@pytest.fixture(scope="module")
def v2() -> Iterator[Process]:
    with Process(EngineSettings("v2"), V2, sys_path=[PROBES]) as engine:
        yield engine


# What vLLM refuses together with drafts.
REFUSED = ("min_p", "logit_bias")
ASYNC = {"async_scheduling": True}


@pytest.mark.parametrize("extra", [{}, ASYNC], ids=["sync", "async"])
def test_v1_arrivals_chunks_and_aborts(v1: Process, extra: dict[str, Any]) -> None:
    v1.restart(EngineSettings("v1", max_num_batched_tokens=32, extra=extra), V1)
    seen = same(v1.inspect("replay_probes:differential", _asks(40, 60, 20)))


@pytest.mark.parametrize("extra", [{}, ASYNC], ids=["sync", "async"])
def test_v1_preemptions(v1: Process, extra: dict[str, Any]) -> None:
    v1.restart(EngineSettings("v1", extra=extra, **PREEMPTING), V1)
    seen = same(v1.inspect("replay_probes:differential", _asks(12, 40, 50, every=3)))


def test_v1_installed_under_asynchronous_scheduling(installed: Callable[..., Path]) -> None:
    """Placeholders that nobody repairs, and lists that shrink when somebody does."""
    folder = installed("log", a_log=V1[0], b_log=V1[1])
    settings = EngineSettings("v1", max_num_batched_tokens=32, extra=ASYNC)
    with Process(settings, [], sys_path=[PROBES, folder]) as engine:
        same(engine.inspect("replay_probes:differential", _asks(40, 60, 20), False))


def test_v2_arrivals_chunks_and_aborts(v2: Process) -> None:
    v2.restart(EngineSettings("v2", max_num_seqs=6, max_num_batched_tokens=32), V2)
    seen = same(v2.inspect("replay_probes:differential", _asks(24, 60, 14)))


def test_v2_preemptions(v2: Process) -> None:
    v2.restart(EngineSettings("v2", max_num_seqs=6, **PREEMPTING), V2)
    seen = same(v2.inspect("replay_probes:differential", _asks(7, 40, 45)))


def test_v2_drafts(v2: Process) -> None:
    """Drafts looked up in what was written so far."""
    v2.restart(
        EngineSettings("v2", max_num_seqs=6, max_num_batched_tokens=48, extra={"speculative_config": SPECULATIVE}), V2
    )
    asks = _asks(20, 24, 24, few=8, greedy=True, without=REFUSED)
    seen = same(v2.inspect("replay_probes:differential", asks))
