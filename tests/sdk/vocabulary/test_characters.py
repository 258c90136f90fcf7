"""Classes of characters: scripts agree with the `regex` package, and tokens hold what they add to a text."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
import regex
from lpkit.vocabulary.characters import CLASSES, TokenCharacters, holding
from lpkit.vocabulary.encoder import Encoder
from lpkit.vocabulary.forms import WordForms
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LETTERS = [
    character
    for character in map(chr, [*range(0xD800), *range(0xE000, 0x20000)])
    if unicodedata.category(character)[0] in "LM"
]
WORDS = ["a", "b7", " c", "Да", " нет", "xД", "漢", "!", " ", "2", "日本!"]


def byte_level() -> Tokenizer:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = {split.pre_tokenize_str(word)[0][0]: None for word in (*WORDS, *map(chr, range(33, 127)))}
    pieces = list(dict.fromkeys([*words, *sorted(pre_tokenizers.ByteLevel.alphabet())]))
    made = Tokenizer(models.BPE(vocab={piece: token for token, piece in enumerate(pieces)}, merges=[]))
    made.pre_tokenizer, made.decoder = split, decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<end>", special=True)])
    return made


def metaspace() -> Tokenizer:
    pieces = [word.replace(" ", "▁") for word in WORDS] + ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {piece: token for token, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens([AddedToken("<end>", special=True)])
    return made


@pytest.fixture(params=[byte_level, metaspace], ids=["byte-level", "metaspace"])
def tokens(request: pytest.FixtureRequest) -> Any:
    made = request.param()
    found = TokenCharacters(Encoder(made), made.get_vocab_size() + 5)

    def shown(ids: Any) -> set[str]:
        """The words among the tokens, and the special token."""
        words = dict(enumerate(WORDS)) | {made.token_to_id("<end>"): "<end>"}
        return {words[token] for token in ids.tolist() if token in words}

    return made, found, shown


@pytest.mark.parametrize("script", [name for name in CLASSES if name[0].isupper()])
def test_scripts_agree_with_unicode_oracle(script: str) -> None:
    pattern = regex.compile(rf"\p{{Script={script}}}")
    ours = {character for character in LETTERS if CLASSES[script](character)}
    theirs = {character for character in LETTERS if pattern.match(character)}
    combining = {character for character in ours - theirs if unicodedata.category(character)[0] == "M"}
    assert len(ours - theirs - combining) <= 3
    assert len(theirs - ours) <= 0.13 * len(theirs)  # phonetic signs whose names do not name their script


@pytest.mark.parametrize("name", [name for name in CLASSES if name[0].islower() and name not in ("partial", "space")])
def test_classes_agree_with_unicode_oracle(name: str) -> None:
    classes = {"digit": r"\p{Nd}", "upper": r"\p{Lu}|\p{Lt}", "lower": r"\p{Ll}", "mark": r"\p{M}", "letter": r"\p{L}"}
    classes |= {"number": r"\p{N}", "punctuation": r"\p{P}", "symbol": r"\p{S}", "ascii": r"\p{ASCII}"}
    pattern = regex.compile(classes[name])
    assigned = [character for character in map(chr, range(0x3000)) if unicodedata.category(character) != "Cn"]
    other = [item for item in assigned if CLASSES[name](item) is not bool(pattern.match(item))]
    assert len(other) <= 2  # Python's release of Unicode may be older


def test_a_token_holds_what_it_adds_behind_another(tokens: Any) -> None:
    _, found, shown = tokens
    assert shown(found.holding(["Cyrillic"])) == {"Да", " нет", "xД"}
    assert shown(found.holding(["space", "Han"])) == {" c", " нет", "漢", " ", "日本!"}
    assert shown(found.holding(["digit"])) == {"b7", "2"}


def test_an_allowed_token_holds_nothing_else_and_special_tokens_stay(tokens: Any) -> None:
    _, found, shown = tokens
    assert shown(found.made_of(["Latin"])) == {"a", "<end>"}
    assert shown(found.made_of(["Latin", "space", "digit"])) == {"a", "b7", " c", " ", "2", "<end>"}
    assert shown(found.made_of(["Han", "punctuation"])) == {"漢", "!", "日本!", "<end>"}


def test_a_piece_of_a_character_is_partial_and_of_no_script(tokens: Any) -> None:
    made, found, shown = tokens
    partial = found.holding(["partial"])
    assert len(partial) >= 128
    assert shown(partial) == set()
    assert not set(partial.tolist()) & set(found.holding([name for name in CLASSES if name[0].isupper()]).tolist())
    pieces = made.encode("é").ids  # of two bytes, no word
    assert set(pieces) <= set(partial.tolist())
    assert not set(pieces) & set(found.made_of(["Latin"]).tolist())
    assert set(pieces) <= set(found.made_of(["Latin", "partial"]).tolist())


def test_ids_that_the_tokenizer_lacks_hold_nothing(tokens: Any) -> None:
    made, found, _ = tokens
    every = found.made_of(list(CLASSES))
    assert every.max() < made.get_vocab_size()


def test_a_class_that_no_token_has_is_refused() -> None:
    with pytest.raises(ValueError, match="the model has no token of Thai"):
        holding(Encoder(byte_level()), ["Thai"], WordForms(), 40)
