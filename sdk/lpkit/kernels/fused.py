"""Whether fused kernels suit a device: Triton's on CUDA."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

logger = logging.getLogger("lpkit")


@cache
def prepare(device: torch.device) -> ModuleType | None:
    """Compile and try the fused kernels for a device, so that no request waits for a compiler.

    :class:`lpkit.LogitsProcessor` does it when it is made. Whatever goes wrong is logged, and plain torch is used.

    Args:
        device: where the logits are.

    Returns:
        The kernels; None where there are none.
    """
    if device.type != "cuda" or os.environ.get("LPKIT_TRITON") == "0":
        return None
    try:
        found = import_module("lpkit.kernels.triton")
        with torch.inference_mode():
            logits, ones = torch.zeros(3, 640, device=device), torch.ones(3, 1, device=device)
            masks = (found.mask_below_, found.mask_above_, found.mask_far_below_top_)
            for function in (*masks, found.log_sum_exp, found.least_from):
                function(logits, ones)
            found.top_and_deviation(logits)
            found.add_where_hashed_(logits, ones.int(), ones.int(), ones)
    except Exception as error:  # no Triton, no compiler, a GPU that it does not know
        logger.info("masking without fused kernels on %s: %s: %s", device, type(error).__name__, error)
        return None
    return found


def fused_for(logits: torch.Tensor) -> ModuleType | None:
    found = prepare(logits.device)
    return found if found is not None and found.suits(logits) and not differentiated(logits) else None


def differentiated(logits: torch.Tensor) -> bool:
    """Whether autograd follows the logits, as in training: then what is written must be written by plain operations."""
    return logits.requires_grad and torch.is_grad_enabled()


def plain(logits: torch.Tensor) -> bool:
    """Whether to mask with torch's own kernels: on a device that is fast at them, and where autograd watches.

    Other types than float32 too: the arithmetic counts on float32's largest number.
    """
    return logits.dtype != torch.float32 or logits.device.type != "cpu" or differentiated(logits)
