"""The token ids of words: of the word itself, of its forms in running text, and of other cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, overload

from lpkit.vocabulary.encoder import Encoder
from lpkit.vocabulary.lookup import tokenizer as tokenizer_of

BEFORE = ("\n", ":")
"""Texts to put before a word, to get its tokens in running text. The first text that keeps its own tokens is used."""


@dataclass(frozen=True, slots=True)
class WordForms:
    """Forms of a word that count, in addition to the word itself.

    Attributes:
        spaces: adds the forms in running text, after a space and at the start of a line. For most tokenizers these are
            different tokens.
        cases: adds lower case, upper case and capitalized forms.
        special: True if a word may hold special tokens of the model, such as ``</s>`` or the markers of a chat.
        several: handling of a form with several tokens where one token is needed, and of unknown text. ``"refuse"``
            refuses the word. ``"skip"`` leaves the form out, and refuses the word if no form is left.

    Raises:
        ValueError: ``several`` has another value.
    """

    spaces: bool = False
    cases: bool = False
    special: bool = False
    several: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        if self.several not in ("refuse", "skip"):
            raise ValueError(f"several must be 'refuse' or 'skip', not {self.several!r}")


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
    """Return the token ids of words.

    Args:
        source: a processor, its ``vllm_config``, or a tokenizer.
        texts: the words, or a single word; a token id stands for itself.
        spaces, cases, special: as for :class:`lpkit.WordForms`.
        several: as there; or ``"sequences"``, to return each form as a tuple of its ids, and to refuse unknown text.

    Returns:
        Distinct ids (with ``"sequences"``, tuples of ids) in the order of the words.

    Raises:
        ValueError: a word is refused, or an item is neither a word nor a token id; the message names it.
        NoTokenizer: the engine has no tokenizer.
    """
    if several not in ("refuse", "skip", "sequences"):
        raise ValueError(f"several must be 'refuse', 'skip' or 'sequences', not {several!r}")
    given = hasattr(source, "encode")
    encoder = Encoder(source if given else tokenizer_of(source))
    size = None if given else _vocab_size(source)
    if isinstance(texts, bytes):  # bytes would pass for token ids
        raise ValueError(f"{texts!r} is neither a word nor a token id")
    texts = (texts,) if isinstance(texts, str) else texts
    if several == "sequences":
        return sequences(encoder, texts, WordForms(spaces, cases, special), size)
    return single_ids(encoder, texts, WordForms(spaces, cases, special, several), size)


def _vocab_size(owner: Any) -> int | None:
    """Return the number of columns of the logits; None if unknown."""
    if hasattr(owner, "vllm_config"):
        return getattr(owner, "vocab_size", None)
    ask = getattr(owner.model_config, "get_vocab_size", None)
    return None if ask is None else int(ask())


def sequences(
    encoder: Encoder, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None
) -> list[tuple[int, ...]]:
    """Return every form of the words as a tuple of ids, without repetitions."""
    distinct: dict[tuple[int, ...], None] = {}
    for text in texts:
        every = _forms(encoder, text, forms)
        for ids in every:
            _refuse_foreign(text, ids, vocab_size)
        distinct.update(dict.fromkeys(every))
    return list(distinct)


def in_order(encoder: Encoder, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None) -> list[int]:
    """Return the ids of the words themselves, one behind the other."""
    return [token for text in texts for token in sequences(encoder, [text], forms, vocab_size)[0]]


def single_ids(encoder: Encoder, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None) -> list[int]:
    """Return the ids of one-token forms, without repetitions; ``forms`` decides about longer forms."""
    distinct: dict[int, None] = {}
    for text in texts:
        every = _forms(encoder, text, forms)
        longer = [ids for ids in every if len(ids) > 1]
        if longer and (forms.several == "refuse" or len(longer) == len(every)):
            pieces = encoder.pieces(longer[0])
            raise ValueError(f"{text!r} is not one token of the model but {len(pieces)}: {', '.join(pieces)}")
        for ids in every:
            if len(ids) == 1:
                _refuse_foreign(text, ids, vocab_size)
                distinct[ids[0]] = None
    return list(distinct)


def _refuse_foreign(text: str | int, ids: tuple[int, ...], vocab_size: int | None) -> None:
    """Refuse tokens that the tokenizer knows but the model has no logits for."""
    if vocab_size is None:
        return
    for token in ids:
        if token >= vocab_size:
            what = "token id" if isinstance(text, int) else f"{text!r}: token id"
            raise ValueError(f"{what} {token} is outside the vocabulary of {vocab_size}")


def _forms(encoder: Encoder, word: str | int, forms: WordForms) -> list[tuple[int, ...]]:
    """Return the ids of each form of a word; the word itself comes first."""
    if not isinstance(word, str):
        if type(word) is not int or word < 0:
            raise ValueError(f"{word!r} is neither a word nor a token id")
        return [(word,)]
    if not word:
        raise ValueError("a word is empty")
    distinct: dict[tuple[int, ...], None] = {}
    unknown = None
    for text in _cased(word) if forms.cases else [word]:
        for ids in _encoded(encoder, text, forms.spaces):
            if _is_unknown(encoder, word, ids):
                unknown = unknown or ids
                continue
            held = () if forms.special else tuple(token for token in ids if token in encoder.special)
            if held:
                raise ValueError(f"{word!r} holds a special token of the model: {', '.join(encoder.pieces(held))}")
            distinct[ids] = None
    if unknown and (forms.several == "refuse" or not distinct):
        raise ValueError(f"the model's tokenizer has no tokens for {word!r}: {', '.join(encoder.pieces(unknown))}")
    if not distinct:
        raise ValueError(f"the model's tokenizer gives {word!r} no tokens")
    return list(distinct)


def _cased(word: str) -> Iterable[str]:
    text = word.lstrip(" ")
    space = word[: len(word) - len(text)]
    return dict.fromkeys([word, space + text.lower(), space + text.upper(), space + text.capitalize()])


def _is_unknown(encoder: Encoder, word: str, ids: tuple[int, ...]) -> bool:
    if encoder.unknown is None:
        return False
    token, text = encoder.unknown
    return token in ids and word != text


def _encoded(encoder: Encoder, text: str, in_running_text: bool) -> list[tuple[int, ...]]:
    bare = text.lstrip(" ")
    # Some tokenizers put a space before a text, and double a space that is there.
    alone = encoder.encode(text) if bare == text else _behind(encoder, text) or encoder.encode(text)
    variants = [alone, _behind(encoder, bare), _behind(encoder, " " + bare)] if in_running_text else [alone]
    return [ids for ids in variants if ids]


def _behind(encoder: Encoder, text: str) -> tuple[int, ...]:
    """Return the ids of ``text`` after another text; empty if the two texts share a token in every attempt."""
    for before in BEFORE:
        start, whole = encoder.encode(before), encoder.encode(before + text)
        if whole[: len(start)] == start:
            return whole[len(start) :]
    return ()
