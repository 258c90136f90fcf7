"""A small real tokenizer in a folder, in the format that Hugging Face's libraries load, written without them."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

from lpkit_conformance.processes import tree

SPECIAL = ("<unk>", "<s>", "</s>")
END = 2
"""The id of the token that ends an output."""


@cache
def tokenizer_folder(vocab_size: int) -> str:
    """The folder of a tokenizer of that size: special tokens, one token per byte, and words."""
    # In the folder of the child that this process is, which goes with it however it ends.
    folder = Path(tempfile.mkdtemp(prefix="lpkit-tokenizer-", dir=tree.own_folder()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tokens = [*SPECIAL, *_bytes()][:vocab_size]
    tokens += [f"\u0120word{n}" for n in range(len(tokens), vocab_size)]
    parts = {
        "tokenizer.json": _tokenizer(tokens),
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


def _bytes() -> list[str]:
    """The characters that stand for bytes in byte-level tokenizers: printable ones for themselves, others moved up."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def _tokenizer(tokens: list[str]) -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    kept = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **kept} for index, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
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
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [],
        },
    }
