"""Models that speak in words: a toy made from a text that comes with lpkit, and models of transformers on the disk."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import torch
from lpkit.runtime import ThinkingMarkers

from lpkit_conformance.errors import UsageError

ORDER = 4
"""Tokens that the toy looks at, the next token included."""

DISCOUNT = 0.4
"""Share of a count that goes to shorter contexts."""

UNSEEN = 0.002
"""Count of tokens that the text does not contain."""

CACHED = 4096
"""Rows of logits that a model of transformers keeps: the runs with and without processors share their contexts."""

PIECES = re.compile(r"</?\w+>|```| ?[^\W\d_]+|\d|(?! </?\w+>) ?[^\w\s]|\n+|[\s\S]")
SPECIAL = ("<unk>", "<s>", "</s>")


class LanguageModel(Protocol):
    """A model as :mod:`.playing` needs it.

    Attributes:
        name: for people.
        toy: True for the built-in model.
        prompt: a prompt that suits it.
        vocab_size: columns of its logits.
        eos: ids of the tokens that end an output.
        thinking: the markers of its thoughts, or None.
        tokenizer: for the processors.
        hf_config: fields of the model's configuration.
    """

    name: str
    toy: bool
    prompt: str
    vocab_size: int
    eos: frozenset[int]
    thinking: ThinkingMarkers | None
    tokenizer: Any
    hf_config: dict[str, Any]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt."""

    def text(self, token: int) -> str:
        """Return one token as a person reads it."""

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return float32 logits ``[vocab_size]`` of the token after ``tokens``, not to be changed."""


class WordTokenizer:
    """The toy's tokenizer: frequent pieces have low ids, and every printable character is a token."""

    unk_token, bos_token, eos_token = SPECIAL
    unk_token_id, bos_token_id, eos_token_id = range(3)
    all_special_ids = (0, 1, 2)

    def __init__(self, text: str) -> None:
        counted = [piece for piece, _ in Counter(PIECES.findall(text)).most_common()]
        forms = (form for piece in counted for form in _forms(piece))
        tokens = (*SPECIAL, *counted, *forms, *map(chr, range(32, 127)), "\n", "\t")
        self._texts = list(dict.fromkeys(tokens))
        self._ids = {text: token for token, text in enumerate(self._texts)}

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self)

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token."""
        return dict(self._ids)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text; an unknown word is spelt."""
        parts = (p for piece in PIECES.findall(text) for p in ([piece] if piece in self._ids else piece))
        return [self._ids.get(part, self.unk_token_id) for part in parts]

    def decode(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> str:
        """Return the text of one or more tokens."""
        tokens = [ids] if isinstance(ids, int) else ids
        return "".join(self._texts[i] for i in tokens if not (skip_special_tokens and i in self.all_special_ids))

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the spelling of tokens."""
        return [self._texts[token] for token in ids]


def _forms(piece: str) -> Iterable[str]:
    """Yield a word at the start of a line and in running text, in lower case and capitalized."""
    word = piece.strip()
    if word.isalpha():
        yield from (form for text in (word.lower(), word.capitalize()) for form in (" " + text, text))


class Toy:
    """An n-gram model with back-off, made from ``text.txt``: absolute discounting, interpolated.

    Args:
        text: the text that it imitates; by default lpkit's.
    """

    name = "lpkit's toy: an n-gram model of words"
    toy = True
    prompt = "Once upon a time there was a"
    hf_config: dict[str, Any] = {}

    def __init__(self, text: str | None = None) -> None:
        text = (files(__package__) / "text.txt").read_text(encoding="utf-8") if text is None else text
        self.tokenizer = WordTokenizer(text)
        self.vocab_size = len(self.tokenizer)
        self.eos = frozenset({self.tokenizer.eos_token_id})
        start, end = (tuple(self.encode(marker)) for marker in ("<think>", "</think>"))
        self.thinking: ThinkingMarkers | None = ThinkingMarkers(start, end)
        self._after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        # Each heading ends a text.
        sections = [self.encode(section) for section in text.split("\n\n# ")]
        for ids in sections:
            for n, token in enumerate(tokens := [*ids, self.tokenizer.eos_token_id]):
                for length in range(ORDER):
                    if length <= n:
                        self._after[tuple(tokens[n - length : n])][token] += 1

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def text(self, token: int) -> str:
        return self.tokenizer.decode(token)

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        probabilities = torch.full((self.vocab_size,), UNSEEN)
        for length in range(ORDER):
            seen = self._after.get(tuple(tokens[len(tokens) - length :])) if length <= len(tokens) else None
            if not seen:
                break
            ids = torch.tensor(list(seen))
            counts = torch.tensor(list(seen.values()), dtype=torch.float32)
            if length:
                probabilities *= DISCOUNT * len(seen) / counts.sum()
                probabilities[ids] += (counts - DISCOUNT) / counts.sum()
            else:
                probabilities[ids] += counts
                probabilities /= probabilities.sum()
        return probabilities.log()


class Transformer:
    """A causal language model of transformers.

    Args:
        path: a folder, or the name of a model in the cache; nothing is downloaded.

    Raises:
        UsageError: transformers is missing, or finds no model there.
    """

    toy = False
    thinking: ThinkingMarkers | None = None
    prompt = "Once upon a time"

    def __init__(self, path: str) -> None:
        if importlib.util.find_spec("transformers") is None:
            raise UsageError("--model needs transformers, which is not installed", "pip install transformers")
        if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
            raise UsageError(f"--model {path}: there is no such folder")
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
            self._model: Any = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=torch.float32)
        except (OSError, ValueError, ImportError) as error:
            said = " ".join(str(error).split())[:200]
            raise UsageError(f"--model {path}: transformers cannot load it from this machine: {said}") from None
        config = self._model.config
        self.name = Path(path).name
        self.hf_config = config.to_dict()
        self.vocab_size = int(config.vocab_size)
        ends = getattr(self._model.generation_config, "eos_token_id", None)
        self.eos = frozenset(ends if isinstance(ends, list) else [ends] if ends is not None else ())
        self._cached: dict[tuple[int, ...], torch.Tensor] = {}

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text))

    def text(self, token: int) -> str:
        return str(self.tokenizer.decode([token]))

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        key = tuple(tokens)
        if key not in self._cached:
            if len(self._cached) >= CACHED:
                self._cached.clear()
            with torch.inference_mode():
                self._cached[key] = self._model(torch.tensor([key])).logits[0, -1].float()
        return self._cached[key]


def load(path: str) -> LanguageModel:
    """Return the model at ``path``, or the toy."""
    return Transformer(path) if path else Toy()
