"""Logits processors with one planted defect each, and correct processors that look odd; the suite must tell them apart.

A defect is in the module of the check that must catch it (``lp202.py``). A correct processor is in ``correct``, or with
the defects that it resembles. Every module of the package is loaded: no specimen is listed.
"""

from __future__ import annotations

import importlib
import pkgutil

from zoo.registry import CORRECT, DEFECTS, MISSED, Defect, Specimen, outcome, run_all, specimen, specimens

__all__ = ["CORRECT", "DEFECTS", "MISSED", "Defect", "Specimen", "outcome", "run_all", "specimen", "specimens"]

TOOLS = ("zoo.verdicts",)
"""Modules that read the specimens."""

for module in pkgutil.walk_packages(__path__, "zoo."):
    if module.name not in TOOLS:
        importlib.import_module(module.name)
