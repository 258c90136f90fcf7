"""Correct processors of the zoo that look odd, all in one real engine on each runner: none is blamed, and all act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.checks.engine.evidence import Tally
from lpkit_conformance.engine import following
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings, TinyEngine
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

pytestmark = pytest.mark.engine

ZOO = Path(__file__).parents[1] / "conformance"
SPECIMENS: dict[str, dict[str, Any]] = {
    "zoo.correct.portable:PortableMinP": {"temperature": 0.8, "extra_args": {"min_p": 0.2}},
    "zoo.correct.portable:PortableRepetition": {"extra_args": {"rep_penalty": 1.7}},
    "zoo.correct.portable:PortableTokenBias": {"extra_args": {"pb_bias": 3.0, "pb_token": 17}},
    "zoo.correct.portable:PortableMinTokens": {"extra_args": {"least_tokens": 5}},
    "zoo.correct.portable:PortableCopyBoost": {"extra_args": {"copy_boost": 1.2}},
    "zoo.correct.portable:PortableXtc": {"extra_args": {"xtc_threshold": 0.05}},
    "zoo.correct.portable:PortableBan": {"extra_args": {"ban_ids": [5, 8, 13]}},
    "zoo.correct.portable_odd:NoisyBySeed": {"seed": 11, "extra_args": {"jitter_scale": 2.0}},
    "zoo.correct.portable_odd:Eta": {"extra_args": {"eta_epsilon": 0.02}},
    "zoo.correct.adapter:AdapterPartial": {"extra_args": {"ad_amount": 2.25}},
}
TOKENS: dict[Runner, int] = {V1: 6, V2: 3}  # a step of V2 takes a tenth of a second and more


def requests(runner: Runner) -> list[Ask]:
    """Two of each, in waves of three: rows and slots are replaced while others run."""
    asks = []
    for name, fields in SPECIMENS.items():
        if runner == V2 and "Adapter" in name:
            continue
        for twin in range(2):
            number = len(asks)
            params = {"temperature": 1.0, **fields, "max_tokens": TOKENS[runner] - number % 3}
            prompt = tuple(3 + (7 * number + step) % 90 for step in range(2 + number % 4))
            asks.append(Ask(f"{name}/{twin}", prompt, params, at=number // 3 * 2, logits=True))
    return asks


@pytest.mark.parametrize("runner", [V1, V2])
def test_correct_processors_get_the_same_logits_alone_and_in_the_batch_and_all_act(
    processes: Callable[[Runner], EngineProcess], engines: Callable[..., EngineProcess], runner: Runner
) -> None:
    settings = EngineSettings(runner, vocab_size=128, max_num_seqs=5, exact=True, logprobs_mode="processed_logits")
    asks = requests(runner)
    names = list(dict.fromkeys(ask.request_id.partition("/")[0] for ask in asks))
    settings = replace(settings, extra=processes(runner).call(following.replay, runner))
    engine = engines(settings, names, [ZOO])
    if runner == V1:
        engine.inspect(TinyEngine.follow_texts)
    alone: dict[str, Answer] = {}
    plain: dict[str, Answer] = {}
    for ask in asks:
        alone.update(engine.generate([replace(ask, at=0)]))
        text = tuple(alone[ask.request_id].token_ids)
        without = {key: value for key, value in ask.params.items() if key != "extra_args"}
        plain.update(engine.generate([replace(ask, at=0, text=text, params=without)]))
    mixed = engine.generate(replace(ask, text=tuple(alone[ask.request_id].token_ids)) for ask in asks)
    assert not [answer.error for answer in (*alone.values(), *plain.values(), *mixed.values()) if answer.error]
    tally, acted = Tally(), set()
    for name, answer in mixed.items():
        assert answer.token_ids == alone[name].token_ids
        assert tally.compare(answer.rows, alone[name].rows, plain[name].rows) is None, name
        if not np.array_equal(answer.rows, plain[name].rows, equal_nan=True):
            acted.add(name.partition("/")[0])
    assert acted == set(names)
    assert tally.positions == sum(len(answer.token_ids) for answer in mixed.values())
