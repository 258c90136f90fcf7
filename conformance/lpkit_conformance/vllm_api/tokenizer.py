"""A small real tokenizer in a folder, in the format that Hugging Face's libraries load, written without them."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lpkit_conformance.processes import tree

SPECIAL = ("<unk>", "<s>", "</s>")
END = 2
"""The id of the token that ends an output."""

WORDS = ("yes", "no", "maybe", "later")
"""Words that are one token each, as the words of a case are: with and without a leading space, in each letter case."""

MOST_WORDS = 24
"""Most words of a case that get tokens of their own."""

_SPACE = "\u0120"
_PRINTABLE = range(32, 127)


def words_in(value: Any) -> tuple[str, ...]:
    """The words of the strings in a case's arguments."""
    parts = (part for text in leaves(value) if isinstance(text, str) for part in text.split() if part not in SPECIAL)
    return tuple(itertools.islice(dict.fromkeys(parts), MOST_WORDS))


def leaves(value: Any) -> Iterator[Any]:
    """The values in the lists and mappings of JSON data."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(item)
    else:
        yield value


@cache
def tokenizer_folder(vocab_size: int, words: tuple[str, ...] = ()) -> str:
    """Create the folder of a tokenizer of that size: special tokens, words, one token per byte, and filler words."""
    # In the folder of the child that this process is, which goes with it however it ends.
    folder = Path(tempfile.mkdtemp(prefix="lpkit-tokenizer-", dir=tree.own_folder()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    parts = {
        "tokenizer.json": _tokenizer(token_table(vocab_size, words)),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": SPECIAL[0],
            "bos_token": SPECIAL[1],
            "eos_token": SPECIAL[2],
            "clean_up_tokenization_spaces": False,
        },
        "config.json": {"model_type": "llama", "vocab_size": vocab_size, "bos_token_id": 1, "eos_token_id": END},
    }
    for name, content in parts.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return str(folder)


@cache
def load(folder: str) -> Any:
    """Load a folder's tokenizer with transformers, without detecting the type of its model."""
    if importlib.util.find_spec("transformers") is None:
        from lpkit_conformance.vllm_api.parts import Lacking

        raise Lacking("transformers makes the tokenizer, and is not installed: install it to check this plugin")
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)


@cache
def token_table(vocab_size: int, words: tuple[str, ...] = ()) -> dict[str, int]:
    """The ids of its tokens, which are spelt as byte-level tokenizers spell them."""
    letters = _bytes()
    printable = [letters[byte] for byte in _PRINTABLE]
    others = [letter for byte, letter in enumerate(letters) if byte not in _PRINTABLE]
    listed = [*SPECIAL, *printable, *_spellings(words), *_spellings(WORDS), *others]
    tokens = [*dict.fromkeys(listed)][:vocab_size]
    tokens += [f"{_SPACE}word{n}" for n in range(len(tokens), vocab_size)]
    return {token: index for index, token in enumerate(tokens)}


def word_ids(words: Iterable[str], vocab_size: int, words_in_use: tuple[str, ...]) -> list[int]:
    """The ids of words, with and without a space before them, where they are tokens of their own."""
    table, letters = token_table(vocab_size, words_in_use), _bytes()
    spelt = ["".join(letters[byte] for byte in word.encode("utf-8", "ignore")) for word in words]
    return [table[token] for word in spelt for token in (word, _SPACE + word) if token in table]


def _spellings(words: Iterable[str]) -> Iterator[str]:
    letters = _bytes()
    for word in words:
        for text in (word, word.lower(), word.upper(), word.capitalize()):
            token = "".join(letters[byte] for byte in text.encode("utf-8", "ignore"))
            yield from (token, _SPACE + token)


@cache
def _bytes() -> list[str]:
    """The characters that stand for bytes in byte-level tokenizers: printable ones for themselves, others moved up."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def _tokenizer(table: Mapping[str, int]) -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    words = {"type": "Split", "pattern": {"Regex": r" ?\S+|\s"}, "behavior": "Isolated", "invert": False}
    kept = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **kept} for index, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": SPECIAL[0],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,  # what is in the vocabulary is one token
            "vocab": dict(table),
            "merges": [],
        },
    }
