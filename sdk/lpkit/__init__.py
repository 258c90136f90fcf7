"""lpkit: write a vLLM logits processor once, run it on both of vLLM's runners, prove that it is right.

The names below load what they need when first used, so that ``import lpkit`` itself is nearly free.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lpkit.adapter import AdapterLogitsProcessor
    from lpkit.bridged import Bridged
    from lpkit.bridging import bridge
    from lpkit.columns import Column, column
    from lpkit.params import Field, Params, TokenId
    from lpkit.processor import LogitsProcessor, Request
    from lpkit.ragged_columns import RaggedColumn, TokenSetColumn, ragged, token_set
    from lpkit.rows import Rows, SparseLogits

_HOME = {
    "AdapterLogitsProcessor": "adapter",
    "Bridged": "bridged",
    "Column": "columns",
    "Field": "params",
    "LogitsProcessor": "processor",
    "Params": "params",
    "RaggedColumn": "ragged_columns",
    "Request": "processor",
    "Rows": "rows",
    "SparseLogits": "rows",
    "TokenId": "params",
    "TokenSetColumn": "ragged_columns",
    "bridge": "bridging",
    "column": "columns",
    "ragged": "ragged_columns",
    "token_set": "ragged_columns",
}

__all__ = [
    "AdapterLogitsProcessor",
    "Bridged",
    "Column",
    "Field",
    "LogitsProcessor",
    "Params",
    "RaggedColumn",
    "Request",
    "Rows",
    "SparseLogits",
    "TokenId",
    "TokenSetColumn",
    "__version__",
    "bridge",
    "column",
    "ragged",
    "token_set",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'lpkit' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f"lpkit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
