"""lpkit-no-repeat-ngram against transformers' rule and a brute-force search, on both runners."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
import torch
from lpkit_no_repeat_ngram import NoRepeatNgram
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import VOCAB, logits_of

PROMPT = [1, 2, 3, 1, 2]


def asked(outputs: list[list[int]], **args: int) -> list[Asked]:
    return [
        Asked({f"no_repeat_ngram_{key}": value for key, value in args.items()}, PROMPT, output) for output in outputs
    ]


def random_outputs(rng: random.Random, kinds: int = 4) -> list[list[int]]:
    """Few kinds of tokens, so that repetitions are common."""
    return [[rng.randrange(kinds) for _ in range(rng.randint(0, 60))] for _ in range(8)]


@ON_EVERY_HOST
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_it_masks_what_transformers_masks_in_the_reply(applied: Applied, size: int, transformers_rules: Any) -> None:
    rule = transformers_rules.NoRepeatNGramLogitsProcessor(size)
    rng = random.Random(size)
    masked = 0
    for _ in range(10):
        outputs = random_outputs(rng)
        logits = logits_of(8)
        result = applied(NoRepeatNgram, logits, asked(outputs, size=size))
        for row, output in enumerate(outputs):
            expected = rule(torch.tensor([output], dtype=torch.int64).reshape(1, -1), logits[row : row + 1].clone())
            agree(result[row], expected[0], "transformers' NoRepeatNGramLogitsProcessor")
        masked += int((result == -math.inf).sum())
    assert masked > 10


@ON_EVERY_HOST
@pytest.mark.parametrize("window", [1, 4, 20])
def test_a_window_is_as_if_the_reply_began_there(applied: Applied, window: int) -> None:
    rng = random.Random(window)
    outputs = random_outputs(rng, kinds=3)
    logits = logits_of(8)
    result = applied(NoRepeatNgram, logits, asked(outputs, size=2, window=window))
    for row, output in enumerate(outputs):
        seen = output[-window:]
        pairs = set(itertools.pairwise(seen))
        banned = [token for token in range(VOCAB) if seen and (seen[-1], token) in pairs]
        expected = logits[row].clone()
        expected[banned] = -math.inf
        agree(result[row], expected, "the pairs of the window in plain Python")
