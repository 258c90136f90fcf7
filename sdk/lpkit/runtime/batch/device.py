"""Choice of a batch's device."""

from __future__ import annotations

import torch


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """Choose a device.

    Args:
        device: a device, its name, or ``"auto"``.

    Returns:
        The device; for ``"auto"`` CUDA when a GPU is present, else the CPU.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
