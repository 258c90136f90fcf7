"""``lpkit doctor``: examines the environment, and predicts how a vLLM in it treats the processors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lpkit_conformance.discovery import runner_choice
from lpkit_conformance.discovery.installed import DiscoveredPlugin, Inventory, judge_target, take_inventory
from lpkit_conformance.discovery.interfaces import Deducer
from lpkit_conformance.discovery.module_finder import Sources
from lpkit_conformance.discovery.runner_choice import Choice
from lpkit_conformance.doctor import project
from lpkit_conformance.doctor.effects import Effect, effect, judge
from lpkit_conformance.doctor.issue import SCHEMA, Issue
from lpkit_conformance.doctor.serving import Serving, environment_of, read_command
from lpkit_conformance.doctor.situation import Situation
from lpkit_conformance.doctor.squatted import squatted
from lpkit_conformance.doctor.versions import Versions, read_versions
from lpkit_conformance.vllm_api import releases
from lpkit_conformance.vllm_api.facts import in_short
from lpkit_conformance.vllm_api.releases import Release
from lpkit_conformance.vllm_api.runners import V1


@dataclass(frozen=True)
class Settings:
    """The engine to judge, and how to judge it.

    Attributes:
        passed: ``module:Class``, as for ``--logits-processors``.
        release: judge this release of vLLM on a GPU; None: judge the installed one.
        load: import the plugins in child processes instead of reading their source.
        template: version of the template to compare projects with; "": no comparison.
        command: the words of a ``vllm serve`` command; its options are added to the settings above.
    """

    passed: tuple[str, ...] = ()
    drafts: bool = False
    no_async: bool = False
    release: str | None = None
    load: bool = False
    template: str = ""
    command: tuple[str, ...] = ()

    def serving(self, release: Release | None) -> Serving:
        """Return the engine's arguments, from the command and the other settings together."""
        given = read_command(self.command, release)
        return replace(
            given,
            passed=self.passed + given.passed,
            drafts=self.drafts or given.drafts,
            no_async=self.no_async or given.no_async,
        )


@dataclass(frozen=True)
class Diagnosis:
    """The result of ``lpkit doctor``.

    Attributes:
        issues: errors first.
    """

    versions: Versions
    inventory: Inventory
    situation: Situation
    issues: tuple[Issue, ...]

    @property
    def ok(self) -> bool:
        """True unless an issue has the level ``"error"``."""
        return not any(issue.level == "error" for issue in self.issues)

    def effects(self) -> list[tuple[DiscoveredPlugin, bool, Effect]]:
        """Return (plugin, passed, effect) in the order in which vLLM loads the plugins."""
        situation = self.situation
        installed = [(plugin, False, effect(plugin, situation)) for plugin in situation.installed]
        return installed + [(plugin, True, effect(plugin, situation, passed=True)) for plugin in situation.passed]

    def to_json(self) -> dict[str, Any]:
        """Return the document of schema ``lpkit.doctor/1`` (docs/reference/schemas.md)."""
        engine, situation = self.inventory.engine, self.situation
        return {
            "schema": SCHEMA,
            "environment": sys.prefix,
            "ok": self.ok,
            "versions": asdict(self.versions),
            "vllm": None if engine is None else {"distribution": engine.distribution, "version": engine.version},
            "judged": {
                "engine": situation.label,
                "runner": situation.runner,
                "reason": situation.choice.reason,
                "speculative_decoding": situation.serving.drafts,
                "options": situation.serving.options,
                "asynchronous_scheduling_placeholders": situation.placeholders,
            },
            "plugins": [
                {**asdict(plugin), "passed": passed, "verdict": verdict} for plugin, passed, verdict in self.effects()
            ],
            "findings": [asdict(issue) for issue in self.issues],
        }


def examine(settings: Settings, path: Sequence[str] | None = None, folder: Path | None = None) -> Diagnosis:
    """Examine ``path`` (``sys.path`` by default) and the project in ``folder`` (the current folder by default).

    Raises:
        ValueError: ``settings.release`` is not a release number.
        UsageError: ``settings.command`` cannot be read.
    """
    folder = folder or Path.cwd()
    sources = Sources(path)
    inventory = take_inventory(path, sources)
    judged = settings.release or (inventory.engine.version if inventory.engine else "")
    serving = settings.serving(releases.parse_release(judged))
    passed = tuple(_passed(spec, Deducer(sources)) for spec in serving.passed)
    if settings.load:
        from lpkit_conformance.discovery.load import load

        count = len(inventory.plugins)
        loaded = load(replace(inventory, plugins=inventory.plugins + passed)).plugins
        inventory, passed = replace(inventory, plugins=loaded[:count]), loaded[count:]
    situation = _situation(settings, serving, inventory, passed, sources)
    versions = read_versions(sources, path)
    issues = squatted(path, folder) + judge(situation) + project.issues(inventory, path, folder, settings.template)
    if settings.release is None and inventory.engine is not None:
        issues += _hardware(situation, versions)
    issues.sort(key=lambda issue: issue.level)  # stable; "error" sorts before "note"
    return Diagnosis(versions, inventory, situation, tuple(issues))


def _hardware(situation: Situation, versions: Versions) -> list[Issue]:
    """A GPU build on a machine without a visible GPU: Triton counts as absent there, and vLLM needs a device."""
    if situation.cpu or versions.gpu or not situation.choice.loads:
        return []
    return [
        Issue(
            "no-gpu",
            "note",
            f"{situation.label} is judged as on a GPU, but no GPU is visible here",
            "There are no NVIDIA or AMD device files, or CUDA_VISIBLE_DEVICES hides them.",
            "Run lpkit doctor where the engine runs, for example inside its container",
        )
    ]


def _passed(spec: str, deducer: Deducer) -> DiscoveredPlugin:
    return judge_target(DiscoveredPlugin(spec, spec, "", ""), deducer)


def _situation(
    settings: Settings, serving: Serving, inventory: Inventory, passed: tuple[DiscoveredPlugin, ...], sources: Sources
) -> Situation:
    engine = inventory.engine
    cpu, lack, release = False, "", None
    choice: Choice | None = None
    label = f"a default vLLM ({in_short(releases.V2_PROCESSORS_SINCE)} or newer, on a GPU)"
    if settings.release is not None:
        release = releases.parse_release(settings.release)
        if release is None:
            raise ValueError(f"{settings.release!r} is not a release of vLLM")
        label = f"vLLM {settings.release}"
    elif engine is not None:
        release = releases.parse_release(engine.version)
        cpu = runner_choice.is_cpu_build(engine.distribution, engine.version)
        lack = runner_choice.triton_lack(cpu, sources)
        label = f"vLLM {engine.version}"
        if runner_choice.is_tpu_build(engine.distribution, engine.version):
            choice = Choice(V1, "it is built for TPUs, where vLLM loads no processors", loads=False)
    choice = choice or runner_choice.choose(release, lack, environment_of(serving), serving.demands(release))
    if serving.pooling:
        refusal = "vLLM refuses processors that are passed to a pooling model" if passed else choice.refusal
        choice = replace(choice, reason=f"{serving.pooling}: it samples no tokens", refusal=refusal, loads=False)
    here = settings.release is None and engine is not None
    lacks_suffix = here and serving.draft.get("method") == "suffix" and sources.find("arctic_inference") is None
    return Situation(label, release, choice, cpu, serving, inventory.plugins, passed, lacks_suffix)
