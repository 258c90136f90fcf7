"""Launches of a step in which no request comes or goes, and their budget."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import LogitsProcessor
from lpkit.portable.by_slot import why_not_recorded

from lpkit_conformance.hosts.steady import Candidate, SteadyBatch
from lpkit_conformance.instruments.operations import CountLaunches
from lpkit_conformance.vllm_api.runners import V1, V2

SPARSE, WITH_HISTORY, DENSE = 4, 6, 3
"""Budgets of sparse rules without and with history, and of dense rules, independent of the batch size."""
COPIED = {"none": 0, "length": 1, "tokens": 2}
"""Launches on top of it by which V1 gets lengths and new tokens to the device."""


def budget(cls: Any, runner: str = V2) -> int | None:
    """Launches that a step of a class may take on a runner; None for a class without lpkit's base."""
    if not (isinstance(cls, type) and issubclass(cls, LogitsProcessor)):
        return None
    base = DENSE if not cls._sparse else SPARSE if cls.history == "none" else WITH_HISTORY
    return base + (COPIED[cls.history] if runner == V1 else 0)


def in_python(candidate: Candidate) -> str:
    """Return why the Python of a candidate's class runs in each step on a GPU; empty if it does not, or is unknown."""
    return why_not_recorded(getattr(getattr(candidate, "driver", None), "processor", None)) or ""


def launches(candidate: Candidate, steady: SteadyBatch, logits: torch.Tensor) -> CountLaunches:
    """Count the launches of a step without changes, after :meth:`SteadyBatch.advance` gave each request a token."""
    candidate.prepare(steady, steady.no_change())
    with torch.inference_mode(), CountLaunches(logits.device) as counter:
        candidate.rest()
        candidate.apply(logits)
    return counter
