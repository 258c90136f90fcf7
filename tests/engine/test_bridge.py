"""V1-only classes behind bridges in the real engine: vLLM's own built-ins, V1 classes as people write them, a callable,
a class of transformers, a class that counts its calls.

One engine of either runner holds all of them at once, with prompts in pieces and preemption; a third one is V2 with
speculative decoding. What each request should have chosen is worked out from the model's own logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit_cli.scaffold.baking import bake
from lpkit_cli.scaffold.naming import names_for
from lpkit_cli.scaffold.wrapping import context
from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.discovery import bridgeable
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.releases import Release
from rules import STAIRS, chosen, make_ask
from unusual_engines import crowded, drafting

pytestmark = pytest.mark.engine

Engines = Callable[..., EngineProcess]
OF_OTHERS = ("AscendByCallable", "Repetition", "ForcedWords")
NAMES = ("TargetToken", "Weary", "Ascend", "MinP", "LogitBias", "MinTokens", *OF_OTHERS)
TARGETS = [f"bridge_probes:{name}" for name in NAMES]


def _ask(name: str, prompt: int | tuple[int, ...], tokens: int, **options: Any) -> Ask:
    return make_ask(name, prompt, tokens, kinds=8, **options)


def workload(pieces: bool) -> tuple[Ask, ...]:
    """``pieces``: prompts too long for one step, and more tokens than fit the cache."""
    long = 50 if pieces else 20
    return (
        _ask("off", long, 30),
        _ask("off, sampled", 12, 20, at=3, temperature=1.0),
        _ask("target", 5, 24, at=1, old_target=3),
        _ask("target, sampled", long, 20, at=2, temperature=1.0, old_target=0),
        _ask("weary", long, 30, at=2, old_weary=0.5),
        _ask("weary, too", 9, 40, at=3, old_weary=2.0),
        _ask("ascend", STAIRS, 27, at=4, old_ascend=True),
        _ask("ascend by callable", STAIRS, 27, at=5, ascend_by_callable=True),
        _ask("repetition", 30, 24, at=5, their_penalty=1.5),
        _ask("words", long, 24, at=6, words=[*range(300, 315)]),
        _ask("bias", 30, 20, at=5, old_bias={str(token): -3.0 for token in range(200)}),
        _ask("min tokens", 14, 24, at=6, old_min_tokens=[12, list(range(400))]),
        _ask("min-p", 8, 30, at=7, temperature=1.5, old_min_p=0.3),
        _ask("min-p, cold", 20, 30, at=8, temperature=0.6, old_min_p=0.5),
        _ask("min-p, greedy", 11, 20, at=8, old_min_p=0.9),
        _ask("all at once", 20, 24, at=9, old_weary=1.0, old_bias={"5": 2.0}, old_min_tokens=[6, [7, 8, 9]]),
    )


@dataclass
class Run:
    name: str
    asks: dict[str, Ask]
    answers: dict[str, Answer]
    refused: Answer
    seen: dict[str, int]
    calls: list[tuple[int, int]]
    processors: list[str]


@pytest.fixture(scope="module", params=["v1", "v2", "v2 with drafts"])
def run(request: pytest.FixtureRequest, engines: Engines, release: Release | None) -> Run:
    asks = workload(pieces="drafts" not in request.param)
    bad = _ask("refused", 3, 3, old_target="three")
    drafts = "drafts" in request.param
    # With drafts 6 requests of 4 rows each: more rows than a V1 class has room for.
    with_drafts = EngineSettings("v2", max_num_seqs=6, extra={"speculative_config": drafting(release)})
    settings = with_drafts if drafts else crowded(request.param)
    engine = engines(settings, TARGETS)
    engine.inspect("plugin_probes:watch")
    if drafts:
        engine.inspect("plugin_probes:count_drafts")
    answers = engine.generate([*asks, bad])
    seen = engine.inspect("plugin_probes:seen")
    calls = engine.inspect("plugin_probes:calls") if drafts else []
    processors = engine.inspect("plugin_probes:processors")
    by_name = {ask.request_id: ask for ask in asks}
    return Run(request.param, by_name, answers, answers["refused"], seen, calls, processors)


def test_on_v1_the_engine_runs_the_v1_classes_and_on_v2_the_bridges(run: Run) -> None:
    classes = {"V1TargetToken", "V1Weary", "V1Ascend", "VllmMinP", "VllmLogitBias", "VllmMinTokens", *OF_OTHERS}
    assert set(run.processors) == (classes if run.name == "v1" else set(NAMES))


def test_the_workload_has_preemption_and_prompts_in_pieces(run: Run) -> None:
    if "drafts" not in run.name:
        assert run.seen["preemptions"] >= 2
        assert run.seen["partial prefills"] >= 4


def test_drafts_have_rows_sometimes_more_than_a_v1_class_has_room_for(run: Run) -> None:
    if "drafts" in run.name:
        assert sum(rows > requests for rows, requests in run.calls) >= 10
        assert max(rows for rows, _ in run.calls) > 6


GREEDY = tuple(ask.request_id for ask in workload(True) if not ask.params["temperature"])


@pytest.mark.parametrize("name", GREEDY)
def test_each_position_is_what_the_rule_leaves_at_the_top(name: str, run: Run) -> None:
    ask, answer = run.asks[name], run.answers[name]
    assert answer.error is None
    assert len(answer.token_ids) == ask.params["max_tokens"]
    assert chosen(ask, answer) == answer.token_ids
    raw = [int(row.argmax()) for row in answer.rows]
    assert (raw == answer.token_ids) == (name in ("off", "min-p, greedy")), "the rule never mattered, or too much"


@pytest.mark.parametrize("name", ["min-p", "min-p, cold"])
def test_min_p_keeps_what_is_likely_enough_at_the_requests_temperature(name: str, run: Run) -> None:
    ask, answer = run.asks[name], run.answers[name]
    assert len(answer.token_ids) == ask.params["max_tokens"]
    args = ask.params["extra_args"]
    for raw, token in zip(answer.rows, answer.token_ids, strict=True):
        row = raw.astype(np.float64) / ask.params["temperature"]
        assert row[token] >= row.max() + np.log(args["old_min_p"]) - 1e-5


@pytest.mark.parametrize("name", ["target, sampled"])
def test_sampled_requests_are_bound_as_well(name: str, run: Run) -> None:
    assert set(run.answers[name].token_ids) == {0}


def test_bad_arguments_are_refused_in_the_classs_own_words(run: Run) -> None:
    assert "old_target must be a token id, not 'three'" in (run.refused.error or "")


@pytest.mark.parametrize(("runner", "name"), [("v1", "ascend"), ("v2", "V1Weary")])
def test_a_project_scaffolded_around_it_runs_as_an_installed_plugin(
    engines: Engines, runner: str, name: str, tmp_path: Path, installed: Any
) -> None:
    names = names_for("made-bridge")
    target = bridgeable.find(f"bridge_probes:{name}")
    project = bake(names, "wrap", tmp_path, context(target, names, []))
    site = installed("made-bridge", made_bridge=f"made_bridge.processor:{names.class_name}")
    args = {"V1Weary": {"old_weary": 0.5}, "ascend": {"made_bridge": True}}[name]
    asks = [_ask("off", 12, 12), _ask("on", STAIRS, 20, at=2, **args)]
    engine = engines(crowded(runner), folders=[project / "src", site])
    assert engine.inspect("plugin_probes:processors") == ["MadeBridge"]
    answers = engine.generate(asks)
    assert answers["off"].token_ids == [int(row.argmax()) for row in answers["off"].rows]
    on = Ask("on", STAIRS, {"extra_args": {"old_ascend": True} if name == "ascend" else args})
    assert answers["on"].token_ids == chosen(on, answers["on"])
    assert len(answers["on"].token_ids) == 20
