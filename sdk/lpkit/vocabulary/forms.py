"""The token ids of words: a word as it stands, as it comes in running text, and in other cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, overload

from lpkit.vocabulary.encoder import Encoder
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
        special: whether a word may hold special tokens of the model, such as ``</s>`` or the markers of a chat.
        several: what becomes of a form of several tokens where each is to be one, and of one that the tokenizer does
            not know: ``"refuse"`` refuses the word, ``"skip"`` leaves the form out, and refuses the word if no form
            is left.

    Raises:
        ValueError: ``several`` is neither of these.
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
    """The token ids of words.

    Args:
        source: a processor, its ``vllm_config``, or a tokenizer.
        texts: the words, or a single one; a token id stands for itself.
        spaces: also the words as they come in running text, after a space and at the start of a line. For most
            tokenizers these are different tokens.
        cases: also the words in lower case, in upper case and capitalized.
        special: whether words may hold special tokens of the model, such as ``</s>`` or the markers of a chat.
        several: what becomes of a form of several tokens, and of one that the tokenizer does not know: ``"refuse"``
            refuses the word, ``"skip"`` leaves the form out, and refuses the word if no form is left;
            ``"sequences"`` returns each form as a tuple of its ids, and refuses what the tokenizer does not know.

    Returns:
        Distinct ids (with ``"sequences"``, tuples of ids) in the order of the words.

    Raises:
        ValueError: naming a word that is refused, and its pieces, or what is neither a word nor a token id.
        NoTokenizer: the engine has no tokenizer.
    """
    if several not in ("refuse", "skip", "sequences"):
        raise ValueError(f"several must be 'refuse', 'skip' or 'sequences', not {several!r}")
    given = hasattr(source, "encode")
    encoder = Encoder(source if given else tokenizer_of(source))
    size = None if given else _vocab_size(source)
    if isinstance(texts, bytes):  # these would pass for token ids
        raise ValueError(f"{texts!r} is neither a word nor a token id")
    texts = (texts,) if isinstance(texts, str) else texts
    if several == "sequences":
        return sequences(encoder, texts, WordForms(spaces, cases, special), size)
    return single_ids(encoder, texts, WordForms(spaces, cases, special, several), size)


def _vocab_size(owner: Any) -> int | None:
    """Columns of the logits; None if they are not known."""
    if hasattr(owner, "vllm_config"):
        return getattr(owner, "vocab_size", None)
    ask = getattr(owner.model_config, "get_vocab_size", None)
    return None if ask is None else int(ask())


def sequences(
    encoder: Encoder, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None
) -> list[tuple[int, ...]]:
    """Every form of the words as a tuple of ids, without repetitions."""
    found: dict[tuple[int, ...], None] = {}
    for text in texts:
        every = _forms(encoder, text, forms)
        for ids in every:
            _refuse_foreign(text, ids, vocab_size)
        found.update(dict.fromkeys(every))
    return list(found)


def single_ids(encoder: Encoder, texts: Iterable[str | int], forms: WordForms, vocab_size: int | None) -> list[int]:
    """The ids of forms of one token, without repetitions; others are refused or skipped, as ``forms`` says."""
    found: dict[int, None] = {}
    for text in texts:
        every = _forms(encoder, text, forms)
        longer = [ids for ids in every if len(ids) > 1]
        if longer and (forms.several == "refuse" or len(longer) == len(every)):
            pieces = encoder.pieces(longer[0])
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
        if token >= vocab_size:
            what = "token id" if isinstance(text, int) else f"{text!r}: token id"
            raise ValueError(f"{what} {token} is outside the vocabulary of {vocab_size}")


def _forms(encoder: Encoder, word: str | int, forms: WordForms) -> list[tuple[int, ...]]:
    """The ids of each form of a word; the word as it stands comes first."""
    if not isinstance(word, str):
        if type(word) is not int or word < 0:
            raise ValueError(f"{word!r} is neither a word nor a token id")
        return [(word,)]
    if not word:
        raise ValueError("a word is empty")
    found: dict[tuple[int, ...], None] = {}
    unknown = None
    for text in _cased(word) if forms.cases else [word]:
        for ids in _encoded(encoder, text, forms.spaces):
            if _is_unknown(encoder, word, ids):
                unknown = unknown or ids
                continue
            held = () if forms.special else tuple(token for token in ids if token in encoder.special)
            if held:
                raise ValueError(f"{word!r} holds a special token of the model: {', '.join(encoder.pieces(held))}")
            found[ids] = None
    if unknown and (forms.several == "refuse" or not found):
        raise ValueError(f"the model's tokenizer has no tokens for {word!r}: {', '.join(encoder.pieces(unknown))}")
    if not found:
        raise ValueError(f"the model's tokenizer gives {word!r} no tokens")
    return list(found)


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
    # Alone, some tokenizers put a space in front of a text, and double one that is there.
    alone = encoder.encode(text) if bare == text else _behind(encoder, text) or encoder.encode(text)
    found = [alone, _behind(encoder, bare), _behind(encoder, " " + bare)] if in_running_text else [alone]
    return [ids for ids in found if ids]


def _behind(encoder: Encoder, text: str) -> tuple[int, ...]:
    """The ids of ``text`` behind another one; none if the two share a token wherever it is tried."""
    for before in BEFORE:
        start, whole = encoder.encode(before), encoder.encode(before + text)
        if whole[: len(start)] == start:
            return whole[len(start) :]
    return ()
