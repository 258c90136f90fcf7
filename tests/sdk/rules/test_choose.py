"""Choose: the reply is one of the texts, whatever the model likes; the texts are a trie in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lpkit.rules.chain import Rules
from lpkit.rules.choose import Choose
from lpkit.runtime import Request, ThinkingMarkers, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of
from trained_tokenizers import KINDS, byte_level

VOCAB = 12
TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5)
ENDS = {10, 11}


def trie(texts: Sequence[Sequence[int]]) -> dict[int, Any]:
    root: dict[int, Any] = {}
    for text in texts:
        node = root
        for token in text:
            node = node.setdefault(token, {})
        node[-1] = {}
    return root


def left(texts: Sequence[Sequence[int]], ends: set[int], output: Sequence[int]) -> set[int]:
    """The tokens that may follow; all of them where the output has left the texts, or where no end is asked for."""
    node = trie(texts)
    for token in output:
        if token not in node:
            return set(range(VOCAB))
        node = node[token]
    if -1 in node and not ends:
        return set(range(VOCAB))
    return (node.keys() - {-1}) | (ends if -1 in node else set())


def of_ids(texts: Sequence[Sequence[int]]) -> type:
    """Choose, of texts as token ids: a request can only give words, or single tokens."""

    class Texts(Choose):
        def admit(self, request: Any) -> bool:
            request.params = request.params.model_copy(update={"texts": tuple(texts)})
            return super().admit(request)

    return Texts


@ON_EVERY_HOST
@given(texts=TEXTS, output=st.lists(st.integers(0, 2), max_size=5), ended=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_is_left_are_the_branches_of_a_trie_oracle(
    applied: Applied, texts: Any, output: list[int], ended: bool
) -> None:
    ends = ENDS if ended else set()
    asked = Asked({"texts": [0], **({"end": sorted(ends)} if ends else {})}, [1, 2], output)
    result = applied(of_ids(texts), logits_of(1, VOCAB), [asked])
    assert set((result[0] > -float("inf")).nonzero()[:, 0].tolist()) == left(texts, ends, output)


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
@pytest.mark.parametrize("kind", KINDS)
def test_the_reply_is_one_of_the_texts(engine: Any, kind: str) -> None:
    tokenizer = KINDS[kind]()
    texts = ["yes", "no maybe", "yes: no"]
    steps = [{"rule": "choose", "texts": texts, "end": ["</s>"]}]
    for seed in range(6):
        served = engine([Rules], tokenizer=tokenizer, seed=seed)
        params = SamplingParams(temperature=1.0, seed=seed, max_tokens=12, extra_args={"rules": steps})
        request = Request("r", params, [5, 6])
        served.add(request)
        while request.output_token_ids[-1:] != [tokenizer.eos_token_id]:
            served.step()
        reply = tokenizer.decode(request.output_token_ids[:-1])  # the spaces are the tokenizer's
        assert reply.replace("▁", "").replace(" ", "") in [text.replace(" ", "") for text in texts]


def test_the_texts_may_begin_behind_the_reasoning() -> None:
    tokenizer, markers = byte_level(), ThinkingMarkers(start=(8,), end=(9, 10))
    steps = [{"rule": "choose", "texts": ["no"], "end": ["</s>"], "when": {"during": "answer"}}]
    engine = V1Engine([Rules], tokenizer=tokenizer, seed=1, thinking=markers)
    request = Request("r", SamplingParams(extra_args={"rules": steps}), [5], output_token_ids=[8, 7, 9, 10])
    engine.add(request)
    engine.step()
    engine.step()
    assert tokenizer.decode(request.output_token_ids[4:]) in ("no</s>", " no</s>")
