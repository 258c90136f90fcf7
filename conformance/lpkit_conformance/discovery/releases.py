"""Which of vLLM's two model runners an engine would use, told from its release and its environment.

Nothing of vLLM is imported. The releases below are held against vLLM's own sources by ``make canary``, whose table is
in docs/evidence/vllm-releases.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lpkit_conformance.discovery.module_finder import Sources
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

Release: TypeAlias = tuple[int, int, int]

SWITCH: Final = "VLLM_USE_V2_MODEL_RUNNER"
"""What the environment asks for. vLLM's own watermark overrides 0 since 0.30, but is an argument of the engine."""

PLUGINS_SINCE: Final[Release] = (0, 10, 1)
"""The entry-point group and the V1 interface exist."""
DRAFTS_REFUSED_SINCE: Final[Release] = (0, 11, 1)
"""With speculative decoding, V1 refuses passed processors and leaves installed ones out; before, drafts bypass them."""
VALIDATED_SINCE: Final[Release] = (0, 11, 1)
"""Plugins are asked to validate a request's parameters, by the API server; since 0.17 by ``vllm.LLM``, too."""
SWITCH_SINCE: Final[Release] = (0, 12, 0)
"""``VLLM_USE_V2_MODEL_RUNNER`` exists; its V2 runner does not support custom processors yet."""
ASYNC_SINCE: Final[Release] = (0, 14, 0)
"""Asynchronous scheduling is on by default, but for CPUs."""
V2_FOR_SOME_SINCE: Final[Release] = (0, 22, 0)
"""V2 is the default for some models; a passed or installed processor puts the engine back on V1."""
V2_DEFAULT_SINCE: Final[Release] = (0, 29, 0)
"""V2 is the default for all models, with the same exception."""
V2_PROCESSORS_SINCE: Final[Release] = (0, 31, 0)
"""V2 loads custom processors, which must have its own interface."""


@dataclass(frozen=True)
class Choice:
    """What an engine does once a custom processor is installed or passed.

    Attributes:
        runner: that it uses.
        reason: why that one.
        refusal: why it would not start with any custom processor, or "".
        loads: whether that runner loads custom processors at all.
        moved: whether it would use the other runner if there were no custom processor.
    """

    runner: Runner
    reason: str
    refusal: str = ""
    loads: bool = True
    moved: bool = False


def parse_release(version: str) -> Release | None:
    """``(0, 31, 0)`` of ``"0.31.0+cu129"``; None for a build from source that does not know its release."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        return None
    release = (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0))
    # setuptools-scm without tags says 0.1.dev1 or 0.0.0: such a checkout is newer than any release of that number.
    return None if release < (0, 1, 1) else release


def is_before(release: Release | None, limit: Release) -> bool:
    """Whether a known release is older than ``limit``; an unknown one counts as the newest."""
    return release is not None and release < limit


def is_cpu_build(distribution: str, version: str) -> bool:
    """Whether a vLLM of this name and version is built for CPUs."""
    return "cpu" in f"{distribution} {version}".lower() or sys.platform == "darwin"


def is_tpu_build(distribution: str, version: str) -> bool:
    """Whether a vLLM of this name and version is built for TPUs."""
    return "tpu" in f"{distribution} {version}".lower()


def triton_lack(cpu: bool, sources: Sources) -> str:
    """Why the V2 runner, which is written in Triton, cannot run here, or ""."""
    triton = sources.find("triton")
    if cpu:
        if triton is None or sources.find("triton.backends.cpu") is None:
            return "a CPU build without Triton's CPU backend"
        return ""
    return "Triton is not installed" if triton is None else ""


def choose(release: Release | None, lack: str, environment: Mapping[str, str]) -> Choice:
    """What ``release`` chooses with a custom processor; ``lack``: see :func:`triton_lack`."""
    if is_before(release, PLUGINS_SINCE):
        return Choice(V1, "it is from before 0.10.1, the first release with processor plugins", loads=False)
    if is_before(release, SWITCH_SINCE):
        return Choice(V1, "before 0.12 it is the only one")
    value = environment.get(SWITCH)
    if value is not None:
        return _switched(release, value, lack)
    if is_before(release, V2_FOR_SOME_SINCE):
        return Choice(V1, "before 0.22 it is the default for all models")
    if lack:
        return Choice(V1, lack)
    if is_before(release, V2_PROCESSORS_SINCE):
        return Choice(V1, "before 0.31 only the V1 runner loads logits processors", moved=True)
    return Choice(V2, "the default since 0.31")


def _switched(release: Release | None, value: str, lack: str) -> Choice:
    told = f"{SWITCH}={value}"
    try:
        on = bool(int(value))
    except ValueError:
        # An empty value, or "true": vLLM converts with int().
        return Choice(V1, told, refusal=f"{SWITCH} must be 0 or 1, not {value!r}: vLLM ends with a ValueError")
    if not on:
        return Choice(V1, told)
    if is_before(release, V2_FOR_SOME_SINCE):
        return Choice(V2, f"{told}; this release's V2 runner does not support custom processors", loads=False)
    if lack:
        return Choice(V2, told, refusal=f"{told}, but {lack}")
    if is_before(release, V2_PROCESSORS_SINCE):
        refusal = f"{told}, and before 0.31 the V2 runner refuses to start with a custom processor"
        return Choice(V2, told, refusal=refusal, loads=False)
    return Choice(V2, told)
