"""lpkit-synthid against transformers' SynthID-text processor, token by token, and its detector against their masks."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_synthid import SynthId
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

VOCAB = 600
KEYS = [654, 400, 836, 123, 340, 443, 597, 160, 57, -(2**63), 2**63 - 1]
SETTINGS = [
    # ngram_len, context_history_size, skip_first_ngram_calls, keys
    (5, 1024, False, KEYS),
    (2, 3, False, KEYS[:1]),
    (2, 1024, True, KEYS[3:5]),
    (4, 6, True, [7, 7] * 15),
    (17, 1024, False, KEYS),
    (3, 0, False, KEYS[:4]),
]


def theirs(rules: Any, ngram_len: int, size: int, skip: bool, keys: list[int]) -> Any:
    cls = rules.SynthIDTextWatermarkLogitsProcessor
    return cls(ngram_len, keys, 2**16, 0, size, torch.device("cpu"), skip)


def args(ngram_len: int, size: int, skip: bool, keys: list[int]) -> dict[str, Any]:
    found = {"keys": keys, "ngram_len": ngram_len, "context_history_size": size, "skip_first_ngram_calls": skip}
    return {f"synthid_{name}": value for name, value in found.items()}


def replies(seed: int) -> list[list[int]]:
    """Texts of many lengths and few tokens: contexts come again. 0, which also stands before a reply, is among them."""
    rng = random.Random(seed)
    return [[rng.randrange(rng.choice((1, 3, VOCAB))) for _ in range(length)] for length in (0, 1, 2, 4, 7, 16, 30, 60)]


ORACLE = "transformers' SynthIDTextWatermarkLogitsProcessor"


@ON_EVERY_HOST
def test_it_samples_from_what_transformers_samples_from(applied: Applied, transformers_rules: Any) -> None:
    asked, expected, alone = [], [], []
    outputs = [(settings, output) for settings in SETTINGS for output in replies(0)]
    logits = logits_of(len(outputs), VOCAB, 0)
    for row, (settings, output) in zip(logits, outputs, strict=True):
        rule = theirs(transformers_rules, *settings)
        for length in range(len(output) + 1):
            text = torch.tensor([[5, 0, *output[:length]]])
            changed = rule(text, row.unsqueeze(0))[0]
        asked.append(Asked(args(*settings), [5, 0], output, temperature=0.6))
        expected.append(changed.log_softmax(0))
        alone.append(torch.equal(changed, row))
    result = applied(SynthId, logits, asked)
    ours, wanted = result.log_softmax(1), torch.stack(expected)
    none = wanted < -1e30  # a share that they round to 0, and say so with the smallest number
    agree(ours.exp(), wanted.exp(), ORACLE, "shares", within=1e-6)
    agree(ours[~none], wanted[~none], ORACLE, "logarithms of shares", within=3e-5)
    assert bool((ours[none] < -60).all())
    for row, left in enumerate(alone):
        assert not left or torch.allclose(result[row], logits[row], rtol=1e-6)
    assert 5 < sum(alone) < len(alone) - 5


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_detector_counts_what_transformers_lets_count(settings: Any, transformers_rules: Any) -> None:
    ngram_len, size, _, keys = settings
    rule = theirs(transformers_rules, *settings)
    for text in [*replies(3)[5:], [*range(40, 90), 2, *range(40)]]:
        ids = torch.tensor([text])
        found = SynthId.detect(text, keys=keys, ngram_len=ngram_len, context_history_size=size, eos_token_id=2)
        if len(text) < ngram_len:
            assert found.scored == 0
            continue
        counts = rule.compute_context_repetition_mask(ids)[0]
        counts = counts & rule.compute_eos_token_mask(ids, 2)[0, ngram_len - 1 :].bool()
        bits = rule.compute_g_values(ids)[0][counts].double()
        assert found.scored == len(bits)
        if len(bits):
            weights = torch.linspace(10, 1, len(keys), dtype=torch.float64)
            assert found.mean == pytest.approx(float(bits.mean()))
            assert found.weighted_mean == pytest.approx(float((bits @ (weights / weights.sum())).mean()))


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_sampled_texts_are_recognized_by_their_keys(engine: Any) -> None:
    scheduler = Scheduler(engine([SynthId], device="cpu"))
    for i in range(4):
        wanted = {"synthid_keys": KEYS, "synthid_ngram_len": 2 + i} if i < 3 else {}
        scheduler.submit(Request(f"r{i}", SamplingParams(extra_args=wanted), [i + 1], max_tokens=200))
    scheduler.run()
    for i in range(4):
        ids = scheduler.finished[f"r{i}"].output_token_ids
        assert (SynthId.detect(ids, keys=KEYS, ngram_len=2 + min(i, 2)).z > 6) == (i < 3)
        assert abs(SynthId.detect(ids, keys=[5, 6, 8], ngram_len=2 + min(i, 2)).z) < 4


def test_the_score_of_unmarked_texts_is_standard_normal() -> None:
    rng = random.Random(5)
    texts = [[rng.randrange(50_000) for _ in range(100)] for _ in range(300)]
    scores = torch.tensor([SynthId.detect(text, keys=KEYS).z for text in texts])
    assert abs(float(scores.mean())) < 3.3 / math.sqrt(300)
    assert abs(float(scores.std()) - 1) < 0.14
