"""Finds vLLM's own interface modules, so that the SDK's names *are* vLLM's wherever vLLM works."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final

GROUP: Final = "vllm.logits_processors"
"""The entry-point group from which vLLM loads every installed processor, for both interfaces."""

V1_MODULE = "vllm.v1.sample.logits_processor"
V2_MODULE = "vllm.v1.worker.gpu.sample.logits_processor"
SAMPLING_PARAMS_MODULE = "vllm.sampling_params"


@dataclass(frozen=True)
class Lookup:
    """Result of looking for one of vLLM's modules.

    ``module`` is None if the module cannot be used, and ``reason`` says why. The reason is ``"absent"`` if vLLM, or
    this module of it, is not installed; otherwise the error that its import raised.
    """

    module: ModuleType | None
    reason: str | None = None


_without = False


def do_without() -> None:
    """Treat vLLM as absent in this process from now on, e.g. because it is broken or another process uses it.

    Call this before :mod:`lpkit.v1`, ``v2`` and ``sampling_params`` are imported.
    """
    global _without
    _without = True
    find.cache_clear()


def left_out() -> bool:
    """True if vLLM is installed but not used in this process."""
    return _without and importlib.util.find_spec("vllm") is not None


@cache
def find(name: str) -> Lookup:
    """Import vLLM's module ``name`` once. Never raises: a broken vLLM must not break the SDK."""
    standin = getattr(sys.modules.get("vllm"), "__lpkit_standin__", False)
    if standin or _without:
        return Lookup(None, "absent")
    try:
        if importlib.util.find_spec("vllm") is None:
            return Lookup(None, "absent")
        return Lookup(importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            return Lookup(None, "absent")  # a vLLM older than this interface
        return Lookup(None, f"{type(error).__name__}: {error}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Lookup(None, f"{type(error).__name__}: {error}")
