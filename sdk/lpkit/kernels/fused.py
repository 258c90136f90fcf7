"""Choice between fused kernels and plain torch: Triton's kernels on CUDA."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from lpkit.kernels.recording import Recorder, StandIn

logger = logging.getLogger("lpkit")

WHOLE_ROWS = tuple(f"lpkit.kernels.triton_{name}" for name in ("rows", "limits", "tournament"))
FEW = tuple(f"lpkit.kernels.triton_{name}" for name in ("sequences", "texts"))
"""The modules of each set of kernels."""

PADDED = 64
"""Engines pad a vocabulary to a multiple of this many tokens, and the model's logits are as wide."""


@cache
def prepare(device: torch.device, vocab_size: int = PADDED) -> ModuleType | None:
    """Compile and try the fused kernels for a device, so that no request waits for a compiler.

    :class:`lpkit.LogitsProcessor` calls this in its constructor. Errors are logged, and plain torch is used.

    Args:
        device: where the logits are.
        vocab_size: compiles for rows of this size, which decides the use of memory words.

    Returns:
        The kernels, or None without kernels.
    """

    def attempt(kernels: ModuleType) -> None:
        for logits in shapes(device, vocab_size):
            _go_over(kernels, logits)

    return _tried(device, WHOLE_ROWS, attempt)


def shapes(device: torch.device, vocab_size: int) -> list[torch.Tensor]:
    """Return logits of each layout that an engine has: the alignment of rows decides the use of memory words."""
    strides = {vocab_size, -(-vocab_size // PADDED) * PADDED}
    return [torch.zeros(3, stride, device=device)[:, :vocab_size] for stride in strides]


@cache
def prepare_few(device: torch.device) -> ModuleType | None:
    """Compile and try the kernels for a few logits per row and for histories, like :func:`prepare`.

    Args:
        device: where the logits are.

    Returns:
        The kernels, or None without kernels.
    """
    return _tried(device, FEW, lambda kernels: _try_few(kernels, device))


def together(names: Sequence[str]) -> ModuleType:
    """Combine the definitions of several modules in one."""
    merged = ModuleType(names[0])
    for name in names:
        vars(merged).update((key, value) for key, value in vars(import_module(name)).items() if not key.startswith("_"))
    return merged


def _tried(device: torch.device, names: Sequence[str], attempt: Callable[[ModuleType], None]) -> ModuleType | None:
    if device.type != "cuda" or os.environ.get("LPKIT_TRITON") == "0":
        return None
    try:
        kernels = together(names)
        with torch.inference_mode():
            attempt(kernels)
    except Exception as error:  # no Triton, no compiler, a GPU that it does not know
        logger.info("without fused kernels on %s: %s: %s", device, type(error).__name__, error)
        return None
    return kernels


def _go_over(kernels: ModuleType, logits: torch.Tensor) -> None:
    ones = torch.ones(len(logits), 1, device=logits.device)
    kernels.mask_far_below_top_(logits, ones)
    kernels.mask_far_below_top_(logits, ones, ones)
    kernels.dynamic_temperature_(logits, *(ones,) * 6)
    kernels.add_where_hashed_(logits, ones.int(), ones.int(), ones)
    kernels.tournament_(logits, ones, logits[0].repeat(3), ones.long(), ones.long())
    kernels.mask_deviations_below_top_(logits, ones)
    kernels.mask_unlikely_(logits, *(ones,) * 4)
    ids = torch.zeros(len(logits), 2, dtype=torch.int64, device=logits.device)
    for where in (None, ones > 0):
        kernels.keep_ids_(logits, ids, where)
        kernels.exclude_top_choices_(logits, ones, ones, ids, where)


def _try_few(kernels: ModuleType, device: torch.device) -> None:
    logits, ids = torch.zeros(2, 8, device=device), torch.zeros(2, 3, dtype=torch.int64, device=device)
    rows = torch.arange(2, device=device)
    kernels.write(logits, rows, ids, kernels.read(logits, rows, ids))
    kernels.write(logits, rows, ids, 1.0)
    kernels.mask_ids_(logits, ids)
    kernels.match_lengths(ids, rows)
    kernels.match_lengths(ids, rows, rows)
    kernels.completes_ngram(ids, rows, rows, rows)
    for on_v2 in (False, True):
        for texts in kernels.examples(device, on_v2):
            if texts.kind != 2:
                kernels.history(texts, rows, rows)


def fused_for(logits: Any) -> Any:
    """Return the kernels of :func:`prepare` if they suit ``logits``; a recorder stands for its kernels."""
    if isinstance(logits, Recorder):
        return logits.kernels
    kernels = prepare(logits.device)
    return kernels if kernels is not None and kernels.suits(logits) and not differentiated(logits) else None


def few_for(tensor: Any) -> Any:
    """Return the kernels of :func:`prepare_few` if they suit ``tensor``; a recorder stands for its kernels."""
    if isinstance(tensor, StandIn):
        return tensor.kernels
    return None if differentiated(tensor) else prepare_few(tensor.device)


def differentiated(logits: torch.Tensor) -> bool:
    """True if autograd follows the logits, as in training: then only plain operations may write them."""
    return logits.requires_grad and torch.is_grad_enabled()


def on_host(values: torch.Tensor) -> bool:
    """True if numpy can read the tensor: it is in the host's memory and not a fake tensor."""
    return values.device.type == "cpu" and type(values) is torch.Tensor


def plain(logits: torch.Tensor) -> bool:
    """True if torch's own kernels should mask: on a device where they are fast, under autograd, and for types other
    than float32, because the arithmetic relies on float32's largest number.
    """
    return logits.dtype != torch.float32 or logits.device.type != "cpu" or differentiated(logits)
