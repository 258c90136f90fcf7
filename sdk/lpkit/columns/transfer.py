"""Copies from the host to the device."""

from __future__ import annotations

import torch


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device that the host does not wait for.

    Pinned memory is fresh each time, and kept until the copy is done: a step still in flight never sees the next one's
    values.

    Args:
        values: on the host.
        device: where to; for the host itself they come back as they are.
    """
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)
