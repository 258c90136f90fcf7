"""What words ask of a tokenizer, be it transformers', vLLM's or one of the tokenizers library."""

from __future__ import annotations

from typing import Any

_IN_NO_VOCABULARY = "\U0010ffff"  # never assigned to a character


class Encoder:
    """A tokenizer, and its tokens that stand for something other than text. Made once where many words are looked up.

    Attributes:
        special: ids of the special tokens: those that the tokenizer has a name for, such as that of the end, and those
            added to its vocabulary as special, such as markers of turns in a chat.
        unknown: id of the token for what the vocabulary lacks, and how it is written; None if it has none.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.special = _special(tokenizer)
        self.unknown = _unknown(tokenizer)

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text alone."""
        try:
            found = self._tokenizer.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeError):
            raise ValueError(f"{text!r} is not text that can be encoded") from None
        return tuple(getattr(found, "ids", found))  # the tokenizers library returns an object

    def pieces(self, ids: tuple[int, ...]) -> list[str]:
        """How the vocabulary spells the tokens, for messages."""
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
    # Unigram models do not say, but show it.
    found = model.tokenize(_IN_NO_VOCABULARY)
    if len(found) != 1:
        return None
    text = tokenizer.id_to_token(found[0].id)
    return None if text in (None, _IN_NO_VOCABULARY) else (found[0].id, text)
