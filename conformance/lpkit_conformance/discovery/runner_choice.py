"""Predict which of vLLM's two model runners an engine would use, from its release and its environment.

Nothing of vLLM is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lpkit_conformance.discovery.module_finder import Sources
from lpkit_conformance.vllm_api.facts import in_short
from lpkit_conformance.vllm_api.releases import (
    PLUGINS_SINCE,
    SWITCH_SINCE,
    V2_FOR_SOME_SINCE,
    V2_PROCESSORS_SINCE,
    Release,
    is_before,
)
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

SWITCH: Final = "VLLM_USE_V2_MODEL_RUNNER"
"""The environment variable that asks for a runner."""

_V2_SINCE: Final = in_short(V2_PROCESSORS_SINCE)


@dataclass(frozen=True)
class Demands:
    """Demands of an engine's arguments on the choice of a runner.

    Attributes:
        v2: a feature that runs on V2 only, and overrides the switch; "" if the arguments use none.
        hisparse: HiSparse is on, which runs on V2 only, and refuses a switch to V1.
        v1: a feature that V2 does not support: V1 is used, unless the switch selects V2, which is then refused.
        only_v2: a feature that V1 refuses.
    """

    v2: str = ""
    hisparse: bool = False
    v1: tuple[str, ...] = ()
    only_v2: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The behaviour of an engine once a custom processor is installed or passed.

    Attributes:
        refusal: the reason for not starting with any custom processor, or "".
        loads: True if that runner loads custom processors at all.
        moved: True if it would use the other runner without a custom processor.
        forced: True if the engine's other arguments decide the choice, and the switch does not.
        by_switch: True if the switch decides the choice.
    """

    runner: Runner
    reason: str
    refusal: str = ""
    loads: bool = True
    moved: bool = False
    forced: bool = False
    by_switch: bool = False


def is_cpu_build(distribution: str, version: str) -> bool:
    """Return True if a vLLM of this name and version is built for CPUs."""
    return "cpu" in f"{distribution} {version}".lower() or sys.platform == "darwin"


def is_tpu_build(distribution: str, version: str) -> bool:
    """Return True if a vLLM of this name and version is built for TPUs."""
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
    """Return the runner that ``release`` chooses with a custom processor; ``lack``: see :func:`triton_lack`."""
    choice = _chosen(release, lack, environment, demands)
    if choice.runner != V1 or choice.refusal or not demands.only_v2:
        return choice
    refusal = f"The V1 runner does not support {' and '.join(demands.only_v2)}, and it is used here: {choice.reason}"
    return replace(choice, refusal=refusal, forced=not choice.moved)


def _chosen(release: Release | None, lack: str, environment: Mapping[str, str], demands: Demands) -> Choice:
    if is_before(release, PLUGINS_SINCE):
        return Choice(
            V1, f"it is from before {in_short(PLUGINS_SINCE)}, the first release with processor plugins", loads=False
        )
    if is_before(release, SWITCH_SINCE):
        return Choice(V1, f"before {in_short(SWITCH_SINCE)} it is the only one")
    value = environment.get(SWITCH)
    if demands.hisparse or demands.v2:
        return _on_v2(release, value, lack, demands)
    if value is not None:
        return _switched(release, value, lack, demands.v1)
    if is_before(release, V2_FOR_SOME_SINCE):
        return Choice(V1, f"before {in_short(V2_FOR_SOME_SINCE)} it is the default for all models")
    if lack:
        return Choice(V1, lack)
    if is_before(release, V2_PROCESSORS_SINCE):
        return Choice(V1, f"before {_V2_SINCE} only the V1 runner loads logits processors", moved=True)
    if demands.v1:
        return Choice(V1, f"the V2 runner does not support {' and '.join(demands.v1)}", forced=True)
    return Choice(V2, f"the default since {_V2_SINCE}")


def _on_v2(release: Release | None, value: str | None, lack: str, demands: Demands) -> Choice:
    """Return the choice for a feature that only V2 has."""
    feature = "HiSparse" if demands.hisparse else demands.v2
    loads = not is_before(release, V2_PROCESSORS_SINCE)
    if demands.hisparse and value == "0":
        return Choice(V2, feature, refusal=f"HiSparse runs on the V2 runner only, and {SWITCH}=0", forced=True)
    if lack:
        return Choice(V2, feature, refusal=f"{feature} runs on the V2 runner only, and {lack}", forced=True)
    return Choice(
        V2, f"{feature} runs on it only{f', whatever {SWITCH} says' if value else ''}", "", loads, forced=True
    )


def _switched(release: Release | None, value: str, lack: str, only_v1: Sequence[str]) -> Choice:
    setting = f"{SWITCH}={value}"
    try:
        on = bool(int(value))
    except ValueError:
        # An empty value, or "true": vLLM converts with int().
        return Choice(V1, setting, refusal=f"{SWITCH} must be 0 or 1, not {value!r}: vLLM ends with a ValueError")
    if not on:
        return Choice(V1, setting, by_switch=True)
    if is_before(release, V2_FOR_SOME_SINCE):
        return Choice(V2, f"{setting}; this release's V2 runner does not support custom processors", loads=False)
    if lack:
        return Choice(V2, setting, refusal=f"{setting}, but {lack}")
    if is_before(release, V2_PROCESSORS_SINCE):
        refusal = f"{setting}, and before {_V2_SINCE} the V2 runner refuses to start with a custom processor"
        return Choice(V2, setting, refusal=refusal, loads=False)
    if only_v1:
        refusal = f"{setting}, but the V2 runner does not support {' and '.join(only_v1)}"
        return Choice(V2, setting, refusal=refusal, forced=True)
    return Choice(V2, setting)
