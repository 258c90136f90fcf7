"""GitHub Actions: the plain text, annotations on the lines at fault, and a job summary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lpkit_conformance.documentation import check_page
from lpkit_conformance.report import text
from lpkit_conformance.report.terminal import one_line
from lpkit_conformance.results import BAD, CheckResult, Report


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
        for check in target.checks:
            if check.status in BAD or check.status in ("advice", "error"):
                yield _annotation(target.target, check)
        if target.error:
            yield f"::error title=lpkit::{_data(f'{target.target}: {target.error}')}"


def _annotation(target: str, check: CheckResult) -> str:
    kind = "notice" if check.status == "advice" else "error"
    location = ""
    if check.finding and check.finding.location:
        file, _, line = check.finding.location.rpartition(":")
        path = Path(file)
        relative = path.relative_to(Path.cwd()) if path.is_absolute() and Path.cwd() in path.parents else path
        location = f"file={_property(relative.as_posix())},line={line},"
    message = f"{target}: {check.message}"
    if check.finding and check.finding.fix:
        message += f"\nfix: {check.finding.fix}"
    message += f"\n{check_page(check.code)}"
    return f"::{kind} {location}title={_property(f'{check.label} {check.name}')}::{_data(message)}"


def job_summary(report: Report) -> str:
    """Markdown for ``$GITHUB_STEP_SUMMARY``."""
    lines = ["## lpkit check", ""]
    for target in report.targets:
        lines += [
            f"### {target.target}: {target.verdict}",
            "",
            *[f"- {line.strip()}" for line in text.summary(target)],
            "",
        ]
        rows = [check for check in target.checks if check.status in BAD or check.status in ("advice", "error")]
        if rows:
            lines += ["| check | rule | finding |", "|---|---|---|"]
            for row in rows:
                cells = f"[{row.label}]({check_page(row.code)})", text.rule_of(row.code), one_line(row.message)
                lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
            lines.append("")
    return "\n".join(lines)


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
