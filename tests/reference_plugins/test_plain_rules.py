"""Plugins of the logits stage against their rules in plain Python; test_in_transformers.py has transformers' own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lpkit import dynamo
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from oracles import agree
from plain_rules import ruled
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of
from shipped import PLUGINS, load

VOCAB = 320  # longer than the sets that are kept as lists


def text(rng: random.Random, kinds: int, longest: int, least: int = 0) -> list[int]:
    """Few kinds of tokens, so that repetitions and markers are common."""
    return [rng.randrange(kinds) for _ in range(rng.randint(least, longest))]


def stutters(rng: random.Random) -> list[int]:
    """Stretches of few kinds of tokens, copied sometimes."""
    made = text(rng, 6, 20, least=2)
    while len(made) < 100 and rng.random() < 0.9:
        start = rng.randrange(len(made))
        made += made[start : start + rng.randint(1, 20)] if rng.random() < 0.7 else [rng.randrange(10)]
    return made


def loops(rng: random.Random) -> list[int]:
    """A loop behind other tokens; sometimes it was left, and sometimes an end has begun."""
    looped = (text(rng, 9, 8, least=1) * 12)[: rng.randint(0, 60)]
    if rng.random() < 0.2 and looped:
        looped[rng.randrange(len(looped))] = 10
    return [*text(rng, 9, 9), *looped, *[1, 2, 4][: rng.randrange(4)]]


def bias(rng: random.Random) -> dict[str, Any]:
    ids = rng.sample(range(VOCAB), rng.choice([1, 2, 7, VOCAB]))
    return {"logit_bias_ids": ids, "logit_bias_values": [rng.choice([-100.0, rng.uniform(-100, 100)]) for _ in ids]}


def cites(rng: random.Random) -> dict[str, Any]:
    return {
        "cite_boost": rng.uniform(-9, 9),
        "cite_next_boost": rng.uniform(-9, 9),
        "cite_also": rng.sample(range(VOCAB), rng.randint(0, 3)),
    }


def penalizes(rng: random.Random) -> dict[str, Any]:
    others = {f"penalties_{key}": rng.uniform(-2, 2) for key in ("presence", "frequency")}
    return {"penalties_repetition": rng.uniform(0.5, 2.0), **others}


def dries(rng: random.Random) -> dict[str, Any]:
    return {
        "dry_multiplier": rng.uniform(0.1, 3),
        "dry_base": rng.uniform(1, 2),
        "dry_allowed_length": rng.randint(1, 4),
        "dry_range": rng.choice([0, 0, 5, 30, 500]),
        "dry_breakers": rng.sample(range(10), rng.randint(0, 2)),
    }


def breaks_loops(rng: random.Random) -> dict[str, Any]:
    end = rng.choice([{}, {"loop_end": [7]}, {"loop_end": [1, 2, 4]}])
    return {"loop_times": rng.choice([2, 2, 3, 4]), "loop_tokens": rng.choice([2, 4, 12]), **end}


def budgets(rng: random.Random) -> dict[str, Any]:
    return {
        "think_budget": rng.randint(0, 6),
        "think_start": text(rng, 4, 2, least=1),
        "think_end": text(rng, 4, 4, least=2),
    }


Drawn = tuple[Callable[[random.Random], dict[str, Any]], Callable[[random.Random], list[int]]]
DRAWN: dict[str, Drawn] = {
    "allowed-tokens": (
        lambda rng: {"allowed_tokens": rng.sample(range(VOCAB), rng.choice([1, 2, 9, 120, VOCAB - 1, VOCAB]))},
        lambda rng: text(rng, 9, 9),
    ),
    "cite-from-prompt": (cites, lambda rng: text(rng, 20, 50)),
    "dry": (dries, stutters),
    "forced-sequence": (
        lambda rng: {"forced_sequence": text(rng, VOCAB, 20, least=1), **rng.choice([{}, {"forced_sequence_end": 1}])},
        lambda rng: [9] * rng.randrange(22),
    ),
    "logit-bias": (bias, lambda rng: text(rng, 9, 9)),
    "loop-breaker": (breaks_loops, loops),
    "no-repeat-ngram": (
        lambda rng: {"no_repeat_ngram_size": rng.randint(1, 5), "no_repeat_ngram_window": rng.choice([0, 1, 4, 20])},
        lambda rng: text(rng, 4, 60),
    ),
    "ocr-ngram": (
        lambda rng: {
            "ngram_size": rng.randint(2, 5),
            "window_size": rng.choice([4, 9, 20, 100]),
            "whitelist_token_ids": rng.sample(range(3), rng.randint(0, 2)),
        },
        lambda rng: text(rng, 3, 60),
    ),
    "penalties": (penalizes, lambda rng: [token + 3 for token in text(rng, 20, 90)]),
    "target-token": (lambda rng: {"target_token": rng.choice([0, 7, VOCAB - 1])}, lambda rng: text(rng, 9, 9)),
    "thinking-budget": (budgets, lambda rng: text(rng, 4, 40)),
}
"""Arguments and outputs of a plugin's requests; prompts are of few kinds of tokens."""


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", DRAWN)
def test_a_plugin_edits_as_its_rule_in_plain_python(applied: Applied, name: str, seed: int) -> None:
    rng = random.Random(seed)
    arguments, output = DRAWN[name]
    asked = [Asked(arguments(rng), text(rng, 6, 50, least=1), output(rng)) for _ in range(48)]
    asked[7] = Asked(None, [1, 2], [1, 1, 1])
    logits = logits_of(len(asked), VOCAB, seed)
    (plugin,) = (folder for folder in PLUGINS if folder.name == f"lpkit-{name}")
    result = applied(load(plugin), logits, asked)
    expected = logits.double()
    for row, request in enumerate(asked):
        found = ruled(logits[row].double().numpy(), request.args or {}, [*request.prompt], [*request.output])
        expected[row] = torch.from_numpy(found)
    agree(result, expected, "the rule in plain Python", within=1e-5, relative=True)
    assert 10 < int((result != logits).any(1).sum()) < len(asked)


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_disaggregated_the_reply_is_the_prefill_workers_token_and_then_the_sequence(engine: Any) -> None:
    spec = dynamo.LogitsProcessorSpec((dynamo.ForcedTokenSequenceSpec((40, 41, 42), 3),))
    (plugin,) = (folder for folder in PLUGINS if folder.name == "lpkit-forced-sequence")

    def reply(role: str, prompt: list[int], max_tokens: int) -> list[int]:
        params = SamplingParams(temperature=0.0)
        dynamo.activate(params, dynamo.entries_for(spec, role))
        scheduler = Scheduler(engine([load(plugin)], device="cpu"))
        scheduler.submit(Request("r", params, prompt, max_tokens))
        return scheduler.run()["r"]

    leading = reply("prefill", [5] * 6, 1)
    assert leading not in ([40], [3])
    assert reply("decode", [*[5] * 6, *leading], 5) == reply("agg", [5] * 6, 5) == [40, 41, 42, 3, 3]
