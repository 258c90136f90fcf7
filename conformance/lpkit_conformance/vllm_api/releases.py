"""vLLM's releases: when each fact that lpkit depends on began."""

from __future__ import annotations

import re
from typing import Final

from lpkit_conformance.vllm_api.facts import VLLM
from lpkit_conformance.vllm_api.facts import Release as Release

PLUGINS_SINCE: Final = VLLM.since("group", "vllm.logits_processors")
"""The entry-point group and the V1 interface exist."""
OLDEST_SUPPORTED: Final = VLLM.since("v1-update", "batch_size, removed, added, moved")
"""A batch update has its fields in today's order."""
DRAFTS_REFUSED_SINCE: Final = VLLM.since("v1-drafts", "installed: left out")
"""With speculative decoding, V1 refuses passed processors and leaves installed ones out; before, drafts bypass them."""
NO_PROMPT_IDS_SINCE: Final = VLLM.since("v1-added", "index, params, prompt or None, output")
"""First release in which an Add may lack the prompt's token ids: prompts given as embeddings have no ids."""
VALIDATED_SINCE: Final = VLLM.since("validated", "online")
"""The API server has plugins validate a request's parameters."""
SWITCH_SINCE: Final = VLLM.since("switch", "a number")
"""``VLLM_USE_V2_MODEL_RUNNER`` exists; its V2 runner does not support custom processors yet."""
ASYNC_SINCE: Final = VLLM.since("async-default", "on")
"""Asynchronous scheduling is on by default, but for CPUs."""
V2_FOR_SOME_SINCE: Final = VLLM.since("default-runner", "V2 for some models")
"""V2 is the default for some models; a passed or installed processor puts the engine back on V1."""
V2_DEFAULT_SINCE: Final = VLLM.since("default-runner", "V2")
"""First release in which V2 is the default for all models, with the same exception. V1 refuses features it lacks."""
V1_DEPRECATED_SINCE: Final = VLLM.since("v1-runner", "deprecated")
"""vLLM announces that the V1 runner will go."""
V2_PROCESSORS_SINCE: Final = VLLM.since("v2-processors", "runs them")
"""V2 loads custom processors, which must have its own interface."""


def parse_release(version: str) -> Release | None:
    """Return ``(0, 31, 0)`` for ``"0.31.0+cu129"``; None for a source build that does not know its release."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        return None
    release = (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0))
    # setuptools-scm without tags says 0.1.dev1 or 0.0.0: such a checkout is newer than any release of that number.
    return None if release < (0, 1, 1) else release


def is_before(release: Release | None, limit: Release) -> bool:
    """Return True if a known release is older than ``limit``; an unknown release counts as the newest."""
    return release is not None and release < limit
