"""Finds the tokenizer of the engine's model: the host's, vLLM's own, or one that transformers loads."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from lpkit.interfaces.lookup import find

GIVEN: Final = "lpkit_tokenizer"
"""Attribute of ``vllm_config.model_config`` for the tokenizer of a host other than vLLM, or for a function that makes
it. It is read first, and the function is called once."""

VLLM_MODULES = ("vllm.tokenizers", "vllm.transformers_utils.tokenizer")
"""vLLM's modules for tokenizers, newest first."""


class NoTokenizer(RuntimeError):
    """Error when the engine has no tokenizer; the message says why, and what to do."""


def tokenizer(owner: Any) -> Any:
    """Return the tokenizer of the engine's model, loaded once per process.

    lpkit takes the first of: the host's own (``model_config.lpkit_tokenizer``), vLLM's, or the tokenizer that
    transformers loads from ``model_config.tokenizer``. Treat it as read-only, since others use it.

    Args:
        owner: a processor (in a constructor, after ``super().__init__``), or its ``vllm_config``.

    Returns:
        An object with ``encode`` and ``decode``, like transformers' tokenizers.

    Raises:
        NoTokenizer: the engine was started without a tokenizer, or the tokenizer cannot be loaded.
        TypeError: ``owner`` has no configuration.
    """
    model = getattr(getattr(owner, "vllm_config", owner), "model_config", None)
    if model is None:
        raise TypeError(
            f"lpkit.tokenizer takes a processor or its vllm_config, and {type(owner).__name__} has no configuration; "
            "in a constructor, call super().__init__ first"
        )
    given = getattr(model, GIVEN, None)
    if given is not None:
        return given if hasattr(given, "encode") else _made(given)
    if getattr(model, "skip_tokenizer_init", False):
        raise NoTokenizer(
            "the engine was started without a tokenizer (skip_tokenizer_init): start it with a tokenizer, "
            "or give token ids instead of words"
        )
    name = getattr(model, "tokenizer", None)
    if not name:
        raise NoTokenizer(f"the engine's configuration names no tokenizer: set model_config.{GIVEN} to one")
    try:
        load = _vllms()
        if load is not None:
            return load(model)
        revision, trusted = getattr(model, "tokenizer_revision", None), getattr(model, "trust_remote_code", False)
        return _transformers(str(name), revision, bool(trusted))
    except NoTokenizer:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise NoTokenizer(f"the model's tokenizer {str(name)!r} cannot be loaded: {reason}") from error


@lru_cache(maxsize=16)
def _made(make: Callable[[], Any]) -> Any:
    return make()


def _vllms() -> Callable[[Any], Any] | None:
    """Return vLLM's function that loads a configuration's tokenizer once; None without vLLM."""
    for name in VLLM_MODULES:
        function = getattr(find(name).module, "cached_tokenizer_from_config", None)
        if function is not None:
            return function  # type: ignore[no-any-return]
    return None


@lru_cache(maxsize=16)
def _transformers(name: str, revision: str | None, trust_remote_code: bool) -> Any:
    if importlib.util.find_spec("transformers") is None:
        raise NoTokenizer(f"transformers loads the tokenizer {name!r}, and is not installed: pip install transformers")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=trust_remote_code)
