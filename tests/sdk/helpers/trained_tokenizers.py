"""Tokenizers of four kinds, trained on a few sentences."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXT = ["yes no maybe\nyes no maybe", "Yes. No. yes, no, maybe: the word. unusual words", "no yes: yes no YES NO"] * 20
SPECIAL = ["<unk>", "<s>", "</s>"]


def wrapped(tokenizer: Tokenizer) -> Any:
    special = {"unk_token": SPECIAL[0], "bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **special)


@cache
def byte_level() -> Any:
    """Train a tokenizer like GPT-2's, Llama 3's and Qwen's: a space belongs to the word behind it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    return wrapped(made)


@cache
def metaspace_bpe() -> Any:
    """Train a tokenizer like Llama 2's and Mistral's: a space precedes every text, and unknown characters are bytes."""
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.train_from_iterator(
        [line for text in TEXT for line in text.split("\n")],
        trainers.BpeTrainer(vocab_size=360, special_tokens=[*SPECIAL, *fallback], show_progress=False),
    )
    written = json.loads(made.to_str())  # bytes had to be special to be learnt
    written["added_tokens"] = [token for token in written["added_tokens"] if token["content"] in SPECIAL]
    return wrapped(Tokenizer.from_str(json.dumps(written)))


@cache
def unigram() -> Any:
    """Train a tokenizer like T5's."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(
        TEXT, trainers.UnigramTrainer(vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    )
    return wrapped(made)


@cache
def wordpiece() -> Any:
    """Train a tokenizer like BERT's: no token holds a space."""
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    )
    return wrapped(made)


KINDS = {made.__name__: made for made in (byte_level, metaspace_bpe, unigram, wordpiece)}
