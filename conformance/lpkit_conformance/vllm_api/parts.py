"""Parts of the stand-in apart from the interfaces: vLLM's logging, tokenizers and kernels, as plugins import them.

Parts that need vLLM can be imported, and report the missing part when they are used (:class:`Lacking`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from lpkit.interfaces.config import ConfigPart
from lpkit.interfaces.lookup import GROUP
from lpkit.loading import resolve_target


class Lacking(ImportError):
    """Error when code uses a part of vLLM that the stand-in has in name only; ``name`` names the part."""


def missing(name: str) -> str:
    """The message for code that needs more of vLLM than the stand-in has."""
    return f"{name} is not in lpkit's stand-in for vLLM; install vLLM to check this plugin"


def lacking(error: BaseException | None) -> str:
    """Return the message for a part of vLLM that a plugin did not find; empty for every other error."""
    if isinstance(error, Lacking):
        return str(error)
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        owner, name = error.obj.__name__, f"{error.obj.__name__}.{error.name}"
    elif isinstance(error, ImportError):
        owner = error.name or ""
        quoted = str(error).split("'")
        # "cannot import name 'X' from 'vllm.y'"; a module that is not there says so itself.
        name = f"{owner}.{quoted[1]}" if len(quoted) > 1 and not isinstance(error, ModuleNotFoundError) else owner
    else:
        return ""
    return missing(name) if owner.partition(".")[0] == "vllm" else ""


def not_in_config(error: BaseException | None) -> str:
    """Return the message for a name of vLLM's configuration that lpkit's lacks; empty for every other error."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ConfigPart) and error.obj.lacks(error.name or ""):
        remedy = "use --engine vllm, or check a subclass whose constructor sets it"
        return f"lpkit's configuration lacks `{error.name}`, which vLLM's has: could not judge; {remedy}"
    return ""


# -- logging -------------------------------------------------------------------------------------------------


@cache
def _log_once(logger: logging.Logger, level: int, msg: str, *args: Any) -> None:
    logger.log(level, msg, *args, stacklevel=3)


def _once(level: int, logger: logging.Logger, msg: str, *args: Any, scope: str = "local") -> None:
    _log_once(logger, level, msg, *args)


def init_logger(name: str) -> logging.Logger:
    """A logger that also has ``warning_once`` and the like."""
    logger = logging.getLogger(name)
    for level in ("debug", "info", "warning", "error"):
        setattr(logger, f"{level}_once", partial(_once, getattr(logging, level.upper()), logger))
    return logger


@contextlib.contextmanager
def gpu_sync_allowed(first_only: bool = False) -> Iterator[None]:
    """Synchronizing with the device is never forbidden here."""
    yield


# -- tokenizers ----------------------------------------------------------------------------------------------


class TokenizerLike:
    """A name to annotate with."""


def get_tokenizer(
    tokenizer_name: str | Path,
    *args: Any,
    tokenizer_cls: Any = TokenizerLike,
    trust_remote_code: bool = False,
    revision: str | None = None,
    download_dir: str | None = None,
    **kwargs: Any,
) -> Any:
    """A stand-in for transformers' loaders. The configuration names a folder with a small tokenizer, the only one
    available."""
    if importlib.util.find_spec("transformers") is None:
        raise Lacking(
            "vLLM loads tokenizers with transformers, which is not installed: install it to check this plugin"
        )
    from transformers import AutoTokenizer

    if not Path(tokenizer_name).is_dir():
        raise Lacking(f"{tokenizer_name} cannot be loaded without vLLM: only the tokenizer of the configuration can")
    return AutoTokenizer.from_pretrained(str(tokenizer_name), local_files_only=True)


cached_get_tokenizer = lru_cache(get_tokenizer)


def cached_tokenizer_from_config(model_config: Any, **kwargs: Any) -> Any:
    """The tokenizer that the configuration names."""
    return None if model_config.skip_tokenizer_init else cached_get_tokenizer(model_config.tokenizer)


# -- processors ----------------------------------------------------------------------------------------------

STR_POOLING_REJECTS_LOGITSPROCS = "lpkit's stand-in: a pooling model takes no logits processors"
STR_SPEC_DEC_REJECTS_LOGITSPROCS = "lpkit's stand-in: speculative decoding takes no logits processors"


class NameOnly:
    """A class of vLLM's that can be imported, annotated with and listed, but not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Lacking(missing(f"{type(self).__module__}.{type(self).__name__}"))


def name_only(module: str, name: str, *bases: type) -> type:
    """Return a class whose use raises an error."""
    return type(name, (NameOnly, *bases), {"__module__": module})


def _load_custom_logitsprocs(logits_processors: Sequence[str | type] | None) -> list[type]:
    """Return the installed processors and the given processors."""
    installed = [entry.load() for entry in entry_points(group=GROUP)]
    return [*installed, *map(resolve_target, logits_processors or ())]


# -- kernels -------------------------------------------------------------------------------------------------


class Placeholder:
    """A stand-in for triton: decorators return their argument, types are None."""

    __version__ = "3.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    @staticmethod
    def jit(function: Any = None, **_: Any) -> Any:
        """Stand in for Triton's decorator, with and without arguments."""
        return function if function is not None else lambda inner: inner

    autotune = heuristics = staticmethod(lambda *_, **__: lambda inner: inner)


def triton_utils() -> dict[str, Any]:
    """Return the contents of ``vllm.triton_utils``."""
    if importlib.util.find_spec("triton") is None or not torch.cuda.is_available():
        return {"HAS_TRITON": False, "triton": Placeholder(), "tl": Placeholder()}
    import triton
    import triton.language as tl

    return {"HAS_TRITON": True, "triton": triton, "tl": tl}
