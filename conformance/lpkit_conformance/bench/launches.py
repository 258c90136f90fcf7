"""How often a step in which no request comes or goes asks a GPU for something, and how often it may."""

from __future__ import annotations

from typing import Any

import torch
from lpkit import LogitsProcessor

from lpkit_conformance.hosts.steady import Candidate, SteadyBatch
from lpkit_conformance.instruments.operations import CountLaunches

SPARSE, WITH_HISTORY, DENSE = 4, 6, 3
"""The budget, whatever the batch: of sparse rules without history, of those with it, and of dense rules."""


def budget(cls: Any) -> int | None:
    """How many launches a step of a class may take; None where lpkit sets none."""
    if not (isinstance(cls, type) and issubclass(cls, LogitsProcessor)):
        return None
    if not cls._sparse:
        return DENSE
    return SPARSE if cls.history == "none" else WITH_HISTORY


def launches(candidate: Candidate, steady: SteadyBatch, logits: torch.Tensor) -> CountLaunches:
    """Of a step that changes nothing: :meth:`SteadyBatch.advance` has given each request a token."""
    candidate.prepare(steady, steady.no_change())
    with torch.inference_mode(), CountLaunches(logits.device) as counter:
        candidate.rest()
        candidate.apply(logits)
    return counter
