"""What the doctor judges: an engine, how it is started, and its processors."""

from __future__ import annotations

from dataclasses import dataclass

from lpkit_conformance.discovery import releases
from lpkit_conformance.discovery.installed import Plugin
from lpkit_conformance.discovery.releases import Choice, Release, is_before
from lpkit_conformance.doctor.serving import Serving
from lpkit_conformance.vllm_api.runners import V1, Runner


@dataclass(frozen=True)
class Situation:
    """What is judged: an engine, how it is started, and its processors.

    Attributes:
        label: the engine in words, e.g. ``"vLLM 0.32.0"``.
        release: None: not known, taken for the newest.
        choice: the runner that it uses once a processor is installed or passed.
        cpu: whether it is a build for CPUs.
        serving: its arguments.
        installed: by entry points, in the order in which vLLM loads them.
        passed: with ``--logits-processors``.
    """

    label: str
    release: Release | None
    choice: Choice
    cpu: bool
    serving: Serving
    installed: tuple[Plugin, ...]
    passed: tuple[Plugin, ...] = ()

    @property
    def runner(self) -> Runner:
        return self.choice.runner

    @property
    def placeholders(self) -> bool:
        """Whether output lists hold -1 that is never replaced: V1, asynchronous scheduling, nothing passed."""
        by_default = not self.cpu and not is_before(self.release, releases.ASYNC_SINCE)
        serving = self.serving
        return self.runner == V1 and by_default and not (serving.no_async or serving.drafts or self.passed)

    @property
    def left_out(self) -> bool:
        """V1 builds no custom processor when speculative decoding is on, since 0.11.1."""
        return self.runner == V1 and self.serving.drafts and not is_before(self.release, releases.DRAFTS_REFUSED_SINCE)

    def starts(self, plugin: Plugin) -> bool | None:
        return plugin.starts(self.runner)
