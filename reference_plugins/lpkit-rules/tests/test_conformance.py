"""vLLM reorders, pauses and resumes requests: does the processor's state follow them?"""

from __future__ import annotations

from typing import Any

from lpkit_conformance.testing import parametrize_with_checks


@parametrize_with_checks("lpkit_rules.processor:Rules")
def test_conformance(check: Any) -> None:
    check.run()
