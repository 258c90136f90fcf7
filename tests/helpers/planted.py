"""Findings of planted defects."""

from __future__ import annotations

from functools import cache
from typing import Any

import zoo
from lpkit_conformance.results import Finding
from lpkit_conformance.testing import compute_check


@cache
def finding_of(identity: str, code: str, host: str = "", **settings: Any) -> Finding:
    """Return the finding of one check on a planted defect."""
    specimen = zoo.specimen(identity)
    finding = compute_check(code, specimen.target, host=host, case=specimen.case.to_json(), **settings).finding
    assert finding is not None
    return finding
