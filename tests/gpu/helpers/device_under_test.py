"""Which device the CPU is compared with: a GPU where there is one; else the CPU itself, on a sample.

So the same code runs everywhere and does not rot; what it says about GPUs it says on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

T = TypeVar("T")

HAVE_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAVE_GPU else "cpu")


def all_or(items: Sequence[T], sample: int) -> list[T]:
    """All items where there is a GPU, else a few of them, spread evenly."""
    return list(items) if HAVE_GPU else list(items)[:: max(len(items) // sample, 1)][:sample]
