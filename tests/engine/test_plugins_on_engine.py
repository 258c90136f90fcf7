"""Reference plugins and freshly scaffolded ones in a real engine, loaded in each of vLLM's three ways, on both runners.

Every engine holds all five plugins at once and serves the same requests, some of which use one plugin, some several,
most of the rest none. The prompts come in pieces (32 tokens per step) and the cache is too small for all requests
(preemption). What each request should have chosen is worked out in plain Python from the model's own logits.
"""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit_cli.scaffold.baking import bake
from lpkit_cli.scaffold.naming import names_for
from lpkit_conformance.discovery.installed import take_inventory
from lpkit_conformance.engine.process import ClassRef, EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Answer, Ask

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
PROBES = Path(__file__).parent / "probes"
VOCAB = 512

TARGETS = {
    "lpkit-min-p": "lpkit_min_p.processor:MinP",
    "lpkit-no-repeat-ngram": "lpkit_no_repeat_ngram.processor:NoRepeatNgram",
    "lpkit-target-token": "lpkit_target_token.processor:TargetToken",
    "made-recent": "made_recent.processor:MadeRecent",
    "made-wrap-up": "made_wrap_up.processor:MadeWrapUp",
}
CLASSES = sorted(target.partition(":")[2] for target in TARGETS.values())
WAYS = ("entry point", "FQCN", "class")


def settings(runner: str) -> EngineSettings:
    # Nine blocks of 32 tokens, one of them reserved: the requests below do not all fit.
    return EngineSettings(
        runner,  # type: ignore[arg-type]
        max_num_seqs=6,
        max_model_len=96,
        max_num_batched_tokens=32,
        num_gpu_blocks_override=9,
        block_size=32,
    )


# The requests


def _ask(name: str, prompt: int, tokens: int, at: int = 0, temperature: float = 0.0, **extra_args: Any) -> Ask:
    prompt_ids = tuple(random.Random(name).randrange(VOCAB) for _ in range(prompt))
    params: dict[str, Any] = {"max_tokens": tokens, "temperature": temperature}
    if extra_args:
        params["extra_args"] = extra_args
    return Ask(name, prompt_ids, params, at=at, logits=True)


DISABLED = (
    _ask("off, chunked", 60, 30),
    _ask("off, short", 4, 40, at=1),
    _ask("off, foreign keys", 9, 30, at=4, kv_transfer_params={"a": 1}, target_length=7, min_p=0.9),
    _ask("off, greedy min-p", 12, 20, at=12, min_p_threshold=0.9),
    _ask("off, min-p of zero", 12, 20, at=13, min_p_threshold=0),
    _ask("off, token outside the vocabulary", 7, 20, at=14, target_token=VOCAB),
    _ask("off, sampled", 14, 30, at=9, temperature=1.0),
    _ask("off, late", 33, 20, at=25),
)
ENABLED = (
    _ask("target 0", 5, 24, target_token=0),
    _ask("target 7, sampled", 40, 20, at=2, temperature=1.0, target_token=7),
    _ask("2-grams", 20, 50, at=2, no_repeat_ngram_size=2),
    _ask("1-grams in a window", 36, 40, at=3, no_repeat_ngram_size=1, no_repeat_ngram_window=8),
    _ask("min-p of one", 10, 30, at=5, temperature=1.3, min_p_threshold=1.0),
    _ask("wrap up", 50, 30, at=6, wrap_up_token=5, wrap_up_after=10, wrap_up_step=0.75),
    _ask("wrap up with token 0", 3, 20, at=15, wrap_up_token=0, wrap_up_after=4),
    _ask("recent", 8, 40, at=16, recent_penalty=4.0, recent_window=6),
    _ask("three at once", 20, 40, at=18, no_repeat_ngram_size=1, wrap_up_token=9, recent_penalty=1.0),
)
SAMPLED = (_ask("min-p, sampled", 6, 40, at=8, temperature=0.8, min_p_threshold=0.3),)
# Min-p is loaded before the target token, which is a processor of an earlier stage.
BOTH_STAGES = _ask("min-p and target", 6, 15, at=20, temperature=2.0, min_p_threshold=0.3, target_token=511)
REFUSED = (
    (_ask("unknown key", 3, 3, at=3, target_tokens=7), "'target_tokens'; did you mean 'target_token'"),
    (_ask("out of range", 3, 3, at=5, temperature=1.0, min_p_threshold=1.5), "min_p_threshold: Input should be less"),
    (_ask("wrong type", 3, 3, at=5, no_repeat_ngram_size=2.5), "no_repeat_ngram_size: Input should be a valid integer"),
    (_ask("too wide", 3, 3, at=6, wrap_up_token=2**63), "wrap_up_token: 9223372036854775808 does not fit"),
    (_ask("incomplete", 3, 3, at=7, recent_window=3), "recent_window given without recent_penalty"),
)
WORKLOAD = (*DISABLED, *ENABLED, *SAMPLED, BOTH_STAGES)

# Seeds need requests that arrive in one piece: V1 on a CPU dies of a seed in a partial prefill.
SEEDED = tuple(
    _ask(f"seeded {n}", 3, 12, at=3 * n, temperature=0.9 + 0.1 * n, min_p_threshold=threshold)
    for n, threshold in enumerate((0.05, 0.3, 0.7))
)


def with_seed(ask: Ask, built_in: bool) -> Ask:
    """The same request with a seed; ``built_in`` turns to vLLM's own min-p instead of the plugin's."""
    params: dict[str, Any] = {**ask.params, "seed": 11}
    if built_in:
        params["min_p"] = params.pop("extra_args")["min_p_threshold"]
    return Ask(ask.request_id, ask.prompt_token_ids, params, at=ask.at, logits=True)


# The rules, in plain Python


def ruled(row: np.ndarray, args: dict[str, Any], output: list[int], temperature: float) -> np.ndarray:
    """Return the remaining row of the model's logits for a request with ``args`` that has generated ``output``."""
    row = row.astype(np.float64)
    if "target_token" in args and args["target_token"] < VOCAB:
        row[np.arange(VOCAB) != args["target_token"]] = -np.inf
    if "no_repeat_ngram_size" in args:
        size, seen = args["no_repeat_ngram_size"], output[-args.get("no_repeat_ngram_window", 0) :]
        tail = seen[len(seen) - size + 1 :]
        for end in range(size - 1, len(seen)):
            if seen[end - size + 1 : end] == tail:
                row[seen[end]] = -np.inf
    if "wrap_up_token" in args:
        excess = max(0, len(output) - args.get("wrap_up_after", 0))
        row[args["wrap_up_token"]] += excess * args.get("wrap_up_step", 1.0)
    if "recent_penalty" in args:
        for token in set(output[-args.get("recent_window", 16) :]):
            row[token] -= args["recent_penalty"]
    if args.get("min_p_threshold") and temperature:
        row[row < row.max() + temperature * np.log(args["min_p_threshold"]) - 1e-6] = -np.inf
    return row


def expected(ask: Ask, answer: Answer) -> Iterator[np.ndarray]:
    args = ask.params.get("extra_args", {})
    for position, row in enumerate(answer.rows):
        yield ruled(row, args, answer.token_ids[:position], ask.params["temperature"])


# The engines


@dataclass
class Run:
    info: dict[str, str]
    processors: list[str]
    answers: dict[str, Answer]
    seen: dict[str, int]
    seeded: dict[str, Answer]


def served(engine: EngineProcess, built_in: bool = False) -> Run:
    engine.inspect("plugin_probes:watch")
    answers = engine.generate([*WORKLOAD, *([] if built_in else [ask for ask, _ in REFUSED])])
    return Run(
        engine.info,
        engine.inspect("plugin_probes:processors"),
        answers,
        engine.inspect("plugin_probes:seen"),
        engine.generate([with_seed(ask, built_in) for ask in SEEDED]),
    )


def pip(*arguments: str) -> None:
    # Without isolation if the build backend is at hand; else pip fetches it.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *isolation, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The reference plugins, and one scaffold of each style."""
    folder = tmp_path_factory.mktemp("made")
    made = [bake(names_for("made-wrap-up"), "processor", folder), bake(names_for("made-recent"), "request", folder)]
    shipped = [ROOT / "reference_plugins" / name for name in TARGETS if name.startswith("lpkit-")]
    return [*shipped, *made]


@pytest.fixture(scope="module")
def site(projects: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed all of them."""
    folder = tmp_path_factory.mktemp("site")
    pip("--target", str(folder), *map(str, projects))
    return folder


Runs = Callable[[str, str], Run]


@pytest.fixture(scope="module")
def runs(projects: list[Path], site: Path) -> Runs:
    """``runs(runner, way)``: what an engine answered; ``way`` "none" has no plugin."""
    done: dict[tuple[str, str], Run] = {}

    def serve(runner: str) -> None:
        sources = [PROBES, *(project / "src" for project in projects)]
        targets = sorted(TARGETS.values())
        with EngineProcess(settings(runner), sys_path=sources) as engine:
            done[runner, "none"] = served(engine, built_in=True)
            engine.restart(settings(runner), targets)
            done[runner, "FQCN"] = served(engine)
            engine.restart(settings(runner), [ClassRef(target) for target in targets])
            done[runner, "class"] = served(engine)
        with EngineProcess(settings(runner), sys_path=[PROBES, site]) as engine:
            done[runner, "entry point"] = served(engine)

    def run(runner: str, way: str) -> Run:
        if (runner, way) not in done:
            serve(runner)
        return done[runner, way]

    return run


@pytest.fixture(params=["v1", "v2"])
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bare(runs: Runs, runner: str) -> Run:
    return runs(runner, "none")


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest, runs: Runs, runner: str) -> Run:
    return runs(runner, request.param)


# What must hold


def test_the_engine_runs_the_runner_and_the_plugins_it_was_asked_for(runner: str, run: Run, bare: Run) -> None:
    assert run.info["runner"] == bare.info["runner"] == runner
    assert sorted(run.processors) == CLASSES
    assert bare.processors == []


def test_a_default_engine_starts_with_all_of_them_as_predicted(site: Path) -> None:
    inventory = take_inventory([str(site), *sys.path])
    found = {plugin.name: plugin.interface for plugin in inventory.plugins if plugin.name in TARGETS}
    assert found == dict.fromkeys(TARGETS, "both")
    assert not [plugin.name for plugin in inventory.blocking("v2") if plugin.name in TARGETS]


def test_the_workload_has_preemption_and_prompts_in_pieces(run: Run, bare: Run) -> None:
    assert run.seen == bare.seen
    assert run.seen["preemptions"] >= 2
    assert run.seen["partial prefills"] >= 4


@pytest.mark.parametrize("ask", DISABLED, ids=lambda ask: ask.request_id)
def test_requests_that_do_not_use_a_plugin_answer_as_without_it(ask: Ask, run: Run, bare: Run) -> None:
    here, there = run.answers[ask.request_id], bare.answers[ask.request_id]
    assert here.token_ids == there.token_ids
    assert len(here.token_ids) == ask.params["max_tokens"]
    assert np.array_equal(here.rows, there.rows)


@pytest.mark.parametrize("ask", ENABLED, ids=lambda ask: ask.request_id)
def test_requests_that_use_one_choose_what_the_rule_leaves_at_the_top(ask: Ask, run: Run, bare: Run) -> None:
    answer = run.answers[ask.request_id]
    assert answer.error is None
    assert [int(row.argmax()) for row in expected(ask, answer)] == answer.token_ids
    assert len(answer.token_ids) == ask.params["max_tokens"]
    assert answer.token_ids != bare.answers[ask.request_id].token_ids, "the rule never mattered"


@pytest.mark.parametrize("ask", SAMPLED, ids=lambda ask: ask.request_id)
def test_sampled_tokens_are_among_those_that_the_rule_leaves(ask: Ask, run: Run) -> None:
    answer = run.answers[ask.request_id]
    rows = list(expected(ask, answer))
    assert all(row[token] > -np.inf for row, token in zip(rows, answer.token_ids, strict=True))
    assert len(answer.token_ids) == ask.params["max_tokens"]


def test_forced_tokens_are_forced_at_every_position(run: Run) -> None:
    assert set(run.answers["target 0"].token_ids) == {0}
    assert set(run.answers["target 7, sampled"].token_ids) == {7}


def test_v1_runs_stages_in_their_order_and_v2_the_list_in_its_own(runner: str, run: Run) -> None:
    """On V1 the target is forced, then min-p keeps it. On V2 min-p comes first, and mostly masks the target, which
    is then not forced: what vLLM does with two plugins of different stages depends on the runner."""
    answer = run.answers[BOTH_STAGES.request_id]
    if runner == "v1":
        assert set(answer.token_ids) == {511}
        return
    args = {"min_p_threshold": 0.3}
    left = [ruled(row, args, [], 2.0) > -np.inf for row in answer.rows]
    assert any(not row[511] for row in left)
    for row, token in zip(left, answer.token_ids, strict=True):
        assert token == 511 if row[511] else row[token]


@pytest.mark.parametrize("ask", SEEDED, ids=lambda ask: ask.request_id)
def test_with_a_seed_min_p_draws_the_same_tokens_as_vllms_own(ask: Ask, run: Run, bare: Run) -> None:
    assert run.seeded[ask.request_id].token_ids == bare.seeded[ask.request_id].token_ids
    assert len(run.seeded[ask.request_id].token_ids) == 12


@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[ask.request_id for ask, _ in REFUSED])
def test_bad_arguments_are_refused_with_the_plugins_words(ask: Ask, message: str, run: Run) -> None:
    answer = run.answers[ask.request_id]
    assert message in (answer.error or "")
    assert answer.token_ids == []
