"""What ``lpkit doctor`` tells about an environment. Imports nothing of ``lpkit``, which may be broken there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lpkit_conformance.report.terminal import one_line

if TYPE_CHECKING:
    from lpkit_conformance.doctor.examine import Report
    from lpkit_conformance.doctor.finding import Finding


def only(findings: Sequence[Finding]) -> Iterator[str]:
    """What keeps lpkit itself from working, and everything else from being told."""
    for finding in findings:
        yield from _finding(finding)
    yield from ("", "Nothing else was checked.")


def lines(report: Report) -> Iterator[str]:
    """Versions, plugins, findings, and a count of what is wrong."""
    yield from (*_facts(report), "", *_plugins(report))
    for finding in _joined(report.findings):
        yield from ("", *_finding(finding))
    errors = sum(finding.level == "error" for finding in report.findings)
    notes = len(report.findings) - errors
    noted = f" {notes} note{'s' * (notes != 1)}." if notes else ""
    yield from ("", f"{errors or 'No'} problem{'s' * (errors != 1)} found.{noted}")


def _facts(report: Report) -> Iterator[str]:
    from lpkit import __version__

    versions, engine = report.versions, report.inventory.engine
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
    judged = report.situation
    yield f"Judged       {judged.label}, {judged.runner.upper()} runner: {judged.choice.reason}"


def _platform(cuda: str | None) -> str:
    if cuda is None:
        return "CPUs"
    return f"ROCm {cuda[5:]}" if cuda.startswith("rocm ") else f"CUDA {cuda}"


def _plugins(report: Report) -> Iterator[str]:
    rows = []
    for plugin, passed, said in report.verdicts():
        origin = "passed" if passed else one_line(f"{plugin.distribution} {plugin.version}")
        rows.append((said, one_line(plugin.name), one_line(plugin.target) if not passed else "", origin))
    if not rows:
        yield "No logits processor is installed here. Start one with: lpkit new my-proc"
        return
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for said, *cells in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        yield f"{said.ljust(widths[0])}  {'  '.join(padded)}".rstrip()


def _joined(findings: Sequence[Finding]) -> list[Finding]:
    """What is said of several plugins in the same words is said once."""
    groups: dict[Finding, list[str]] = {}
    for finding in findings:
        groups.setdefault(replace(finding, plugin=""), []).append(finding.plugin)
    return [replace(finding, plugin=", ".join(filter(None, plugins))) for finding, plugins in groups.items()]


def _finding(finding: Finding) -> Iterator[str]:
    about = f"{one_line(finding.plugin)}: " if finding.plugin else ""
    yield f"{finding.level}  {about}{one_line(finding.problem)}  [{finding.code}]"
    if finding.evidence:
        yield f"  why     {one_line(finding.evidence)}"
    if finding.remedy:
        yield f"  remedy  {one_line(finding.remedy)}"
