"""The reference set in a real engine on both runners, against its rules in plain Python; "Hello world!" from Dynamo.

One engine holds all plugins at once. The prompts come in pieces (32 tokens per step) and the cache is too small for
all requests (preemption). What each request should have chosen is worked out from the model's own logits.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lpkit import dynamo
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.discovery.releases import Release
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Answer, Ask
from lpkit_conformance.settings import project
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from unusual_engines import DraftingEngine, drafting

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
PROBES = Path(__file__).parent / "probes"
VOCAB = 512


def announced(plugin: Path) -> list[str]:
    """The entry points of a plugin, as ``module:Class``."""
    found = project.find(plugin)
    assert found is not None
    return list(found.entry_points.values())


PLUGINS = sorted(path.parent for path in ROOT.glob("reference_plugins/*/pyproject.toml"))
TARGETS = ("dynamo_probes:HelloWorld", *(target for plugin in PLUGINS for target in announced(plugin)))


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


def _ask(name: str, prompt: int, tokens: int, at: int = 0, temperature: float = 0.0, **extra_args: Any) -> Ask:
    seed = random.Random(name)
    params = {"max_tokens": tokens, "temperature": temperature, "extra_args": extra_args or None}
    return Ask(name, tuple(seed.randrange(VOCAB) for _ in range(prompt)), params, at=at, logits=True)


FEW = {"allowed_tokens": list(range(40, 48))}  # loops soon, if nothing forbids it
ASKS = (
    _ask("off", 40, 20),
    _ask("off, sampled", 12, 20, at=4, temperature=1.0),
    _ask("allowed", 20, 24, at=1, allowed_tokens=[5, 0, 511, 77]),
    _ask("bias", 33, 20, at=1, logit_bias_ids=[*range(200)], logit_bias_values=[-3.0] * 200),
    _ask("penalties", 10, 30, at=2, penalties_repetition=1.5, penalties_presence=0.5, penalties_frequency=0.5, **FEW),
    _ask("dry", 12, 40, at=3, dry_multiplier=1.0, dry_allowed_length=1, dry_breakers=[44], **FEW),
    _ask("ocr", 12, 40, at=2, ngram_size=2, window_size=12, whitelist_token_ids=[41, 44], **FEW),
    _ask("loop", 7, 40, at=3, loop_times=2, loop_tokens=4, allowed_tokens=[40, 41, 42]),
    _ask("forced", 50, 30, at=3, forced_sequence=[400 - i for i in range(25)], forced_sequence_end=7),
    _ask("thinking", 9, 30, at=5, think_budget=7, think_start=[300, 301], think_end=[302, 303, 304]),
    _ask("green", 20, 30, at=6, greenlist_key=99, greenlist_bias=100.0, greenlist_context=2),
    _ask("synthid", 13, 40, at=6, temperature=1.0, synthid_keys=[654, 400, 836, 123, 340], synthid_ngram_len=3),
    _ask("cite", 30, 20, at=7, cite_boost=1.0, cite_next_boost=2.0, cite_also=[3]),
    _ask("n sigma", 6, 30, at=8, temperature=1.5, top_n_sigma=2.0),
    _ask("smoothed", 8, 30, at=8, temperature=2.0, temperature_smoothing=1.8),
    _ask("epsilon", 9, 30, at=8, temperature=2.0, truncation_rule="epsilon", truncation_threshold=0.004),
    _ask("typical", 11, 30, at=9, temperature=2.0, truncation_rule="typical", truncation_threshold=0.8),
    _ask("xtc", 14, 30, at=9, temperature=0.7, xtc_probability=1.0, xtc_threshold=0.002),
    _ask("hello", 20, 20, at=10, **activated("agg")),
    _ask("hello, sampled", 45, 20, at=11, temperature=1.0, **activated("agg")),
    _ask("hello, wrapped", 45, 20, at=11, hello_token_ids=list(HELLO_ENTRY.token_ids), hello_end=511),
    _ask("hello, prefill worker", 20, 1, at=12, **activated("prefill")),
    # In the end alone, so that on V2 plugins have the same rows and find them together.
    *(
        _ask(
            name,
            15 + 4 * n,
            40,
            at=30,
            penalties_repetition=1.0,
            penalties_presence=0.5,
            penalties_frequency=0.25,
            dry_multiplier=1.0,
            dry_allowed_length=1,
            dry_breakers=[44],
            cite_boost=0.5,
            cite_next_boost=0.5,
            cite_also=[3],
            **FEW,
        )
        for n, name in enumerate(("several", "several more"))
    ),
)
# The marker that begins the reasoning is the end of the prompt.
ASKS = tuple(
    Ask(ask.request_id, (*ask.prompt_token_ids, 300, 301), ask.params, at=ask.at, logits=True)
    if ask.request_id == "thinking"
    else ask
    for ask in ASKS
)


# The rules, in plain Python


def only(row: np.ndarray, tokens: list[int]) -> np.ndarray:
    left = np.full_like(row, -np.inf)
    left[tokens] = row[tokens]
    return left


def repetitions(text: list[int], breakers: list[int]) -> dict[int, int]:
    """For each token that would continue a repetition, how long the longest is."""
    found: dict[int, int] = {}
    for length in range(1, len(text)):
        if text[-length] in breakers:
            break
        for start in range(len(text) - length):
            if text[start : start + length] == text[-length:]:
                found[text[start + length]] = length
    return {token: length for token, length in found.items() if token not in breakers}


def looped(output: list[int], span: int, length: int) -> bool:
    """Return True if the last ``length`` tokens repeat ``span`` of them."""
    end = output[-length:]
    return len(end) == length and end[span:] == end[:-span]


def ruled(row: np.ndarray, args: dict[str, Any], prompt: list[int], output: list[int]) -> np.ndarray:
    text = [*prompt, *output]
    if "allowed_tokens" in args:
        row = only(row, args["allowed_tokens"])
    for token, value in zip(args.get("logit_bias_ids", ()), args.get("logit_bias_values", ()), strict=True):
        row[token] += value
    if "penalties_repetition" in args:
        for token in set(text):
            row[token] *= 1 / args["penalties_repetition"] if row[token] > 0 else args["penalties_repetition"]
        for token in set(output):
            row[token] -= args["penalties_presence"] + args["penalties_frequency"] * output.count(token)
    if "dry_multiplier" in args:
        for token, length in repetitions(text, args["dry_breakers"]).items():
            row[token] -= args["dry_multiplier"] * 1.75 ** (length - args["dry_allowed_length"])
    if "ngram_size" in args:  # of two tokens
        recent = output[-args["window_size"] :]
        repeats = {token for before, token in itertools.pairwise(recent) if before == output[-1]}
        row[list(repeats - {*args["whitelist_token_ids"]})] = -np.inf
    if "loop_times" in args:  # twice
        spans = [n for n in range(1, len(output) // 2 + 1) if looped(output, n, max(2 * n, args["loop_tokens"]))]
        for span in spans[:1]:
            row[output[-span]] -= 100.0
    if "forced_sequence" in args:
        due = [*args["forced_sequence"], *[args["forced_sequence_end"]] * 96]
        row = only(row, [due[len(output)]])
    if "think_budget" in args:
        n = len(output) - args["think_budget"]
        row = only(row, [args["think_end"][n]]) if 0 <= n < 3 else row
    if "cite_boost" in args:
        for token in {*prompt, *args["cite_also"]}:
            row[token] += args["cite_boost"]
        for token in {after for before, after in itertools.pairwise(prompt) if before == text[-1]}:
            row[token] += args["cite_next_boost"]
    return row


def expected(ask: Ask, answer: Answer) -> list[int]:
    """The greedy token at each position."""
    args = ask.params["extra_args"] or {}
    return [
        int(ruled(raw.astype(np.float64), args, list(ask.prompt_token_ids), answer.token_ids[:position]).argmax())
        for position, raw in enumerate(answer.rows)
    ]


# The engines


@dataclass
class Run:
    info: dict[str, str]
    answers: dict[str, Answer]
    seen: dict[str, int]
    decoded: Answer


@pytest.fixture(scope="module", params=["v1", "v2", "v2 with drafts"])
def run(request: pytest.FixtureRequest, release: Release | None) -> Run:
    runner, _, drafts = request.param.partition(" with ")
    settings = EngineSettings(
        runner,
        max_num_seqs=6,
        max_model_len=96,
        max_num_batched_tokens=32,
        num_gpu_blocks_override=9,
        block_size=32,
        extra={"speculative_config": drafting(release)} if drafts else {},
    )
    sources = [PROBES, *(plugin / "src" for plugin in PLUGINS)]
    with (DraftingEngine if drafts else EngineProcess)(settings, TARGETS, sys_path=sources) as engine:
        engine.inspect("plugin_probes:watch")
        if drafts:
            engine.inspect("plugin_probes:count_drafts")
        answers = engine.generate(ASKS)
        seen = engine.inspect("plugin_probes:seen")
        calls = engine.inspect("plugin_probes:calls") if drafts else []
        # The decode worker goes on behind the token that the prefill worker made.
        prefilled = next(ask for ask in ASKS if ask.request_id == "hello, prefill worker")
        prompt = (*prefilled.prompt_token_ids, *answers[prefilled.request_id].token_ids)
        params = {"max_tokens": 20, "temperature": 0.0, "extra_args": activated("decode")}
        decoded = engine.generate([Ask("decode", prompt, params)])["decode"]
    assert engine.info["runner"] == runner
    assert not drafts or sum(rows > requests for rows, requests in calls) >= 10
    return Run(engine.info, answers, seen, decoded)


def test_the_workload_has_preemption_and_prompts_in_pieces(run: Run) -> None:
    assert run.seen["preemptions"] >= 2
    assert run.seen["partial prefills"] >= 4


GREEDY = (
    *("off", "allowed", "bias", "penalties", "dry", "ocr", "loop", "forced", "thinking", "cite"),
    *("several", "several more"),
)


@pytest.mark.parametrize("ask", [ask for ask in ASKS if ask.request_id in GREEDY], ids=lambda ask: ask.request_id)
def test_each_position_is_what_the_rule_leaves_at_the_top(ask: Ask, run: Run) -> None:
    answer = run.answers[ask.request_id]
    assert answer.error is None
    assert len(answer.token_ids) == ask.params["max_tokens"]
    assert expected(ask, answer) == answer.token_ids
    raw = [int(row.argmax()) for row in answer.rows]
    assert (raw == answer.token_ids) == (ask.request_id == "off"), "the rule never mattered"


def within_sigmas(row: np.ndarray) -> np.ndarray:
    return row >= row.max() - 2.0 * row.std() - 1e-4


def near_when_squared(row: np.ndarray) -> np.ndarray:
    """Tokens that a distance from the top, squared, leaves within 25 of it: others have no share to speak of."""
    return 1.8 * ((row - row.max()) / 2.0) ** 2 <= 25.0


def likely_enough(row: np.ndarray) -> np.ndarray:
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
        ("n sigma", within_sigmas),
        ("smoothed", near_when_squared),
        ("epsilon", likely_enough),
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


def test_a_marked_text_is_recognized(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "reference_plugins" / "lpkit-greenlist-watermark" / "src")
    from lpkit_greenlist_watermark import GreenlistWatermark

    found = GreenlistWatermark.detect(run.answers["green"].token_ids, key=99, context=2)
    assert found.green == found.scored >= 10
    assert abs(GreenlistWatermark.detect(run.answers["green"].token_ids, key=98, context=2).z) < 4


def test_a_sampled_text_is_recognized(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "reference_plugins" / "lpkit-synthid" / "src")
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
