"""Architectures of the served model, from its configuration in a folder or in Hugging Face's cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from lpkit_conformance.doctor.serving import Serving, environment_of

OWN_SAMPLER = ("DiffusionGemmaForBlockDiffusion",)
"""Architectures whose models define `custom_sampler` in any release of vLLM."""


def samples_by_itself(serving: Serving) -> str:
    """Return the architecture of the served model if it brings its own sampler; empty if it does not, or is unknown."""
    for file in _configurations(serving):
        try:
            named = json.loads(file.read_text(encoding="utf-8")).get("architectures") or ()
        except (OSError, ValueError, AttributeError):
            continue
        return next((name for name in named if name in OWN_SAMPLER), "")
    return ""


def _configurations(serving: Serving) -> Iterator[Path]:
    """Yield the configuration in the model's folder, or those of its snapshots in the cache, the latest first."""
    if not serving.model:
        return
    yield Path(serving.model) / "config.json"
    environment = environment_of(serving)
    home = Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or home / "hub")
    snapshots = cache / f"models--{serving.model.replace('/', '--')}" / "snapshots"
    yield from sorted(snapshots.glob("*/config.json"), key=lambda file: file.lstat().st_mtime, reverse=True)
