"""The SDK's public names, where the API pages document them, and how Sphinx finds them by the names in annotations."""

from __future__ import annotations

import importlib
import sys
from typing import Any

MODULES = (
    "lpkit",
    "lpkit.dynamo",
    "lpkit.export",
    "lpkit.kernels",
    "lpkit.loading",
    "lpkit.rng",
    "lpkit.runtime",
    "lpkit.sampling_params",
    "lpkit.sequences",
    "lpkit.train",
    "lpkit.v1",
    "lpkit.v2",
    "lpkit_conformance.testing",
)
"""Modules whose ``__all__`` is documented."""

MADE_BY_ENGINES = frozenset(
    {
        "lpkit.AdapterLogitsProcessor",
        "lpkit.Bridged",
        "lpkit.Column",
        "lpkit.LogitsProcessor",
        "lpkit.Params",
        "lpkit.PhrasesColumn",
        "lpkit.RaggedColumn",
        "lpkit.Request",
        "lpkit.Rows",
        "lpkit.SparseLogits",
        "lpkit.TokenSetColumn",
        "lpkit.dynamo.DynamoLogitsProcessor",
        "lpkit_conformance.testing.BoundCheck",
    }
)
"""Classes that only engines and lpkit construct."""

DECLARATIONS = frozenset({"lpkit.column", "lpkit.phrases", "lpkit.ragged", "lpkit.token_set"})
"""Classes that are written in class bodies, and have no members for authors."""


def public_names() -> dict[str, Any]:
    """Every public name with its value."""
    values = {}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            if name != "__version__":
                values[f"{module}.{name}"] = getattr(sys.modules[module], name)
    return values


def homes() -> dict[str, str]:
    """The public name of each class and function, by the module that defines it."""
    names: dict[str, str] = {}
    for public, value in public_names().items():
        home = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        names.setdefault(home, public)
    return names
