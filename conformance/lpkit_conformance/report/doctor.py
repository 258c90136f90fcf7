"""The text of ``lpkit doctor``. Imports nothing of ``lpkit``, which may be broken there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lpkit_conformance.report.terminal import one_line, table

if TYPE_CHECKING:
    from lpkit_conformance.doctor.examine import Diagnosis
    from lpkit_conformance.doctor.issue import Issue


def only(issues: Sequence[Issue]) -> Iterator[str]:
    """Problems that stop the doctor before it can examine anything else."""
    for issue in issues:
        yield from _issue(issue)
    yield from ("", "Nothing else was checked.")


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Versions, plugins, issues, and a count of what is wrong."""
    yield from (*_facts(diagnosis), "", *_plugins(diagnosis))
    for issue in _joined(diagnosis.issues):
        yield from ("", *_issue(issue))
    errors = sum(issue.level == "error" for issue in diagnosis.issues)
    notes = len(diagnosis.issues) - errors
    noted = f" {notes} note{'s' * (notes != 1)}." if notes else ""
    yield from ("", f"{errors or 'No'} problem{'s' * (errors != 1)} found.{noted}")


def _facts(diagnosis: Diagnosis) -> Iterator[str]:
    from lpkit import __version__

    versions, engine = diagnosis.versions, diagnosis.inventory.engine
    yield f"Environment  {sys.prefix}"
    yield f"Python       {versions.python}"
    yield f"lpkit        {__version__}{'' if versions.lpkit else ' (imported from a checkout, not installed)'}"
    if engine is None:
        yield "vLLM         not installed"
    else:
        yield f"vLLM         {engine.version}{'' if engine.distribution == 'vllm' else f' ({engine.distribution})'}"
    cuda = f", built for {_platform(versions.cuda)}" if versions.torch else ""
    yield f"torch        {versions.torch or 'not installed'}{cuda}"
    yield f"Triton       {versions.triton or 'not installed'}"
    driver = f"NVIDIA driver {versions.driver}" if versions.driver else "a GPU is visible"
    yield f"GPU          {driver if versions.gpu else 'no GPU is visible'}"
    judged = diagnosis.situation
    yield f"Judged       {judged.label}, {judged.runner.upper()} runner: {judged.choice.reason}"


def _platform(cuda: str | None) -> str:
    if cuda is None:
        return "CPUs"
    return f"ROCm {cuda[5:]}" if cuda.startswith("rocm ") else f"CUDA {cuda}"


def _plugins(diagnosis: Diagnosis) -> Iterator[str]:
    rows = []
    for plugin, passed, said in diagnosis.effects():
        origin = "passed" if passed else one_line(f"{plugin.distribution} {plugin.version}")
        rows.append((said, one_line(plugin.name), one_line(plugin.target) if not passed else "", origin))
    if not rows:
        yield "No logits processor is installed here. Start one with: lpkit new my-proc"
        return
    yield from table(rows)


def _joined(issues: Sequence[Issue]) -> list[Issue]:
    """Join issues with equal text about several plugins."""
    groups: dict[Issue, list[str]] = {}
    for issue in issues:
        groups.setdefault(replace(issue, plugin=""), []).append(issue.plugin)
    return [replace(issue, plugin=", ".join(filter(None, plugins))) for issue, plugins in groups.items()]


def _issue(issue: Issue) -> Iterator[str]:
    about = f"{one_line(issue.plugin)}: " if issue.plugin else ""
    yield f"{issue.level}  {about}{one_line(issue.problem)}  [{issue.code}]"
    if issue.evidence:
        yield f"  why     {one_line(issue.evidence)}"
    if issue.remedy:
        yield f"  remedy  {one_line(issue.remedy)}"
