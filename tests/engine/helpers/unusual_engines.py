"""Real engines that do on a CPU what vLLM does on a GPU; ``tests/engine/probes`` must be in their ``sys_path``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from lpkit_conformance.engine import beyond_cpu
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings

SPECULATIVE: dict[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}
"""A ``speculative_config`` of vLLM's: draft tokens are looked up in what was written so far."""

needs_v2_drafts = pytest.mark.needs_release("0.32")
"""V2 looks drafts up; before, it has only drafters that are models."""


class DraftingEngine(EngineProcess):
    """V2 with speculative decoding."""

    def restart(self, settings: EngineSettings, logits_processors: Sequence[Any] = ()) -> None:
        self.call(beyond_cpu.accept_integer_masks)
        super().restart(settings, logits_processors)


class AsyncEngine(EngineProcess):
    """With asynchronous scheduling, which vLLM's CPU platform switches off."""

    def restart(self, settings: EngineSettings, logits_processors: Sequence[Any] = ()) -> None:
        self.call(beyond_cpu.allow_async_scheduling)
        super().restart(settings, logits_processors)
        assert self.inspect("plugin_probes:is_async")
