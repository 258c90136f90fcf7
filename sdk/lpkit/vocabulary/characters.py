"""Characters of a model's tokens: which tokens hold a character of a class or a script, or nothing else.

A script's characters are the letters and marks with its name in theirs (:mod:`unicodedata`): ``CYRILLIC SMALL LETTER
A`` is Cyrillic. Special tokens hold no characters. A token may end within a character whose other bytes are in the next
token: it holds ``partial``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lpkit.vocabulary.encoder import Encoder

Ids = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_REPLACEMENT = "\ufffd"
_GENERAL = frozenset({"COMBINING", "FULLWIDTH", "HALFWIDTH", "LETTER", "MODIFIER", "SMALL"})  # before a script's name


def _category(*begins: str) -> Callable[[str], bool]:
    return lambda character: unicodedata.category(character).startswith(begins)


def _script(*words: str) -> Callable[[str], bool]:
    def holds(character: str) -> bool:
        named = [word for word in unicodedata.name(character, "").split() if word not in _GENERAL]
        return unicodedata.category(character)[0] in "LM" and any(word in words for word in named[:1])

    return holds


_SCRIPTS = (
    "Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Hangul Hebrew Kannada "
    "Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Tamil Telugu Thai Tibetan"
)

CLASSES: dict[str, Callable[[str], bool]] = {
    "letter": _category("L"),
    "upper": _category("Lu", "Lt"),
    "lower": _category("Ll"),
    "mark": _category("M"),
    "digit": _category("Nd"),
    "number": _category("N"),
    "punctuation": _category("P"),
    "symbol": _category("S"),
    "space": str.isspace,
    "ascii": str.isascii,
    "partial": _REPLACEMENT.__eq__,
    **{script: _script(script.upper()) for script in _SCRIPTS.split()},
    "Hiragana": _script("HIRAGANA", "HENTAIGANA"),
    "Han": _script("CJK", "IDEOGRAPHIC"),
}
"""Classes of characters by name: general categories, and scripts, which have capitals."""


class TokenCharacters:
    """The characters of each token.

    Args:
        encoder: the model's tokenizer.
        vocab_size: of the model; later tokens hold no characters.
    """

    def __init__(self, encoder: Encoder, vocab_size: int) -> None:
        self._size = vocab_size
        self._special = np.array(sorted(token for token in encoder.special if token < vocab_size), dtype=np.int64)
        texts = ["" if token in encoder.special else text for token, text in enumerate(encoder.texts(vocab_size))]
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        self._token = np.repeat(np.arange(len(texts)), [len(text) for text in texts])  # of each character
        distinct, self._number = np.unique(codes, return_inverse=True)
        self._distinct = list(map(chr, distinct))
        self._by_class: dict[str, Bools] = {}  # by class: for each distinct character

    def _among(self, names: Iterable[str]) -> Bools:
        """Tell for each character of each token if it is of one of the classes."""
        for name in names:
            if name not in self._by_class:
                self._by_class[name] = np.fromiter(map(CLASSES[name], self._distinct), np.bool_, len(self._distinct))
        belongs: Bools = np.logical_or.reduce([self._by_class[name] for name in names])[self._number]
        return belongs

    def holding(self, names: Sequence[str]) -> Ids:
        """Return the tokens with a character of one of the classes.

        Raises:
            ValueError: there are none.
        """
        return self._ids(names, self._mask(self._among(names)))

    def made_of(self, names: Sequence[str]) -> Ids:
        """Return the tokens whose characters are all of these classes, and the special tokens.

        Raises:
            ValueError: there are none.
        """
        among = self._among(names)
        kept = self._mask(among) & ~self._mask(~among)
        kept[self._special] = True
        return self._ids(names, kept)

    def _mask(self, characters: Bools) -> Bools:
        mask = np.zeros(self._size, dtype=np.bool_)
        mask[self._token[characters]] = True
        return mask

    def _ids(self, names: Sequence[str], mask: Bools) -> Ids:
        if not mask.any():
            raise ValueError(f"the model has no token of {', '.join(names)}")
        return np.flatnonzero(mask)


@lru_cache(maxsize=4)
def characters(encoder: Encoder, vocab_size: int) -> TokenCharacters:
    """Return the characters of a model's tokens, read once for each tokenizer."""
    return TokenCharacters(encoder, vocab_size)


def holding(encoder: Encoder, names: Sequence[str], _: object, vocab_size: int) -> Ids:
    """See :meth:`TokenCharacters.holding`."""
    return characters(encoder, vocab_size).holding(names)


def made_of(encoder: Encoder, names: Sequence[str], _: object, vocab_size: int) -> Ids:
    """See :meth:`TokenCharacters.made_of`."""
    return characters(encoder, vocab_size).made_of(names)
