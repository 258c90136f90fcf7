"""A defect of recorded steps that several folders plant."""

from __future__ import annotations

import pytest
from lpkit_conformance.instruments import recorded_steps


def nobody_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Edit the rows of requests that do not use the processor."""
    run = recorded_steps._Kernel._run
    patch.setattr(
        recorded_steps._Kernel,
        "_run",
        lambda self, logits, slots, own, *given, **sizes: run(self, logits, slots, own | True, *given, **sizes),
    )
