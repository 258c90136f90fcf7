"""lpkit-greenlist-watermark against its hash in plain Python, and its detector against statistics."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_greenlist_watermark import GreenlistWatermark
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from published_hashes import MASK, murmur32, splitmix64
from sdk_hosts import logits_of

VOCAB = 600


def green_list(text: list[int], key: int, share: float, context: int) -> list[bool]:
    newest_first = [*text[::-1], *[-1] * context][:context]
    hashed = sum(splitmix64(splitmix64(back) ^ (token & MASK)) for back, token in enumerate(newest_first)) & MASK
    seed = splitmix64(splitmix64(key & MASK) ^ hashed) >> 32
    # Signed numbers are compared: the halves of the unsigned range change places.
    return [(murmur32(seed ^ token) ^ 2**31) < int(share * 2**32) for token in range(VOCAB)]


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
def test_the_green_tokens_are_those_of_the_hash_in_plain_python(applied: Applied, seed: int) -> None:
    rng = random.Random(seed)
    asked, expected = [], []
    logits = logits_of(8, VOCAB, seed)
    for row in range(8):
        key, share, context = rng.randint(-(2**63), 2**63 - 1), rng.uniform(0.05, 0.95), rng.randint(1, 8)
        args = {"greenlist_key": key, "greenlist_share": share, "greenlist_bias": 3.0, "greenlist_context": context}
        text = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 12))]
        asked.append(Asked(args, text[:1], text[1:]))
        expected.append(logits[row] + 3.0 * torch.tensor(green_list(text, key, share, context)))
    agree(applied(GreenlistWatermark, logits, asked), torch.stack(expected), "the published hashes in plain Python")


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_sampled_texts_are_recognized_by_their_key(engine: Any) -> None:
    scheduler = Scheduler(engine([GreenlistWatermark], device="cpu"))
    for i in range(4):
        args = {"greenlist_key": 11, "greenlist_context": 1 + i} if i < 3 else {}
        scheduler.submit(Request(f"r{i}", SamplingParams(extra_args=args), [i + 1], max_tokens=200))
    scheduler.run()
    for i in range(4):
        ids = scheduler.finished[f"r{i}"].output_token_ids
        found = GreenlistWatermark.detect(ids, key=11, context=1 + min(i, 2))
        assert (found.z > 6) == (i < 3)
        assert abs(GreenlistWatermark.detect(ids, key=12, context=1 + min(i, 2)).z) < 4


def test_the_score_of_unmarked_texts_is_standard_normal() -> None:
    rng = random.Random(5)
    texts = [[rng.randrange(50_000) for _ in range(100)] for _ in range(300)]
    found = [GreenlistWatermark.detect(text, key=key) for key, text in enumerate(texts)]
    scores = torch.tensor([detection.z for detection in found])
    assert abs(float(scores.mean())) < 3.3 / math.sqrt(300)
    assert abs(float(scores.std()) - 1) < 0.14
    assert abs(sum(detection.p_value < 0.05 for detection in found) - 15) < 13
