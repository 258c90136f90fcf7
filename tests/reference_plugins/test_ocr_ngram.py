"""lpkit-ocr-ngram against a brute-force search; `tests/engine` compares it with vLLM's own class."""

from __future__ import annotations

import math
import random

import pytest
from lpkit_ocr_ngram import OcrNgram
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

PROMPT = [1, 2, 3, 1, 2]


def banned(output: list[int], size: int, window: int, whitelist: list[int]) -> set[int]:
    """The last tokens of the n-grams that begin within the window and, but for that token, are the reply's end."""
    begins = range(max(0, len(output) - window), len(output) - size + 1)
    last = output[len(output) - size + 1 :]
    return {output[i + size - 1] for i in begins if output[i : i + size - 1] == last} - {*whitelist}


@ON_EVERY_HOST
@pytest.mark.parametrize(("size", "window", "whitelist"), [(2, 100, []), (2, 9, [0, 2]), (3, 20, [1]), (5, 4, [])])
def test_it_masks_what_a_plain_search_finds(applied: Applied, size: int, window: int, whitelist: list[int]) -> None:
    rng = random.Random(size * window)
    args = {"ngram_size": size, "window_size": window, "whitelist_token_ids": whitelist}
    outputs = [[rng.randrange(3) for _ in range(rng.randint(0, 60))] for _ in range(24)]
    logits = logits_of(len(outputs))
    result = applied(OcrNgram, logits, [Asked(args, PROMPT, output) for output in outputs])
    expected = logits.clone()
    for row, output in enumerate(outputs):
        expected[row, list(banned(output, size, window, whitelist))] = -math.inf
    agree(result, expected, "a search in plain Python")
    assert bool((expected == -math.inf).any()) == (window >= size)
