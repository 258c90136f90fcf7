"""Defects that LP704 must catch."""

from __future__ import annotations

import logging

import torch

from zoo.bases import Late
from zoo.registry import defect

logger = logging.getLogger(__name__)


@defect("LP704", "logs its requests in every step")
class LogsEachStep(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logger.warning("%d requests", len(self.rows))
        return super().apply(logits)
