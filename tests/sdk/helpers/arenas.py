"""Columns of a few slots, and rows that read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from lpkit.columns.column import Declaration
from lpkit.columns.memory import Arena

VOCAB = 21


def rows(*slots: int) -> Any:
    return SimpleNamespace(slots=torch.tensor(slots), _gathered=None)


def arena(slots: int = 4, device: str = "cpu", **declared: Declaration[Any]) -> Arena:
    return Arena(declared, slots, torch.device(device), VOCAB)


def separate(**declared: Declaration[Any]) -> Arena:
    """An arena whose device's half is apart from the host's, as on a GPU."""
    made = arena(**declared)
    made._on_host = False
    made.flush()
    return made
