"""Findings of planted defects."""

from __future__ import annotations

from typing import Any

import zoo
from lpkit_conformance.results import Finding
from lpkit_conformance.testing import compute_check


def finding_of(identity: str, code: str, host: str = "", **settings: Any) -> tuple[Any, Finding]:
    """Return a planted defect's class, and the finding of one check on it."""
    specimen = zoo.specimen(identity)
    finding = compute_check(code, specimen.target, host=host, case=specimen.case.to_json(), **settings).finding
    assert finding is not None
    return specimen.target, finding
