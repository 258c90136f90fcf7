"""The token ids of words: a word as it stands, as it comes in running text, and in other cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, overload

from lpkit.vocabulary.lookup import tokenizer as tokenizer_of

BEFORE = ("\n", ":")
"""Texts that a word is put behind, to see its tokens in running text; the first that stays whole in front of it."""


@dataclass(frozen=True, slots=True)
class WordForms:
    """Which forms of a word count, in addition to the word as it stands.

    Attributes:
        spaces: also as it comes in running text, after a space and at the start of a line. For most tokenizers
            these are different tokens.
        cases: also in lower case, in upper case and capitalized.
        special: whether a word may hold special tokens of the model, such as ``</s>``.
        several: what becomes of a form of several tokens where each is to be one: ``"refuse"`` refuses the word,
            ``"skip"`` leaves the form out, and refuses the word if no form is left.
    """

    spaces: bool = False
    cases: bool = False
    special: bool = False
    several: Literal["refuse", "skip"] = "refuse"


@overload
def words(
    source: Any,
    texts: str | Iterable[str | int],
    *,
    spaces: bool = ...,
    cases: bool = ...,
    special: bool = ...,
    several: Literal["refuse", "skip"] = ...,
) -> list[int]: ...


@overload
def words(
    source: Any,
    texts: str | Iterable[str | int],
    *,
    spaces: bool = ...,
    cases: bool = ...,
    special: bool = ...,
    several: Literal["sequences"],
) -> list[tuple[int, ...]]: ...


def words(
    source: Any,
    texts: str | Iterable[str | int],
    *,
    spaces: bool = False,
    cases: bool = False,
    special: bool = False,
    several: Literal["refuse", "skip", "sequences"] = "refuse",
) -> list[int] | list[tuple[int, ...]]:
    """The token ids of words.

    Args:
        source: a processor, its ``vllm_config``, or a tokenizer.
        texts: the words, or a single one; a token id stands for itself.
        spaces: also the words as they come in running text, after a space and at the start of a line. For most
            tokenizers these are different tokens.
        cases: also the words in lower case, in upper case and capitalized.
        special: whether words may hold special tokens of the model, such as ``</s>``.
        several: what becomes of a form of several tokens: ``"refuse"`` refuses the word, ``"skip"`` leaves the form
            out, and refuses the word if no form is left; ``"sequences"`` returns each form as a tuple of its ids.

    Returns:
        Distinct ids (with ``"sequences"``, tuples of ids) in the order of the words.

    Raises:
        ValueError: naming a word that is refused, and its pieces.
        NoTokenizer: the engine has no tokenizer.
    """
    if several not in ("refuse", "skip", "sequences"):
        raise ValueError(f"several must be 'refuse', 'skip' or 'sequences', not {several!r}")
    given = hasattr(source, "encode")
    tokenizer = source if given else tokenizer_of(source)
    size = None if given else _vocab_size(source)
    texts = (texts,) if isinstance(texts, str) else texts
    if several == "sequences":
        return sequences(tokenizer, texts, WordForms(spaces, cases, special), size)
    return single_ids(tokenizer, texts, WordForms(spaces, cases, special, several), size)


def _vocab_size(owner: Any) -> int | None:
    """Columns of the logits; None if nobody says."""
    if hasattr(owner, "vllm_config"):
        return getattr(owner, "vocab_size", None)
    ask = getattr(owner.model_config, "get_vocab_size", None)
    return None if ask is None else int(ask())


def sequences(
    tokenizer: Any, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None
) -> list[tuple[int, ...]]:
    """Every form of the words as a tuple of ids, without repetitions."""
    found: dict[tuple[int, ...], None] = {}
    for text in texts:
        every = _forms(tokenizer, text, forms) if isinstance(text, str) else [(text,)]
        for ids in every:
            _refuse_foreign(text, ids, vocab_size)
        found.update(dict.fromkeys(every))
    return list(found)


def single_ids(tokenizer: Any, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None) -> list[int]:
    """The ids of forms of one token, without repetitions; others are refused or skipped, as ``forms`` says."""
    found: dict[int, None] = {}
    for text in texts:
        every = _forms(tokenizer, text, forms) if isinstance(text, str) else [(text,)]
        longer = [ids for ids in every if len(ids) > 1]
        if longer and (forms.several == "refuse" or len(longer) == len(every)):
            pieces = _pieces(tokenizer, longer[0])
            raise ValueError(f"{text!r} is not one token of the model but {len(pieces)}: {', '.join(pieces)}")
        for ids in every:
            if len(ids) == 1:
                _refuse_foreign(text, ids, vocab_size)
                found[ids[0]] = None
    return list(found)


def _refuse_foreign(text: str | int, ids: tuple[int, ...], vocab_size: int | None) -> None:
    """Tokenizers may know tokens that the model has no logits for."""
    if vocab_size is None:
        return
    for token in ids:
        if not 0 <= token < vocab_size:
            what = "token id" if isinstance(text, int) else f"{text!r}: token id"
            raise ValueError(f"{what} {token} is outside the vocabulary of {vocab_size}")


def _forms(tokenizer: Any, word: str, forms: WordForms) -> list[tuple[int, ...]]:
    """The ids of each form of a word; the word as it stands comes first."""
    if not word:
        raise ValueError("a word is empty")
    spelt = [word]
    if forms.cases:
        text = word.lstrip(" ")
        space = word[: len(word) - len(text)]
        spelt += [space + text.lower(), space + text.upper(), space + text.capitalize()]
    found: dict[tuple[int, ...], None] = {}
    special = frozenset(() if forms.special else getattr(tokenizer, "all_special_ids", ()))
    for text in dict.fromkeys(spelt):
        for ids in _encoded(tokenizer, text, forms.spaces):
            _refuse_unusable(tokenizer, word, ids, special)
            found[ids] = None
    if not found:
        raise ValueError(f"the model's tokenizer gives {word!r} no tokens")
    return list(found)


def _encoded(tokenizer: Any, text: str, in_running_text: bool) -> list[tuple[int, ...]]:
    bare = text.lstrip(" ")
    # Alone, some tokenizers put a space in front of a text, and double one that is there.
    alone = _encode(tokenizer, text) if bare == text else _behind(tokenizer, text) or _encode(tokenizer, text)
    found = [alone, _behind(tokenizer, bare), _behind(tokenizer, " " + bare)] if in_running_text else [alone]
    return [ids for ids in found if ids]


def _behind(tokenizer: Any, text: str) -> tuple[int, ...]:
    """The ids of ``text`` behind another one; none if the two share a token wherever it is tried."""
    for before in BEFORE:
        start, whole = _encode(tokenizer, before), _encode(tokenizer, before + text)
        if whole[: len(start)] == start:
            return whole[len(start) :]
    return ()


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    try:
        found = tokenizer.encode(text, add_special_tokens=False)
    except (TypeError, UnicodeError):
        raise ValueError(f"{text!r} is not text that can be encoded") from None
    return tuple(getattr(found, "ids", found))  # the tokenizers library returns an object


def _refuse_unusable(tokenizer: Any, word: str, ids: tuple[int, ...], special: frozenset[int]) -> None:
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown in ids and word != getattr(tokenizer, "unk_token", None):
        raise ValueError(f"the model's tokenizer has no tokens for {word!r}: {', '.join(_pieces(tokenizer, ids))}")
    held = tuple(token for token in ids if token in special)
    if held:
        raise ValueError(f"{word!r} holds a special token of the model: {', '.join(_pieces(tokenizer, held))}")


def _pieces(tokenizer: Any, ids: tuple[int, ...]) -> list[str]:
    """How the vocabulary spells the tokens, for messages."""
    convert = getattr(tokenizer, "convert_ids_to_tokens", None)
    if convert is not None:
        return [repr(piece) for piece in convert(list(ids))]
    spell = getattr(tokenizer, "id_to_token", str)
    return [repr(spell(token)) for token in ids]
