"""Checks the distributions of plugins and their projects: entry points, requirements and template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lpkit_conformance.discovery.installed import Inventory
from lpkit_conformance.discovery.metadata import Distribution, field, find, ordered, source_folder
from lpkit_conformance.doctor.issue import Issue
from lpkit_conformance.errors import ProjectError
from lpkit_conformance.settings import project as projects

RECORD = ".lpkit-template.json"
"""File that ``lpkit new`` writes into the project's folder, with the version of the template."""


def issues(inventory: Inventory, path: Sequence[str] | None, folder: Path, template: str) -> list[Issue]:
    """Return issues of the installed plugins' distributions and of the project in ``folder``.

    ``template`` is this lpkit's version of the template.
    """
    problems: list[Issue] = []
    sources: dict[Path, str] = {}
    for name in dict.fromkeys(plugin.distribution for plugin in inventory.plugins):
        dist = find(name, path)
        if dist is None:
            continue
        problems += _requirements(name, dist)
        source = source_folder(dist)
        if source is not None:
            sources.setdefault(source, name)
    sources.setdefault(folder.resolve(), folder.name)
    for source, name in sources.items():
        problems += _template(name, source, template)
        problems += _installation(source, inventory, path)
    return problems


def _installation(source: Path, inventory: Inventory, path: Sequence[str] | None) -> Iterator[Issue]:
    """pip copies entry points when it installs, even in editable mode: later edits of pyproject.toml have no effect."""
    try:
        project = projects.find(source)
    except ProjectError:
        return  # lpkit check reports what is wrong
    if project is None or not project.entry_points or not project.name:
        return
    dist = find(project.name, path)
    if dist is None:
        yield Issue(
            "not-installed",
            "note",
            f"{project.name}, the project in {source}, is not installed, so vLLM cannot find it",
            "vLLM loads entry points of installed distributions.",
            "pip install -e .",
        )
        return
    name = field(dist, "Name")
    kept = {plugin.name: plugin.target for plugin in inventory.plugins if plugin.distribution == name}
    kept = {key: target.partition("[")[0].strip() for key, target in kept.items()}
    if kept != project.entry_points:
        from_here = source_folder(dist) == source
        yield Issue(
            "stale-install",
            "error" if from_here else "note",
            f"{name} was installed with other entry points than its pyproject.toml has now, and vLLM uses the old ones",
            f"Installed: {_listed(kept)}; {source / 'pyproject.toml'}: {_listed(project.entry_points)}.",
            f"pip install -e {source}" if from_here else "",
        )


def _listed(entries: dict[str, str]) -> str:
    return ", ".join(f"{name} = {target}" for name, target in sorted(entries.items())) or "none"


def _requirements(name: str, dist: Distribution) -> Iterator[Issue]:
    try:
        required = dist.requires or []
    except Exception:  # damaged metadata
        return
    for requirement in required:
        wanted = re.match(r"[A-Za-z0-9._-]+", requirement)
        if wanted is not None and re.sub(r"[-_.]+", "-", wanted[0]).lower() == "lpkit":
            yield Issue(
                "requires-stranger",
                "error",
                f"{name} requires lpkit, an unrelated distribution",
                f"Its metadata says {requirement!r}; this project's distribution is vllm-lpkit.",
                f"Write vllm-lpkit in the dependencies of {name}",
            )


def _template(name: str, source: Path, template: str) -> Iterator[Issue]:
    try:
        version = str(json.loads((source / RECORD).read_text("utf-8"))["template_version"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # not made by lpkit new, or edited since
    if () < ordered(version) < ordered(template):
        yield Issue(
            "template-old",
            "note",
            f"{name} was made from template {version}; this lpkit has {template}",
            str(source / RECORD),
            f"lpkit update {source}",
        )
