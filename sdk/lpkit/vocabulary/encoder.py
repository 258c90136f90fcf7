"""The part of a tokenizer that words need: for tokenizers of transformers, vLLM or the tokenizers library."""

from __future__ import annotations

from typing import Any

_IN_NO_VOCABULARY = "\U0010ffff"  # never assigned to a character
_REMEMBERED = 4096
_SHORT = 64
"""Characters. The ids of shorter texts are remembered: each form of a word is encoded behind the same few texts."""


class Encoder:
    """A tokenizer and its special tokens. Make it once to look up many words.

    Attributes:
        special: ids of the special tokens: tokens that the tokenizer names, such as the end of text, and tokens added
            as special, such as markers of turns in a chat.
        unknown: id and spelling of the token for unknown text; None if the tokenizer has no such token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, tuple[int, ...]] = {}
        self.special = _special(tokenizer)
        self.unknown = _unknown(tokenizer)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text, without special tokens around it."""
        if text in self._ids:
            return self._ids[text]
        try:
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeError):
            raise ValueError(f"{text!r} is not text that can be encoded") from None
        ids = tuple(getattr(encoded, "ids", encoded))  # the tokenizers library returns an object
        if len(text) <= _SHORT and len(self._ids) < _REMEMBERED:
            self._ids[text] = ids
        return ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and self._tokenizer is other._tokenizer

    def __hash__(self) -> int:
        return id(self._tokenizer)

    def texts(self, count: int) -> list[str]:
        """Return the text that each of the first ``count`` tokens adds behind another token; shorter if the tokenizer
        has fewer. Bytes that are no whole character are U+FFFD."""
        (before,) = self.encode("a")[-1:] or (0,)
        size = self._tokenizer.get_vocab_size() if hasattr(self._tokenizer, "get_vocab_size") else len(self._tokenizer)
        pairs = [[before], *([before, token] for token in range(min(count, size)))]
        backend = getattr(self._tokenizer, "backend_tokenizer", self._tokenizer)
        if hasattr(backend, "decode_batch"):  # all at once: a third of a second for a vocabulary
            start, *both = backend.decode_batch(pairs, skip_special_tokens=False)
        else:
            start, *both = (self._tokenizer.decode(pair) for pair in pairs)
        return [text.removeprefix(start) for text in both]

    def pieces(self, ids: tuple[int, ...]) -> list[str]:
        """Return the vocabulary's spelling of the tokens, for messages."""
        convert = getattr(self._tokenizer, "convert_ids_to_tokens", None)
        if convert is not None:
            return [repr(piece) for piece in convert(list(ids))]
        spell = getattr(self._tokenizer, "id_to_token", str)
        return [repr(spell(token)) for token in ids]


def _special(tokenizer: Any) -> frozenset[int]:
    ask = getattr(tokenizer, "get_added_tokens_decoder", None)  # the tokenizers library
    added = getattr(tokenizer, "added_tokens_decoder", {}) if ask is None else ask()
    marked = (token for token, said in added.items() if getattr(said, "special", False))
    return frozenset(getattr(tokenizer, "all_special_ids", ())).union(marked)


def _unknown(tokenizer: Any) -> tuple[int, str] | None:
    if hasattr(tokenizer, "unk_token_id"):
        token, text = tokenizer.unk_token_id, getattr(tokenizer, "unk_token", None)
        return None if token is None else (token, str(text))
    model = getattr(tokenizer, "model", None)
    if model is None or not hasattr(tokenizer, "token_to_id"):
        return None
    text = getattr(model, "unk_token", None)
    if text is not None:
        token = tokenizer.token_to_id(text)
        return None if token is None else (token, text)
    # Unigram models do not name the unknown token, but return it for unknown text.
    tokens = model.tokenize(_IN_NO_VOCABULARY)
    if len(tokens) != 1:
        return None
    text = tokenizer.id_to_token(tokens[0].id)
    return None if text in (None, _IN_NO_VOCABULARY) else (tokens[0].id, text)
