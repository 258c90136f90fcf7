"""Speculative decoding on V2: several rows per request, and every one is processed with the history it would have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit_conformance.discovery.releases import Release
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Answer, Ask
from unusual_engines import DraftingEngine, drafting, needs_v2_drafts

pytestmark = [pytest.mark.engine, pytest.mark.needs_release("0.31")]

ROOT = Path(__file__).resolve().parents[2]
PROBES = Path(__file__).parent / "probes"
PLUGINS = (
    "lpkit_no_repeat_ngram.processor:NoRepeatNgram",
    "lpkit_target_token.processor:TargetToken",
    "portable_probes:Ascend",
    "portable_probes:AscendByRequest",
    "portable_probes:Count",
    "portable_probes:Weary",
)
# What these requests have to write stands in their prompts, so their drafts are right and are kept.
STAIRS = (*range(1, 31), *range(1, 4))


def _ask(name: str, tokens: int, at: int = 0, stairs: bool = False, **extra_args: Any) -> Ask:
    seed = random.Random(name)
    # Few kinds of tokens: drafts are found.
    prompt = STAIRS if stairs else tuple(seed.randrange(8) for _ in range(20))
    params = {"max_tokens": tokens, "temperature": 0.0, "extra_args": extra_args or None}
    return Ask(name, prompt, params, at=at, logits=True)


ASKS = (
    _ask("off", 30),
    _ask("off, too", 20, at=4),
    _ask("target", 24, at=1, target_token=3),
    _ask("no pair twice", 30, at=1, no_repeat_ngram_size=2),
    _ask("no token twice", 20, at=2, no_repeat_ngram_size=1),
    _ask("count", 27, at=3, stairs=True, count=4),
    _ask("ascend", 27, at=3, stairs=True, ascend=True),
    _ask("ascend by request", 27, at=5, stairs=True, ascend_by_request=True),
    _ask("weary", 30, at=3, weary=2.0),
)
ALONE = tuple(ask for ask in ASKS if ask.prompt_token_ids == STAIRS)


def chosen(ask: Ask, answer: Answer) -> list[int]:
    """Return the best token that the rules leave of the model's logits, at each position."""
    args = ask.params["extra_args"] or {}
    tokens = []
    for position, raw in enumerate(answer.rows):
        output, row = answer.token_ids[:position], raw.astype(np.float64)
        if "target_token" in args:
            row[np.arange(512) != args["target_token"]] = -np.inf
        if {"count", "ascend", "ascend_by_request"} & args.keys():
            row[np.arange(512) != 4 + position] = -np.inf
        if size := args.get("no_repeat_ngram_size"):
            for end in range(size - 1, len(output)):
                if output[end - size + 1 : end] == output[len(output) - size + 1 :]:
                    row[output[end]] = -np.inf
        if "weary" in args:
            for token in {*ask.prompt_token_ids, *output}:
                row[token] -= args["weary"]
        tokens.append(int(row.argmax()))
    return tokens


@dataclass
class Run:
    info: dict[str, str]
    answers: dict[str, Answer]
    calls: list[tuple[int, int]]
    calls_for: dict[str, int]


@pytest.fixture(scope="module")
def run(release: Release | None) -> Iterator[Run]:
    sources = [PROBES, *(ROOT / "reference_plugins").glob("*/src")]
    settings = EngineSettings("v2", extra={"speculative_config": drafting(release)})
    with DraftingEngine(settings, PLUGINS, sys_path=sources) as engine:
        engine.inspect("plugin_probes:count_drafts")
        answers = engine.generate(ASKS)
        calls = engine.inspect("plugin_probes:calls")
        before, calls_for = len(calls), {}
        for ask in ALONE:
            assert engine.generate([ask])[ask.request_id].token_ids == answers[ask.request_id].token_ids
            after = len(engine.inspect("plugin_probes:calls"))
            calls_for[ask.request_id], before = after - before, after
        yield Run(engine.info, answers, calls, calls_for)


def test_the_engine_runs_v2_and_requests_have_several_rows(run: Run) -> None:
    assert run.info["runner"] == "v2"
    assert sum(rows > requests for rows, requests in run.calls) >= 10


@needs_v2_drafts  # a model does not know what the rules leave
@pytest.mark.parametrize("ask", ALONE, ids=lambda ask: ask.request_id)
def test_right_drafts_are_kept(ask: Ask, run: Run) -> None:
    assert run.calls_for[ask.request_id] <= 10  # for 27 tokens


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.request_id)
def test_each_position_is_what_the_rules_leave_at_the_top(ask: Ask, run: Run) -> None:
    answer = run.answers[ask.request_id]
    assert answer.error is None
    assert answer.token_ids == chosen(ask, answer)
    assert len(answer.token_ids) == ask.params["max_tokens"]
