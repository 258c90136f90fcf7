"""A real V2 engine with speculative decoding: draft tokens are looked up in what was written so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lpkit_conformance.recording.engine import EngineSettings
from lpkit_conformance.recording.process import EngineProcess

SPECULATIVE = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
"""vLLM's ``speculative_config``."""


class DraftingEngine(EngineProcess):
    """One that needs no GPU for it; ``tests/engine/probes`` must be in its ``sys_path``."""

    def restart(self, settings: EngineSettings, logits_processors: Sequence[Any] = ()) -> None:
        self.call("plugin_probes:accept_integer_masks")
        super().restart(settings, logits_processors)
