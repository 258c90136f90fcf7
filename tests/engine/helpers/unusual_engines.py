"""Settings of real engines with drafts, and with little room."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.engine import model
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.releases import Release, is_before

SPECULATIVE: dict[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}
"""A ``speculative_config`` of vLLM's: draft tokens are looked up in what was written so far."""

needs_v2_drafts = pytest.mark.needs_release("0.32")
"""V2 looks drafts up; before, it has only drafters that are models."""


@cache
def drafting(release: Release | None) -> dict[str, Any]:
    """``SPECULATIVE``, or before 0.32, whose V2 looks nothing up, a drafter that is a model like the engine's."""
    if not is_before(release, (0, 32, 0)):
        return SPECULATIVE
    folder = tempfile.TemporaryDirectory(prefix="lpkit-drafter-")
    atexit.register(folder.cleanup)
    model.write(Path(folder.name), 512, 256)
    return {"method": "draft_model", "model": folder.name, "num_speculative_tokens": 3, "enforce_eager": True}


def crowded(runner: str, **extra: Any) -> EngineSettings:
    """Nine blocks of 32 tokens and 32 tokens per step: prompts come in pieces, and not all requests fit."""
    return EngineSettings(
        runner,  # type: ignore[arg-type]
        max_num_seqs=6,
        max_model_len=96,
        max_num_batched_tokens=32,
        num_gpu_blocks_override=9,
        block_size=32,
        extra=extra,
    )
