"""The token ids of words, with tokenizers of four kinds."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
from tokenizers import Tokenizer, models
from trained_tokenizers import KINDS, byte_level, metaspace_bpe, unigram, wordpiece, wrapped


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


def spelt(tokenizer: Any, found: list[tuple[int, ...]]) -> list[str]:
    return ["+".join(tokenizer.convert_ids_to_tokens(list(ids))) for ids in found]


def forms(tokenizer: Any, word: str, **options: Any) -> list[str]:
    return spelt(tokenizer, lpkit.words(tokenizer, [word], several="sequences", **options))


def test_a_word_as_it_stands_is_what_transformers_makes_of_it(tokenizer: Any) -> None:
    texts = ["yes", "no", "unusual", "the word"]
    expected = [tuple(ids) for ids in tokenizer(texts, add_special_tokens=False).input_ids]
    assert lpkit.words(tokenizer, texts, several="sequences") == expected


@pytest.mark.parametrize(
    ("made", "word", "expected"),
    [
        (byte_level, "yes", ["yes", "Ġyes"]),
        (byte_level, "unusual", ["unu+sual", "Ġunusual"]),
        (metaspace_bpe, "yes", ["▁yes", "yes"]),
        (unigram, "yes", ["▁yes", "yes"]),
        (wordpiece, "yes", ["yes"]),
    ],
)
def test_with_spaces_a_word_has_its_forms_of_running_text(made: Any, word: str, expected: list[str]) -> None:
    assert forms(made(), word, spaces=True) == expected


def test_the_forms_are_what_running_text_consists_of(tokenizer: Any) -> None:
    found = lpkit.words(tokenizer, ["yes"], spaces=True, several="sequences")
    for text in ("yes", "no yes", "maybe\nyes", "no: yes no"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        runs = {tuple(ids[i : i + len(form)]) for form in found for i in range(len(ids))}
        assert runs & set(found), text


@pytest.mark.parametrize(("made", "expected"), [(byte_level, "Ġyes"), (metaspace_bpe, "▁yes"), (unigram, "▁yes")])
def test_a_space_in_front_of_a_word_asks_for_the_form_after_a_space(made: Any, expected: str) -> None:
    assert forms(made(), " yes") == [expected]


def test_with_cases_a_word_is_also_lower_upper_and_capitalized(tokenizer: Any) -> None:
    texts = ["yES", "yes", "YES", "Yes"]
    assert lpkit.words(tokenizer, "yES", cases=True, several="sequences") == lpkit.words(
        tokenizer, texts, several="sequences"
    )


def test_a_space_stays_in_front_in_every_case() -> None:
    assert forms(byte_level(), " no", cases=True) == ["Ġno", "ĠNO", "ĠNo"]


def test_words_of_one_token_are_ids_without_repetitions() -> None:
    ids = lpkit.words(byte_level(), ["yes", "no", "yes"])
    assert byte_level().convert_ids_to_tokens(ids) == ["yes", "no"]
    assert lpkit.words(byte_level(), [*ids, "no"]) == ids


def test_a_word_of_several_tokens_is_refused_with_its_pieces() -> None:
    with pytest.raises(ValueError, match="'unusual' is not one token of the model but 2: 'unu', 'sual'"):
        lpkit.words(byte_level(), ["yes", "unusual"])
    with pytest.raises(ValueError, match="'unusual' is not one token"):
        lpkit.words(byte_level(), ["unusual"], spaces=True)


def test_forms_of_several_tokens_are_skipped_on_request_but_never_all_of_a_word() -> None:
    ids = lpkit.words(byte_level(), ["unusual"], spaces=True, several="skip")
    assert byte_level().convert_ids_to_tokens(ids) == ["Ġunusual"]
    with pytest.raises(ValueError, match="'unusual' is not one token of the model but 2"):
        lpkit.words(byte_level(), ["unusual"], several="skip")


def test_special_tokens_are_refused_unless_they_are_asked_for(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="'</s>' holds a special token of the model: '</s>'"):
        lpkit.words(tokenizer, ["</s>"])
    assert lpkit.words(tokenizer, ["</s>"], special=True) == [tokenizer.eos_token_id]


@pytest.mark.parametrize("made", [unigram, wordpiece])
def test_a_word_that_the_tokenizer_does_not_know_is_refused(made: Any) -> None:
    with pytest.raises(ValueError, match=r"has no tokens for '☃': .*'<unk>'"):
        lpkit.words(made(), ["☃"], several="sequences", special=True)
    assert lpkit.words(made(), ["<unk>"], special=True) == [made().unk_token_id]


@pytest.fixture(params=[False, True], ids=["transformers", "tokenizers"])
def chat(request: pytest.FixtureRequest) -> Any:
    """A tokenizer with markers of turns, one that is special without a name of its own, and one that is not."""
    bare = Tokenizer.from_str(byte_level().backend_tokenizer.to_str())
    bare.add_special_tokens(["<|im_end|>"])
    bare.add_tokens(["<think>"])
    return bare if request.param else wrapped(bare)


def test_markers_that_were_added_as_special_are_special_tokens(chat: Any) -> None:
    with pytest.raises(ValueError, match=r"'ok<\|im_end\|>' holds a special token of the model: '<\|im_end\|>'"):
        lpkit.words(chat, ["ok<|im_end|>"], several="sequences")
    assert lpkit.words(chat, ["<|im_end|>"], special=True) != lpkit.words(chat, ["<think>"])


@pytest.mark.parametrize("made", [unigram, wordpiece])
def test_a_bare_tokenizer_knows_what_it_does_not_know(made: Any) -> None:
    with pytest.raises(ValueError, match=r"has no tokens for '☃': .*'<unk>'"):
        lpkit.words(made().backend_tokenizer, ["☃"], several="sequences", special=True)


@pytest.mark.parametrize("bare", [False, True])
def test_forms_that_are_unknown_are_skipped_on_request_but_never_all_of_a_word(bare: bool) -> None:
    model = models.WordLevel({"<unk>": 0, "maybe": 1}, unk_token="<unk>")
    tokenizer = Tokenizer(model) if bare else wrapped(Tokenizer(model))
    assert lpkit.words(tokenizer, ["maybe"], cases=True, several="skip") == [1]
    with pytest.raises(ValueError, match="no tokens for 'maybe': '<unk>'"):
        lpkit.words(tokenizer, ["maybe"], cases=True)
    with pytest.raises(ValueError, match="no tokens for 'perhaps': '<unk>'"):
        lpkit.words(tokenizer, ["perhaps"], cases=True, several="skip")


@pytest.mark.parametrize("item", [True, 1.0, None, b"yes", -1])
@pytest.mark.parametrize("several", ["refuse", "sequences"])
def test_what_is_neither_a_word_nor_a_token_id_is_refused(item: Any, several: Any) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(repr(item))} is neither a word nor a token id"):
        lpkit.words(byte_level(), ["yes", item], several=several)


def test_bytes_are_not_taken_for_token_ids() -> None:
    with pytest.raises(ValueError, match="b'yes' is neither a word nor a token id"):
        lpkit.words(byte_level(), b"yes")  # type: ignore[call-overload]


def test_an_unknown_character_that_falls_back_to_bytes_is_a_sequence() -> None:
    assert forms(metaspace_bpe(), "☃") == ["▁+<0xE2>+<0x98>+<0x83>"]


@pytest.mark.parametrize("word", ["", "\ud800"])
def test_what_is_no_word_is_refused(tokenizer: Any, word: str) -> None:
    with pytest.raises(ValueError, match=r"empty|is not text that can be encoded"):
        lpkit.words(tokenizer, [word], spaces=True, several="sequences")


def test_another_value_of_several_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="several must be"):
        lpkit.words(tokenizer, ["yes"], several="all")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="several must be 'refuse' or 'skip', not 'sequences'"):
        lpkit.WordForms(several="sequences")  # type: ignore[arg-type]


def test_tokens_that_the_model_has_no_logits_for_are_refused() -> None:
    model = SimpleNamespace(lpkit_tokenizer=byte_level(), get_vocab_size=lambda: 100)
    config = SimpleNamespace(model_config=model)
    with pytest.raises(ValueError, match=r"'yes': token id [0-9]+ is outside the vocabulary of 100"):
        lpkit.words(config, ["yes"])
    with pytest.raises(ValueError, match="'yes': token id"):
        lpkit.words(config, ["yes"], several="sequences")
    with pytest.raises(ValueError, match="token id 500 is outside"):
        lpkit.words(SimpleNamespace(vllm_config=config, vocab_size=500), [500])
    assert lpkit.words(SimpleNamespace(vllm_config=config, vocab_size=500), ["yes"]) == lpkit.words(
        byte_level(), ["yes"]
    )


def test_a_tokenizer_of_the_tokenizers_library_will_do() -> None:
    bare = byte_level().backend_tokenizer
    assert lpkit.words(bare, ["yes"], spaces=True) == lpkit.words(byte_level(), ["yes"], spaces=True)
    with pytest.raises(ValueError, match="'unu', 'sual'"):
        lpkit.words(bare, ["unusual"])
