"""Phrases: which of them a row's tokens complete or continue, as a search in plain Python finds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lpkit.columns.ragged import ListTooLongError
from plugin_hosts import ON_EVERY_HOST, Applied, Asked, assert_cheap
from sdk_hosts import V1Host, params

VOCAB = 12
TEXTS = st.lists(st.integers(0, 2), max_size=8)
PHRASES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=4)


class Held(lpkit.LogitsProcessor):
    """Raise completing tokens by 1, continuing ones by 10, and the last token by 100 where a phrase is complete."""

    history = "tokens"

    class Params(lpkit.Params, prefix="held_"):
        phrases: list[list[int]]

    phrases = lpkit.phrases(limit=4, longest=8)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        following, complete = self.phrases.continuing(rows, rows.prompt_len)
        for ids, value in ((self.phrases.completing(rows), 1.0), (following, 10.0)):
            logits.scatter_add_(1, ids.clamp(min=0), torch.where(ids >= 0, value, 0.0))
        logits[:, -1] += 100.0 * complete
        return logits


def expected(prompt: Sequence[int], output: Sequence[int], phrases: Sequence[Sequence[int]]) -> list[float]:
    text, found = [*prompt, *output], [0.0] * VOCAB
    for phrase in phrases:
        if text[len(text) - len(phrase) + 1 :] == phrase[:-1]:
            found[phrase[-1]] += 1.0
        if len(output) < len(phrase) and phrase[: len(output)] == output:
            found[phrase[len(output)]] += 10.0
    return [*found[:-1], 100.0 * (output in phrases)]


@ON_EVERY_HOST
@given(requests=st.lists(st.tuples(TEXTS.filter(bool), TEXTS, PHRASES), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_completing_and_continuing_tokens_are_those_that_a_search_finds(applied: Applied, requests: Any) -> None:
    asked = [Asked({"held_phrases": phrases}, prompt, output) for prompt, output, phrases in requests]
    found = applied(Held, torch.zeros(len(requests), VOCAB), asked)
    assert found.tolist() == [expected(*request) for request in requests]


def test_a_longer_phrase_moves_those_of_others_and_a_left_slot_is_empty() -> None:
    host = V1Host(Held, vocab_size=VOCAB)
    given = [[[5]], [[1, 2, 3, 4, 6]]]
    host.update(2, added=[(row, params(held_phrases=phrases), [1], []) for row, phrases in enumerate(given)])
    held = host.processor.phrases
    slots = [host.processor._v1._ledger.entries[row].slot for row in range(2)]

    def of(slot: int) -> list[list[int]]:
        rows = SimpleNamespace(slots=torch.tensor([slot]), _gathered=None)
        return held[rows][0].tolist()

    assert of(slots[0]) == [[5] + [-1] * 7]
    for slot in slots:
        held.reset(slot)
    assert of(slots[1]) == [[-1] * 8]


@pytest.mark.parametrize("phrases", [[[1]] * 5, [[1] * 9]], ids=["many", "long"])
def test_more_than_the_column_holds_is_declined(phrases: list[list[int]]) -> None:
    processor = V1Host(Held, vocab_size=VOCAB).processor
    with pytest.raises(ListTooLongError):
        processor.phrases[0] = phrases


def test_the_longest_phrase_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="a power of two, got 9"):
        lpkit.phrases(longest=9)


def test_a_step_waits_for_no_device_and_has_no_operation_per_row() -> None:
    class Banned(Held):
        process = lpkit.LogitsProcessor.process

        def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
            logits[self.phrases.completing(rows)] = -math.inf
            logits[self.phrases.continuing(rows, rows.prompt_len)[0]] = -math.inf

    assert_cheap(Banned, Asked({"held_phrases": [[1, 2], [3]]}, [1, 2, 3], [1]))
