"""Copies from the host to the device."""

from __future__ import annotations

import torch


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy to the device without blocking the host.

    Pinned memory is fresh each time and kept until the copy is done. So a step in flight never sees the next step's
    values.

    Args:
        values: on the host.
        device: the destination; for the CPU, ``values`` is returned.
    """
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)
