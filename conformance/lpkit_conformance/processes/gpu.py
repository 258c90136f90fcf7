"""A GPU that no call of this process reaches any more."""

from __future__ import annotations

import torch


def error_of(device: torch.device) -> str:
    """Return the error that every later call to the GPU raises, after a kernel read outside of memory; else empty.

    A kernel's error is raised late: by the next call that waits for the GPU, and by all later calls of the process.
    """
    if device.type != "cuda":
        return ""
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return ""
