"""GitHub Actions: annotations on the lines at fault, and a job summary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lpkit_conformance.report.text import one_line, rule_of, summary
from lpkit_conformance.results import BAD, CheckResult, Report


def to_github(report: Report) -> str:
    """Workflow commands, one line per check that needs attention."""
    return "\n".join(_annotations(report))


def _annotations(report: Report) -> Iterator[str]:
    for target in report.targets:
        for check in target.checks:
            if check.status in BAD or check.status in ("advice", "error"):
                yield _annotation(target.target, check)
        if target.error:
            yield f"::error title=lpkit::{_data(f'{target.target}: {target.error}')}"


def _annotation(target: str, check: CheckResult) -> str:
    kind = "notice" if check.status == "advice" else "error"
    place = ""
    if check.finding and check.finding.place:
        file, _, line = check.finding.place.rpartition(":")
        path = Path(file)
        relative = path.relative_to(Path.cwd()) if path.is_absolute() and Path.cwd() in path.parents else path
        place = f"file={_property(relative.as_posix())},line={line},"
    text = f"{target}: {check.message}"
    if check.finding and check.finding.fix:
        text += f"\nfix: {check.finding.fix}"
    return f"::{kind} {place}title={_property(f'{check.label} {check.name}')}::{_data(text)}"


def job_summary(report: Report) -> str:
    """Markdown for ``$GITHUB_STEP_SUMMARY``."""
    lines = ["## lpkit check", ""]
    for target in report.targets:
        lines += [f"### {target.target}: {target.verdict}", "", *[f"- {line.strip()}" for line in summary(target)], ""]
        rows = [check for check in target.checks if check.status in BAD or check.status in ("advice", "error")]
        if rows:
            lines += ["| check | rule | finding |", "|---|---|---|"]
            lines += [
                f"| {row.label} | {rule_of(row.code)} | {one_line(row.message).replace('|', '/')} |" for row in rows
            ]
            lines.append("")
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
