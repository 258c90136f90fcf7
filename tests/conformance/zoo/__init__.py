"""Logits processors with one planted defect each, and correct ones that look odd; what the suite must tell apart."""

from __future__ import annotations

from zoo import (
    adapter_defects,
    correct,
    late_defects,
    missed_defects,
    odd_arguments,
    packaging_defects,
    placeholders,
    portable_defects,
    process_correct,
    process_defects,
    requests,
    seldom,
    unseen_defects,
    v1_beams,
    v1_contract_defects,
    v1_defects,
    v2_defects,
    worlds,
)
from zoo.registry import CORRECT, DEFECTS, MISSED, Defect, Specimen, outcome, run_all

__all__ = [
    "CORRECT",
    "DEFECTS",
    "MISSED",
    "Defect",
    "Specimen",
    "adapter_defects",
    "correct",
    "late_defects",
    "missed_defects",
    "odd_arguments",
    "outcome",
    "packaging_defects",
    "placeholders",
    "portable_defects",
    "process_correct",
    "process_defects",
    "requests",
    "run_all",
    "seldom",
    "unseen_defects",
    "v1_beams",
    "v1_contract_defects",
    "v1_defects",
    "v2_defects",
    "worlds",
]
