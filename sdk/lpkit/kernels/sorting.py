"""Sorting along rows. On a CPU numpy sorts, because its sort of plain values is vectorized.

For 8 rows of 151,936 logits on one core, torch sorts in 159 ms, :func:`sort` in 17 and :func:`sorted_values` in 3.4.
"""

from __future__ import annotations

import numpy as np
import torch

from lpkit.kernels.fused import differentiated, on_host

_INDEX_BITS = 32


def sorted_values(values: torch.Tensor) -> torch.Tensor:
    """Return ``values.sort(-1).values``.

    Args:
        values: ``[..., k]``; float32, int32 and int64 are fast on a CPU.

    Returns:
        The same shape and dtype, ascending, NaN last.
    """
    if not _by_numpy(values):
        return values.sort(-1).values
    # Not Tensor.numpy(), which lpkit's checks count as a wait.
    return torch.from_numpy(np.sort(np.from_dlpack(values.detach()), axis=-1))


def sort(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``values.sort(stable=True, dim=-1)``: equal values stay in order, unlike in torch's default.

    Args:
        values: ``[..., k]``; float32 is fast on a CPU.

    Returns:
        The same shape and dtype, ascending, NaN last; and int64, the former position of each value.
    """
    if values.dtype != torch.float32 or not _by_numpy(values):
        ordered = values.sort(stable=True, dim=-1)
        return ordered.values, ordered.indices
    # One number per value: its bits, turned so that they sort like the value, followed by its position.
    bits = (values.detach() + 0.0).contiguous().view(torch.int32)  # -0.0 is 0.0
    bits = bits.masked_fill(values != values, torch.iinfo(torch.int32).max)
    turned = bits ^ (bits >> 31 & 0x7FFFFFFF)
    keys = turned.to(torch.int64) << _INDEX_BITS | torch.arange(values.shape[-1])
    indices = sorted_values(keys).bitwise_and_((1 << _INDEX_BITS) - 1)
    return values.gather(-1, indices), indices


def _by_numpy(values: torch.Tensor) -> bool:
    return values.dtype in (torch.float32, torch.int32, torch.int64) and on_host(values) and not differentiated(values)
