"""The engine that the doctor judges, with its arguments and its processors."""

from __future__ import annotations

from dataclasses import dataclass

from lpkit_conformance.discovery.installed import DiscoveredPlugin
from lpkit_conformance.discovery.runner_choice import Choice
from lpkit_conformance.doctor.serving import Serving
from lpkit_conformance.vllm_api import releases
from lpkit_conformance.vllm_api.releases import Release, is_before
from lpkit_conformance.vllm_api.runners import V1, Runner


@dataclass(frozen=True)
class Situation:
    """An engine, its arguments and its processors.

    Attributes:
        label: the engine in words, e.g. ``"vLLM 0.32.0"``.
        release: None if unknown; judged as the newest.
        choice: the runner that it uses if a processor is installed or passed.
        cpu: True for a CPU build.
        serving: its arguments.
        installed: found by entry points, in the order in which vLLM loads them.
        passed: with ``--logits-processors``.
        lacks_suffix: True if it drafts by suffixes, and the package for that is not installed.
    """

    label: str
    release: Release | None
    choice: Choice
    cpu: bool
    serving: Serving
    installed: tuple[DiscoveredPlugin, ...]
    passed: tuple[DiscoveredPlugin, ...] = ()
    lacks_suffix: bool = False

    @property
    def runner(self) -> Runner:
        return self.choice.runner

    @property
    def placeholders(self) -> bool:
        """True if output lists keep placeholders (-1): on V1 with asynchronous scheduling and no passed processor."""
        by_default = not self.cpu and not is_before(self.release, releases.ASYNC_SINCE)
        serving = self.serving
        return self.runner == V1 and by_default and not (serving.no_async or serving.drafts or self.passed)

    @property
    def left_out(self) -> bool:
        """True if V1 builds no custom processor because speculative decoding is on."""
        return self.runner == V1 and self.serving.drafts and not is_before(self.release, releases.DRAFTS_REFUSED_SINCE)
