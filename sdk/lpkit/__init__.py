"""lpkit: write a vLLM logits processor once, run it on both of vLLM's runners, test that it is right.

The names below load their modules on first use, so ``import lpkit`` itself is nearly free.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lpkit.bridging.bridged import Bridged
    from lpkit.bridging.make import bridge
    from lpkit.columns.column import Column, column
    from lpkit.columns.ragged import RaggedColumn, ragged
    from lpkit.columns.token_set import TokenSetColumn, token_set
    from lpkit.history.phrases import PhrasesColumn, phrases
    from lpkit.history.rows import Rows, SparseLogits
    from lpkit.portable.adapter import AdapterLogitsProcessor
    from lpkit.portable.params import Field, Params
    from lpkit.portable.processor import LogitsProcessor, Request
    from lpkit.portable.token_ids import TokenId
    from lpkit.portable.words import TokenIdsOf, TokenSequencesOf
    from lpkit.vocabulary.forms import WordForms, words
    from lpkit.vocabulary.lookup import NoTokenizer, tokenizer

_HOME = {
    "AdapterLogitsProcessor": "portable.adapter",
    "Bridged": "bridging.bridged",
    "Column": "columns.column",
    "Field": "portable.params",
    "LogitsProcessor": "portable.processor",
    "NoTokenizer": "vocabulary.lookup",
    "Params": "portable.params",
    "PhrasesColumn": "history.phrases",
    "RaggedColumn": "columns.ragged",
    "Request": "portable.processor",
    "Rows": "history.rows",
    "SparseLogits": "history.rows",
    "TokenId": "portable.token_ids",
    "TokenIdsOf": "portable.words",
    "TokenSequencesOf": "portable.words",
    "TokenSetColumn": "columns.token_set",
    "WordForms": "vocabulary.forms",
    "bridge": "bridging.make",
    "column": "columns.column",
    "phrases": "history.phrases",
    "ragged": "columns.ragged",
    "token_set": "columns.token_set",
    "tokenizer": "vocabulary.lookup",
    "words": "vocabulary.forms",
}

__all__ = [
    "AdapterLogitsProcessor",
    "Bridged",
    "Column",
    "Field",
    "LogitsProcessor",
    "NoTokenizer",
    "Params",
    "PhrasesColumn",
    "RaggedColumn",
    "Request",
    "Rows",
    "SparseLogits",
    "TokenId",
    "TokenIdsOf",
    "TokenSequencesOf",
    "TokenSetColumn",
    "WordForms",
    "__version__",
    "bridge",
    "column",
    "phrases",
    "ragged",
    "token_set",
    "tokenizer",
    "words",
]


_MODULES = ("export", "kernels", "rng", "sequences", "train")
"""Modules that ``lpkit.NAME`` imports on first use, e.g. ``lpkit.export.transformers``."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"lpkit.{name}")
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'lpkit' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"lpkit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
