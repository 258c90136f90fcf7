"""Words as parameters in a real engine on both runners, next to vLLM's own ``bad_words``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.tokenizer import tokenizer_folder, word_ids

pytestmark = pytest.mark.engine

VOCAB = 512
KNOWN = ("red", *(f"word{letter}" for letter in "abcdefghijklmnopqrstuvw"))
"""So many that the tiny model writes some of them."""
PROMPT = (100, 101, 102)


@pytest.fixture(scope="module", params=["v1", "v2"])
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(runner: str, engines: Callable[..., EngineProcess]) -> EngineProcess:
    tokenizer = {"tokenizer": tokenizer_folder(VOCAB, KNOWN), "skip_tokenizer_init": False}
    return engines(settings(runner, **tokenizer), ["words_probes:BanWords"])


def settings(runner: Any, **extra: Any) -> EngineSettings:
    return EngineSettings(runner, vocab_size=VOCAB, logprobs_mode="processed_logits", extra=extra)


def ask(name: str, **params: Any) -> Ask:
    return Ask(name, PROMPT, {"max_tokens": 8, "temperature": 0.0, **params}, logits=True)


def test_the_tokenizer_is_the_one_that_vllm_has_loaded(engine: EngineProcess) -> None:
    assert engine.inspect("words_probes:is_vllms_own")


def test_words_have_the_ids_that_vllm_forbids_as_bad_words(engine: EngineProcess) -> None:
    words = ["yes", "red", " no", "Maybe", "unusual", "two words"]
    theirs, ours = engine.inspect("words_probes:both", words)
    assert set(theirs) <= set(ours)
    assert {ids for ids in ours if len(ids) == 1} == {ids for ids in theirs if len(ids) == 1}


def test_the_words_of_a_request_are_forbidden_in_its_rows_alone(engine: EngineProcess) -> None:
    banned = word_ids(["yes", "red"], VOCAB, KNOWN)
    asks = [ask("bans", extra_args={"ban_words": ["yes", "red", 7]}), ask("does not")]
    rows = {name: answer.rows for name, answer in engine.generate(asks).items()}
    assert len(banned) == 4
    assert np.isneginf(rows["bans"][:, [*banned, 7]]).all()
    assert np.isneginf(rows["bans"]).sum() == 5 * len(rows["bans"])
    assert not np.isneginf(rows["does not"]).any()


def test_a_request_chooses_what_it_would_with_vllms_bad_words(engine: EngineProcess) -> None:
    free = engine.generate([ask("free")])["free"].token_ids
    every = [form for word in KNOWN for form in (word, word.upper(), word.capitalize())]
    words = [word for word in every if set(word_ids([word], VOCAB, KNOWN)) & set(free)]
    assert words
    asks = [ask("ours", extra_args={"ban_words": words}), ask("theirs", bad_words=words)]
    answers = engine.generate(asks)
    assert answers["ours"].token_ids == answers["theirs"].token_ids != free


def test_a_word_without_a_token_leaves_the_request_as_it_would_be_without_the_plugin(engine: EngineProcess) -> None:
    answers = engine.generate([ask("unknown", extra_args={"ban_words": ["unusual"]}), ask("free")])
    assert answers["unknown"].error is None
    assert answers["unknown"].token_ids == answers["free"].token_ids


def test_what_is_no_word_is_refused(engine: EngineProcess) -> None:
    answer = engine.generate([ask("odd", extra_args={"ban_words": [True]})])["odd"]
    assert "ban_words.0: Input should be a word of 1 to 128 characters, or a token id" in str(answer.error)


def test_an_engine_without_a_tokenizer_starts_and_takes_token_ids(
    runner: str, engines: Callable[..., EngineProcess]
) -> None:
    engine = engines(settings(runner), ["words_probes:BanWords"])
    asks = [ask("word", extra_args={"ban_words": ["yes"]}), ask("id", extra_args={"ban_words": [9]}), ask("free")]
    answers = engine.generate(asks)
    assert answers["word"].token_ids == answers["free"].token_ids
    assert np.isneginf(answers["id"].rows[:, 9]).all()
    assert not np.isneginf(answers["word"].rows).any()
