"""Plugins in a real engine on both runners, against their rules in plain Python.

These are the reference set, scaffolded projects, the tests' own plugins, "Hello world!" from Dynamo, and bridges around
vLLM's built-ins, V1 classes as people write them, a callable, a class of transformers, and a class that counts calls.

One engine holds all plugins at once. The prompts come in pieces (32 tokens per step) and the cache is too small for
all requests (preemption). What each request should have chosen is worked out from the model's own logits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit import dynamo
from lpkit.sampling_params import SamplingParams
from lpkit_cli.scaffold.baking import bake
from lpkit_cli.scaffold.naming import names_for
from lpkit_cli.scaffold.wrapping import context
from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.discovery import bridgeable
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.settings import project
from lpkit_conformance.vllm_api.releases import Release
from rules import STAIRS, VOCAB, chosen, make_ask
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from unusual_engines import crowded, drafting, needs_v2_drafts

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]


def announced(plugin: Path) -> list[str]:
    """The entry points of a plugin, as ``module:Class``."""
    found = project.find(plugin)
    assert found is not None
    return list(found.entry_points.values())


PLUGINS = sorted(path.parent for path in ROOT.glob("reference_plugins/*/pyproject.toml"))
MADE = {"made-recent": "request", "made-wrap-up": "processor"}
"""Names and styles of scaffolded projects."""
BRIDGES = ("TargetToken", "Weary", "Ascend", "MinP", "LogitBias", "MinTokens")
WRAPPED = {"V1TargetToken", "V1Weary", "V1Ascend", "VllmMinP", "VllmLogitBias", "VllmMinTokens"}
"""What V1 runs of these."""
OF_OTHERS = ("AscendByCallable", "Repetition", "ForcedWords")
TARGETS = (
    "dynamo_probes:HelloWorld",
    *(target for plugin in PLUGINS for target in announced(plugin)),
    *("made_recent.processor:MadeRecent", "made_wrap_up.processor:MadeWrapUp"),
    *(f"portable_probes:{name}" for name in ("Ascend", "AscendByRequest", "Count", "Weary")),
    *(f"bridge_probes:{name}" for name in (*BRIDGES, *OF_OTHERS)),
)


class HelloTokenizer:
    """A small byte-level tokenizer with the two names that transformers gives its own."""

    eos_token_id = 511

    def __init__(self) -> None:
        vocabulary = {letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
        merges = [("l", "l"), ("o", "r"), ("H", "e")]
        vocabulary |= {a + b: len(vocabulary) + i for i, (a, b) in enumerate(merges)}
        self._tokenizer = Tokenizer(models.BPE(vocabulary, merges))
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._tokenizer.decoder = decoders.ByteLevel()

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode([token for token in ids if token != self.eos_token_id]))


TOKENIZER = HelloTokenizer()
HELLO = dynamo.forced_text("Hello world!", TOKENIZER)  # once, when the tokenizer is up
(HELLO_ENTRY,) = HELLO.entries


def activated(role: str) -> dict[str, Any]:
    """Parameters that Dynamo's worker of this role puts into each request."""
    params = SamplingParams()
    dynamo.activate(params, dynamo.entries_for(HELLO, role))
    return dict(params.extra_args or {})


FEW = {"allowed_tokens": list(range(40, 48))}  # loops soon, if nothing forbids it
SEVERAL: dict[str, Any] = {
    "penalties_repetition": 1.0,
    "penalties_presence": 0.5,
    "penalties_frequency": 0.25,
    "dry_multiplier": 1.0,
    "dry_allowed_length": 1,
    "dry_breakers": [44],
    "cite_boost": 0.5,
    "cite_next_boost": 0.5,
    "cite_also": [3],
}
ALLOW = {"rule": "allow", "ids": FEW["allowed_tokens"]}
PENALTIES = {"rule": "penalties", "repetition": 1.5, "presence": 0.5, "frequency": 0.25}
BIAS = {"rule": "bias", "ids": [41, 43], "values": [-3.0, 1.0], "when": {"from": 10, "until": 25}}
DOCUMENTS = {
    "rules": [ALLOW, PENALTIES, {"rule": "dry", "multiplier": 1.0, "allowed_length": 1, "breakers": [44]}, BIAS],
    "rules in another order": [BIAS, PENALTIES, ALLOW],
    "rules, two of them late": [ALLOW, {"rule": "no_repeat_ngram", "size": 2, "when": {"from": 12}}, BIAS],
}
GREEDY = (
    *(make_ask(name, 14, 36, at=3, rules=json.dumps(steps)) for name, steps in DOCUMENTS.items()),
    make_ask("allowed", 20, 24, at=1, allowed_tokens=[5, 0, 511, 77]),
    make_ask("bias", 33, 20, at=1, logit_bias_ids=[*range(200)], logit_bias_values=[-3.0] * 200),
    make_ask(
        "penalties", 10, 30, at=2, penalties_repetition=1.5, penalties_presence=0.5, penalties_frequency=0.5, **FEW
    ),
    make_ask("dry", 12, 40, at=3, dry_multiplier=1.0, dry_allowed_length=1, dry_breakers=[44], **FEW),
    make_ask("ocr", 12, 40, at=2, ngram_size=2, window_size=12, whitelist_token_ids=[41, 44], **FEW),
    make_ask("loop", 7, 40, at=3, loop_times=2, loop_tokens=4, allowed_tokens=[40, 41, 42]),
    make_ask("forced", 50, 30, at=3, forced_sequence=[400 - i for i in range(25)], forced_sequence_end=7),
    # The marker that begins the reasoning is the end of the prompt.
    make_ask("thinking", (9, 5, 300, 301), 30, at=5, think_budget=7, think_start=[300, 301], think_end=[302, 303, 304]),
    make_ask("cite", 30, 20, at=7, cite_boost=1.0, cite_next_boost=2.0, cite_also=[3]),
    make_ask("target 0", 5, 24, target_token=0),
    make_ask("no pair twice", 20, 50, at=2, no_repeat_ngram_size=2, **FEW),
    make_ask("no token twice in a window", 36, 40, at=3, no_repeat_ngram_size=1, no_repeat_ngram_window=5, **FEW),
    make_ask("wrap up", 50, 30, at=6, wrap_up_token=5, wrap_up_step=0.75),
    make_ask("wrap up with token 0", 3, 20, at=15, wrap_up_token=0, wrap_up_step=0.75),
    make_ask("recent", 8, 40, at=16, recent_penalty=4.0, recent_window=6, **FEW),
    make_ask("three at once", 20, 40, at=18, no_repeat_ngram_size=1, wrap_up_token=9, recent_penalty=1.0),
    make_ask("count", STAIRS, 27, at=3, count=4),
    make_ask("ascend", STAIRS, 27, at=3, ascend=True),
    make_ask("ascend by request", STAIRS, 27, at=5, ascend_by_request=True),
    make_ask("weary", 20, 30, at=3, kinds=8, weary=2.0),
    make_ask("old target", 5, 24, at=1, old_target=3),
    make_ask("old weary", 50, 30, at=2, kinds=8, old_weary=0.5),
    make_ask("old weary, too", 9, 40, at=3, kinds=8, old_weary=2.0),
    make_ask("old ascend", STAIRS, 27, at=4, old_ascend=True),
    make_ask("ascend by callable", STAIRS, 27, at=5, ascend_by_callable=True),
    make_ask("their repetition", 30, 24, at=5, kinds=8, their_penalty=1.5),
    make_ask("words", 50, 24, at=6, words=[*range(300, 315)]),
    make_ask("old bias", 30, 20, at=5, old_bias={str(token): -3.0 for token in range(200)}),
    make_ask("old min tokens", 14, 24, at=6, old_min_tokens=[12, list(range(400))]),
    make_ask("three old", 20, 24, at=9, kinds=8, old_weary=1.0, old_bias={"5": 2.0}, old_min_tokens=[6, [7, 8, 9]]),
    # In the end alone, so that on V2 plugins have the same rows and find them together.
    *(make_ask(f"several {n}", 15 + 4 * n, 40, at=30, **SEVERAL, **FEW) for n in range(2)),
)
OFF = (
    make_ask("off", 40, 20),
    make_ask("off, foreign keys", 9, 30, at=4, kv_transfer_params={"a": 1}, target_length=7, min_p=0.9),
    make_ask("off, greedy min-p", 12, 20, at=12, min_p_threshold=0.9),
    make_ask("off, min-p of zero", 12, 20, at=13, min_p_threshold=0),
    make_ask("off, token outside the vocabulary", 7, 20, at=14, target_token=VOCAB),
    make_ask("off, late", 33, 20, at=25),
    make_ask("off, greedy old min-p", 11, 20, at=8, old_min_p=0.9),
)
# Min-p is loaded before the target token, which is a processor of an earlier stage.
BOTH_STAGES = make_ask("min-p and target", 6, 15, at=20, temperature=2.0, min_p_threshold=0.3, target_token=511)
OTHERS = (
    make_ask("off, sampled", 12, 20, at=4, temperature=1.0),
    make_ask("target 7, sampled", 40, 20, at=2, temperature=1.0, target_token=7),
    make_ask("old target 0, sampled", 50, 20, at=2, temperature=1.0, old_target=0),
    make_ask("old min-p", 8, 30, at=7, temperature=1.5, old_min_p=0.3),
    make_ask("green", 20, 30, at=6, greenlist_key=99, greenlist_bias=100.0, greenlist_context=2),
    make_ask("synthid", 13, 80, at=6, temperature=1.0, synthid_keys=[654, 400, 836, 123, 340], synthid_ngram_len=3),
    make_ask("min-p", 6, 30, at=8, temperature=0.8, min_p_threshold=0.3),
    make_ask("n sigma", 6, 30, at=8, temperature=1.5, top_n_sigma=2.0),
    make_ask("smoothed", 8, 30, at=8, temperature=2.0, temperature_smoothing=1.8),
    make_ask("epsilon", 9, 30, at=8, temperature=2.0, truncation_rule="epsilon", truncation_threshold=0.004),
    make_ask("typical", 11, 30, at=9, temperature=2.0, truncation_rule="typical", truncation_threshold=0.8),
    make_ask("xtc", 14, 30, at=9, temperature=0.7, xtc_probability=1.0, xtc_threshold=0.002),
    make_ask("hello", 20, 20, at=10, **activated("agg")),
    make_ask("hello, sampled", 45, 20, at=11, temperature=1.0, **activated("agg")),
    make_ask("hello, wrapped", 45, 20, at=11, hello_token_ids=list(HELLO_ENTRY.token_ids), hello_end=511),
    make_ask("hello, prefill worker", 20, 1, at=12, **activated("prefill")),
    BOTH_STAGES,
)
ASKS = (*GREEDY, *OFF, *OTHERS)
REFUSED = {
    "rules/0/rule: 'min_q' is no rule here; did you mean 'min_p'": {"rules": '[{"rule": "min_q"}]'},
    "'target_tokens'; did you mean 'target_token'": {"target_tokens": 7},
    "no_repeat_ngram_size: Input should be a valid integer": {"no_repeat_ngram_size": 2.5},
    "wrap_up_token: 9223372036854775808 does not fit": {"wrap_up_token": 2**63},
    "recent_window given without recent_penalty": {"recent_window": 3},
    "old_target must be a token id, not 'three'": {"old_target": "three"},
}
RIGHT_DRAFTS = tuple(ask for ask in GREEDY if ask.prompt_token_ids == STAIRS)

# Seeds need requests that arrive in one piece: V1 on a CPU dies of a seed in a partial prefill.
THRESHOLDS = (0.05, 0.3, 0.7)


def seeded(built_in: bool) -> list[Ask]:
    """Requests that draw with a seed, by vLLM's own min-p or by the plugin's."""
    asks = []
    for n, threshold in enumerate(THRESHOLDS):
        params: dict[str, Any] = {"max_tokens": 12, "temperature": 0.9 + 0.1 * n, "seed": 11}
        own = {"min_p": threshold} if built_in else {"extra_args": {"min_p_threshold": threshold}}
        asks.append(Ask(f"{n}", (3 + n, 50, 7), params | own, at=3 * n))
    return asks


# The engines


@dataclass
class Run:
    """``drawn`` and ``drawn_bare``: answers to seeded requests, the latter of an engine without plugins."""

    name: str
    answers: dict[str, Answer]
    seen: dict[str, int]
    decoded: Answer
    drawn: dict[str, Answer]
    drawn_bare: dict[str, Answer]
    calls_for: dict[str, int]
    processors: list[str]


@pytest.fixture(scope="module", params=["v1", "v2", "v2 with drafts"])
def run(
    request: pytest.FixtureRequest,
    engines: Callable[..., EngineProcess],
    release: Release | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    runner, _, drafts = request.param.partition(" with ")
    settings = crowded(runner, **({"speculative_config": drafting(release)} if drafts else {}))
    made = tmp_path_factory.mktemp("made")
    sources = [bake(names_for(name), style, made) / "src" for name, style in MADE.items()]
    drawn_bare = {} if drafts else engines(settings).generate(seeded(built_in=True))
    calls_for = {}
    engine = engines(settings, TARGETS, sources)
    engine.inspect("plugin_probes:watch")
    if drafts:
        engine.inspect("plugin_probes:count_drafts")
    refused = [make_ask(said, 3, 3, at=n, **args) for n, (said, args) in enumerate(REFUSED.items())]
    answers = engine.generate([*ASKS, *refused], timeout=900.0)
    seen = engine.inspect("plugin_probes:seen")
    drawn = engine.generate(seeded(built_in=False)) if not drafts else {}
    if drafts:
        calls = engine.inspect("plugin_probes:calls")
        assert sum(rows > requests for rows, requests in calls) >= 10
        assert max(rows for rows, _ in calls) > settings.max_num_seqs, "a V1 class has no room for as many"
        for ask in RIGHT_DRAFTS:
            before = len(engine.inspect("plugin_probes:calls"))
            assert engine.generate([ask])[ask.request_id].token_ids == answers[ask.request_id].token_ids
            calls_for[ask.request_id] = len(engine.inspect("plugin_probes:calls")) - before
    # The decode worker goes on behind the token that the prefill worker made.
    prefilled = next(ask for ask in ASKS if ask.request_id == "hello, prefill worker")
    prompt = (*prefilled.prompt_token_ids, *answers[prefilled.request_id].token_ids)
    decoded = engine.generate([make_ask("decode", prompt, 20, **activated("decode"))])["decode"]
    processors = engine.inspect("plugin_probes:processors")
    assert len(processors) == len(TARGETS)
    return Run(request.param, answers, seen, decoded, drawn, drawn_bare, calls_for, processors)


def test_on_v1_the_engine_runs_the_v1_classes_and_on_v2_the_bridges(run: Run) -> None:
    assert WRAPPED.isdisjoint(run.processors) if run.name != "v1" else {*run.processors} > WRAPPED
    assert {*run.processors} > {*OF_OTHERS}


def test_the_workload_has_preemption_and_prompts_in_pieces(run: Run) -> None:
    assert run.seen["preemptions"] >= 2
    assert run.seen["partial prefills"] >= 4


@pytest.mark.parametrize("ask", [OFF[0], *GREEDY], ids=lambda ask: ask.request_id)
def test_each_position_is_what_the_rule_leaves_at_the_top(ask: Ask, run: Run) -> None:
    answer = run.answers[ask.request_id]
    assert answer.error is None
    assert len(answer.token_ids) == ask.params["max_tokens"]
    assert chosen(ask, answer) == answer.token_ids
    raw = [int(row.argmax()) for row in answer.rows]
    assert (raw == answer.token_ids) == (ask.request_id == "off"), "the rule never mattered"


@pytest.mark.parametrize("ask", OFF, ids=lambda ask: ask.request_id)
def test_requests_that_do_not_use_a_plugin_get_what_the_model_likes_best(ask: Ask, run: Run) -> None:
    answer = run.answers[ask.request_id]
    assert len(answer.token_ids) == ask.params["max_tokens"]
    assert answer.token_ids == [int(row.argmax()) for row in answer.rows]


@needs_v2_drafts  # a model does not know what the rules leave
@pytest.mark.parametrize("ask", RIGHT_DRAFTS, ids=lambda ask: ask.request_id)
def test_right_drafts_are_kept(ask: Ask, run: Run) -> None:
    if run.calls_for:
        assert run.calls_for[ask.request_id] <= 10  # for 27 tokens


def test_a_sampled_request_is_forced_at_every_position(run: Run) -> None:
    assert run.answers["target 7, sampled"].token_ids == [7] * 20
    assert run.answers["old target 0, sampled"].token_ids == [0] * 20


def test_v1_runs_stages_in_their_order_and_v2_the_list_in_its_own(run: Run) -> None:
    """On V1 the target is forced, then min-p keeps it. On V2 min-p comes first, and mostly masks the target, which
    is then not forced: what vLLM does with two plugins of different stages depends on the runner."""
    answer = run.answers[BOTH_STAGES.request_id]
    if run.name == "v1":
        assert answer.token_ids == [511] * 15
        return
    left = [likely_enough(row, 0.3, 2.0) for row in answer.rows]
    assert any(not row[511] for row in left)
    for row, token in zip(left, answer.token_ids, strict=True):
        assert token == 511 if row[511] else row[token]


def test_with_a_seed_min_p_draws_the_same_tokens_as_vllms_own(run: Run) -> None:
    assert {name: answer.token_ids for name, answer in run.drawn.items()} == {
        name: answer.token_ids for name, answer in run.drawn_bare.items()
    }


@pytest.mark.parametrize("message", REFUSED)
def test_bad_arguments_are_refused_with_the_plugins_words(message: str, run: Run) -> None:
    answer = run.answers[message]
    assert message in (answer.error or "")
    assert answer.token_ids == []


def likely_enough(row: np.ndarray, threshold: float, temperature: float) -> np.ndarray:
    return row >= row.max() + temperature * np.log(threshold) - 1e-5


def within_sigmas(row: np.ndarray) -> np.ndarray:
    return row >= row.max() - 2.0 * row.std() - 1e-4


def near_when_squared(row: np.ndarray) -> np.ndarray:
    """Tokens that a distance from the top, squared, leaves within 25 of it: others have no share to speak of."""
    return 1.8 * ((row - row.max()) / 2.0) ** 2 <= 25.0


def likely_of_all(row: np.ndarray) -> np.ndarray:
    shares = np.exp((row - row.max()) / 2.0)
    return shares >= 0.004 * shares.sum() * (1 - 1e-5)


def next_to_the_entropy(row: np.ndarray) -> np.ndarray:
    shares = np.exp((row - row.max()) / 2.0)
    shares /= shares.sum()
    away = np.abs(np.log(shares) - (shares * np.log(shares)).sum())
    order = away.argsort()
    farthest = away[order[(shares[order].cumsum() < 0.8).sum()]]
    return away <= farthest + 1e-5


def not_a_top_choice(row: np.ndarray) -> np.ndarray:
    shares = np.exp((row - row.max()) / 0.7)
    shares /= shares.sum()
    likely = shares >= 0.002
    return shares <= shares[likely].min() + 1e-7 if likely.any() else shares >= 0


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("min-p", lambda row: likely_enough(row, 0.3, 0.8)),
        ("old min-p", lambda row: likely_enough(row, 0.3, 1.5)),
        ("n sigma", within_sigmas),
        ("smoothed", near_when_squared),
        ("epsilon", likely_of_all),
        ("typical", next_to_the_entropy),
        ("xtc", not_a_top_choice),
    ],
)
def test_sampled_tokens_are_among_those_that_the_rule_leaves(
    name: str, left: Callable[[np.ndarray], np.ndarray], run: Run
) -> None:
    answer = run.answers[name]
    assert len(answer.token_ids) == 30
    stay = [left(row.astype(np.float64)) for row in answer.rows]
    assert all(mask[token] for mask, token in zip(stay, answer.token_ids, strict=True))
    acted = [1 < mask.sum() < VOCAB for mask in stay]
    assert sum(acted) > len(acted) / 2, "nothing is seeded: a rule may have nothing to do at a step"


def test_a_marked_text_is_recognized(run: Run) -> None:
    from lpkit_greenlist_watermark import GreenlistWatermark

    found = GreenlistWatermark.detect(run.answers["green"].token_ids, key=99, context=2)
    assert found.green == found.scored >= 10
    assert abs(GreenlistWatermark.detect(run.answers["green"].token_ids, key=98, context=2).z) < 4


def test_a_sampled_text_is_recognized(run: Run) -> None:
    from lpkit_synthid import SynthId

    text = run.answers["synthid"].token_ids
    assert SynthId.detect(text, keys=[654, 400, 836, 123, 340], ngram_len=3).z > 4
    assert abs(SynthId.detect(text, keys=[655, 401], ngram_len=3).z) < 4


@pytest.mark.parametrize("name", ["hello", "hello, sampled", "hello, wrapped"])
def test_dynamos_hello_world(name: str, run: Run) -> None:
    ids = run.answers[name].token_ids
    assert TOKENIZER.decode(ids) == "Hello world!"
    assert ids == [*HELLO_ENTRY.token_ids, *[511] * 20][: len(ids)]


def test_disaggregated_the_prefill_workers_token_leads(run: Run) -> None:
    (leading,) = run.answers["hello, prefill worker"].token_ids
    assert leading != HELLO_ENTRY.token_ids[0]
    assert TOKENIZER.decode(run.decoded.token_ids) == "Hello world!"


@pytest.mark.parametrize(("runner", "name"), [("v1", "ascend"), ("v2", "V1Weary")])
def test_a_project_scaffolded_around_it_runs_as_an_installed_plugin(
    engines: Callable[..., EngineProcess], runner: str, name: str, tmp_path: Path, installed: Any
) -> None:
    names = names_for("made-bridge")
    target = bridgeable.find(f"bridge_probes:{name}")
    project = bake(names, "wrap", tmp_path, context(target, names, []))
    site = installed("made-bridge", made_bridge=f"made_bridge.processor:{names.class_name}")
    args = {"V1Weary": {"old_weary": 0.5}, "ascend": {"made_bridge": True}}[name]
    asks = [make_ask("off", 12, 12), make_ask("on", STAIRS, 20, at=2, **args)]
    engine = engines(crowded(runner), folders=[project / "src", site])
    assert engine.inspect("plugin_probes:processors") == ["MadeBridge"]
    answers = engine.generate(asks)
    assert answers["off"].token_ids == [int(row.argmax()) for row in answers["off"].rows]
    on = Ask("on", STAIRS, {"extra_args": {"old_ascend": True} if name == "ascend" else args})
    assert answers["on"].token_ids == chosen(on, answers["on"])
    assert len(answers["on"].token_ids) == 20
