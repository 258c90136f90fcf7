"""The masks of :mod:`lpkit.kernels` in one pass over the memory, compiled by ``torch.compile`` for the CPU.

For logits that do not fit into the processor's cache; use them through that module. Compiled once for all sizes.
"""

from __future__ import annotations

import math

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

KIND = "compiled"


# Without a result: the compiler would keep a copy of it.
def _below(logits: torch.Tensor, lowest: torch.Tensor) -> None:
    logits.masked_fill_(logits < lowest, -math.inf)


def _above(logits: torch.Tensor, highest: torch.Tensor) -> None:
    logits.masked_fill_(logits > highest, -math.inf)


def _far_below_top(logits: torch.Tensor, distance: torch.Tensor) -> None:
    logits.masked_fill_(logits < logits.amax(dim=-1, keepdim=True) - distance, -math.inf)


_compiled = [torch.compile(rule, dynamic=True, fullgraph=True) for rule in (_below, _above, _far_below_top)]


def mask_below_(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    _compiled[0](logits, lowest.contiguous())
    return logits


def mask_above_(logits: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    _compiled[1](logits, highest.contiguous())
    return logits


def mask_far_below_top_(logits: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    _compiled[2](logits, distance.contiguous())
    return logits


LEAST_BYTES = 2**23
"""Smaller logits stay in the cache between two passes, and are cheaper without the checks of compiled code."""


def suits(logits: torch.Tensor) -> bool:
    """Whether these logits are of the kind that was compiled for; anything else would be compiled anew, in seconds.

    Nor while operations are watched: compiled code is none, and is not used again after it was.
    """
    alike = logits.nbytes > LEAST_BYTES and logits.shape[0] > 1 and logits.is_contiguous()
    return alike and _get_current_dispatch_mode() is None
