"""Which of vLLM's two model runners an engine would use, told from its release and its environment.

Nothing of vLLM is imported. The releases below are held against vLLM's own sources by ``make canary``, whose table is
in docs/evidence/vllm-releases.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from lpkit_conformance.discovery.module_finder import Sources
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

Release: TypeAlias = tuple[int, int, int]

SWITCH: Final = "VLLM_USE_V2_MODEL_RUNNER"
"""What the environment asks for."""

PLUGINS_SINCE: Final[Release] = (0, 10, 1)
"""The entry-point group and the V1 interface exist."""
DRAFTS_REFUSED_SINCE: Final[Release] = (0, 11, 1)
"""With speculative decoding, V1 refuses passed processors and leaves installed ones out; before, drafts bypass them."""
NO_PROMPT_IDS_SINCE: Final[Release] = (0, 11, 0)
"""An Add may come without the prompt's token ids: with prompt embeddings there are none."""
VALIDATED_SINCE: Final[Release] = (0, 11, 1)
"""Plugins are asked to validate a request's parameters, by the API server; since 0.17 by ``vllm.LLM``, too."""
SWITCH_SINCE: Final[Release] = (0, 12, 0)
"""``VLLM_USE_V2_MODEL_RUNNER`` exists; its V2 runner does not support custom processors yet."""
ASYNC_SINCE: Final[Release] = (0, 14, 0)
"""Asynchronous scheduling is on by default, but for CPUs."""
V2_FOR_SOME_SINCE: Final[Release] = (0, 22, 0)
"""V2 is the default for some models; a passed or installed processor puts the engine back on V1."""
V2_DEFAULT_SINCE: Final[Release] = (0, 29, 0)
"""V2 is the default for all models, with the same exception. What V1 does not support, it refuses."""
V1_DEPRECATED_SINCE: Final[Release] = (0, 29, 0)
"""V1 is announced to go."""
FORCED_V2_SINCE: Final[Release] = (0, 30, 0)
"""vLLM's own watermark and HiSparse run on V2 only: the first overrides a 0 of the switch, the second refuses it."""
FLY_SINCE: Final[Release] = (0, 33, 0)
"""Drafts can be accepted by ``fly``, which keeps to masks only."""
V2_PROCESSORS_SINCE: Final[Release] = (0, 31, 0)
"""V2 loads custom processors, which must have its own interface."""

_METHODS_ON_V1: Final[tuple[tuple[Release, frozenset[str]], ...]] = (
    ((0, 31, 0), frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator", "custom_class"})),
    ((0, 32, 0), frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"})),
    ((0, 33, 0), frozenset({"suffix", "custom_class"})),
)


@dataclass(frozen=True)
class Demands:
    """What an engine's arguments ask of the choice of a runner.

    Attributes:
        v2: what runs on V2 only, and overrides the switch; "" for nothing.
        hisparse: HiSparse is on, which runs on V2 only, and refuses a switch that says V1.
        v1: what V2 does not support: V1 is used, unless the switch says V2, which is then refused.
        only_v2: what V1 refuses.
    """

    v2: str = ""
    hisparse: bool = False
    v1: tuple[str, ...] = ()
    only_v2: tuple[str, ...] = ()


def methods_on_v1(release: Release | None) -> frozenset[str]:
    """Methods of speculative decoding that keep a release with processors on V2 on V1."""
    known = [methods for since, methods in _METHODS_ON_V1 if not is_before(release, since)]
    return known[-1] if known else frozenset()


@dataclass(frozen=True)
class Choice:
    """What an engine does once a custom processor is installed or passed.

    Attributes:
        runner: that it uses.
        reason: why that one.
        refusal: why it would not start with any custom processor, or "".
        loads: whether that runner loads custom processors at all.
        moved: whether it would use the other runner if there were no custom processor.
        forced: whether the engine's other arguments decide it, and the switch does not.
        told: whether the switch decides it.
    """

    runner: Runner
    reason: str
    refusal: str = ""
    loads: bool = True
    moved: bool = False
    forced: bool = False
    told: bool = False


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


def choose(release: Release | None, lack: str, environment: Mapping[str, str], demands: Demands = Demands()) -> Choice:
    """What ``release`` chooses with a custom processor; ``lack``: see :func:`triton_lack`."""
    choice = _chosen(release, lack, environment, demands)
    if choice.runner != V1 or choice.refusal or not demands.only_v2:
        return choice
    refusal = f"The V1 runner does not support {' and '.join(demands.only_v2)}, and it is used here: {choice.reason}"
    return replace(choice, refusal=refusal, forced=not choice.moved)


def _chosen(release: Release | None, lack: str, environment: Mapping[str, str], demands: Demands) -> Choice:
    if is_before(release, PLUGINS_SINCE):
        return Choice(V1, "it is from before 0.10.1, the first release with processor plugins", loads=False)
    if is_before(release, SWITCH_SINCE):
        return Choice(V1, "before 0.12 it is the only one")
    value = environment.get(SWITCH)
    if demands.hisparse or demands.v2:
        return _on_v2(release, value, demands)
    if value is not None:
        return _switched(release, value, lack, demands.v1)
    if is_before(release, V2_FOR_SOME_SINCE):
        return Choice(V1, "before 0.22 it is the default for all models")
    if lack:
        return Choice(V1, lack)
    if is_before(release, V2_PROCESSORS_SINCE):
        return Choice(V1, "before 0.31 only the V1 runner loads logits processors", moved=True)
    if demands.v1:
        return Choice(V1, f"the V2 runner does not support {' and '.join(demands.v1)}", forced=True)
    return Choice(V2, "the default since 0.31")


def _on_v2(release: Release | None, value: str | None, demands: Demands) -> Choice:
    """With a feature that only V2 has."""
    feature = "HiSparse" if demands.hisparse else demands.v2
    loads = not is_before(release, V2_PROCESSORS_SINCE)
    if demands.hisparse and value == "0":
        return Choice(V2, feature, refusal=f"HiSparse runs on the V2 runner only, and {SWITCH}=0", forced=True)
    return Choice(
        V2, f"{feature} runs on it only{f', whatever {SWITCH} says' if value else ''}", "", loads, forced=True
    )


def _switched(release: Release | None, value: str, lack: str, only_v1: Sequence[str]) -> Choice:
    told = f"{SWITCH}={value}"
    try:
        on = bool(int(value))
    except ValueError:
        # An empty value, or "true": vLLM converts with int().
        return Choice(V1, told, refusal=f"{SWITCH} must be 0 or 1, not {value!r}: vLLM ends with a ValueError")
    if not on:
        return Choice(V1, told, told=True)
    if is_before(release, V2_FOR_SOME_SINCE):
        return Choice(V2, f"{told}; this release's V2 runner does not support custom processors", loads=False)
    if lack:
        return Choice(V2, told, refusal=f"{told}, but {lack}")
    if is_before(release, V2_PROCESSORS_SINCE):
        refusal = f"{told}, and before 0.31 the V2 runner refuses to start with a custom processor"
        return Choice(V2, told, refusal=refusal, loads=False)
    if only_v1:
        refusal = f"{told}, but the V2 runner does not support {' and '.join(only_v1)}"
        return Choice(V2, told, refusal=refusal, forced=True)
    return Choice(V2, told)
