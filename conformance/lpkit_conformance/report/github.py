"""GitHub Actions: the plain text, annotations on the lines at fault, and a job summary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lpkit_conformance.report import text
from lpkit_conformance.report.excerpt import shown, split
from lpkit_conformance.report.terminal import one_line
from lpkit_conformance.results import CheckResult, Report, TargetResult, check_page


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Print the report and its annotations; append the summary to the job summary, if the job has one."""
    text.write(report, file, verbose)
    file.writelines(f"{line}\n" for line in annotation_lines(report))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as job:
            job.write(job_summary(report))


def annotation_lines(report: Report) -> Iterator[str]:
    """Return workflow commands, one line per check that needs attention."""
    for target in report.targets:
        for check in _annotated(target):
            yield _annotation(target.target, check)
        if target.error:
            yield f"::error title=lpkit::{_data(f'{target.target}: {target.error}')}"


def _annotated(target: TargetResult) -> list[CheckResult]:
    return [check for check in target.checks if check.status in text.SHOWN and check.status != "expected"]


def _annotation(target: str, check: CheckResult) -> str:
    kind = "notice" if check.status == "advice" else "error"
    file, line = split(check.finding.location) if check.finding else ("", 0)
    location = f"file={_property(shown(file))},line={line or 1}," if file else ""
    fix = f"\nfix: {check.finding.fix}" if check.finding and check.finding.fix else ""
    message = _data(f"{target}: {check.message}{fix}\n{check_page(check.code)}")
    return f"::{kind} {location}title={_property(f'{check.label} {check.name}')}::{message}"


def job_summary(report: Report) -> str:
    """Markdown for ``$GITHUB_STEP_SUMMARY``."""
    lines = ["## lpkit check", ""]
    for target in report.targets:
        counts = [f"- {line.strip()}" for line in text.summary(target)]
        lines += [f"### {target.target}: {target.verdict}", "", *counts, ""]
        rows = [
            (f"[{check.label}]({check_page(check.code)})", text.rule_of(check.code), one_line(check.message))
            for check in _annotated(target)
        ]
        if rows:
            lines += ["| check | rule | finding |", "|---|---|---|"]
            lines += [f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in rows]
            lines.append("")
    return "\n".join(lines)


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
