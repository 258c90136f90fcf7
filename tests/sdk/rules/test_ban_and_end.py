"""Ban and end against transformers' own processors, and closed forms."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lpkit.rules.ban import Ban
from lpkit.rules.end import End
from plugin_hosts import ON_EVERY_HOST, Applied, Asked, on_v1
from sdk_hosts import logits_of

VOCAB = 12
TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def bans(phrases: list[tuple[int, ...]]) -> type:
    """Ban, of phrases as token ids: a request can only give words, or single tokens."""

    class Phrases(Ban):
        def admit(self, request: Any) -> bool:
            request.params = request.params.model_copy(update={"phrases": tuple(phrases)})
            return super().admit(request)

    return Phrases


@ON_EVERY_HOST
@given(prompt=TEXTS, output=TEXTS, phrases=st.lists(TEXTS.map(lambda ids: tuple(ids[:4])), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_banned_phrases_agree_with_transformers_oracle(
    applied: Applied, prompt: list[int], output: list[int], phrases: list[tuple[int, ...]]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.generation.logits_process import NoBadWordsLogitsProcessor
    logits = logits_of(1, VOCAB)
    theirs = NoBadWordsLogitsProcessor([list(phrase) for phrase in phrases], eos_token_id=VOCAB - 1)
    expected = theirs(torch.tensor([prompt + output]), logits.clone())
    ours = applied(bans(phrases), logits, [Asked({"phrases": [0]}, prompt, output)])
    assert torch.equal(ours, expected)


@ON_EVERY_HOST
def test_a_penalty_is_taken_from_the_completing_token(applied: Applied) -> None:
    logits = logits_of(1, VOCAB)
    result = applied(bans([(1, 2), (3,)]), logits, [Asked({"phrases": [0], "penalty": 2.0}, [0], [1])])
    expected = logits.clone()
    expected[0, [2, 3]] -= 2.0
    assert torch.equal(result, expected)


def test_a_phrase_of_too_many_tokens_is_declined() -> None:
    logits = logits_of(1, VOCAB)
    assert torch.equal(on_v1(bans([(1,) * 10]), logits, [Asked({"phrases": [0]}, [0], [1])]), logits)


@ON_EVERY_HOST
@pytest.mark.parametrize("written", range(7))
def test_end_tokens_are_masked_then_likelier_then_forced(applied: Applied, written: int) -> None:
    args = {"tokens": [2, 5], "at_least": 2, "after": 3, "by": 0.5, "at_most": 6}
    logits = logits_of(1, VOCAB)
    expected = logits.clone()
    expected[0, [2, 5]] += -math.inf if written < 2 else 0.5 * max(0, written - 3)
    if written == 6:
        others = [token for token in range(VOCAB) if token not in (2, 5)]
        expected[0, others] = -math.inf
    assert torch.equal(applied(End, logits, [Asked(args, [1], [0] * written)]), expected)
