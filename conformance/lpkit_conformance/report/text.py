"""Plain text, for terminals and pipes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from lpkit_conformance.checks.base import Rule
from lpkit_conformance.checks.catalogue import by_code
from lpkit_conformance.report.excerpt import excerpt
from lpkit_conformance.report.terminal import one_line, show_coloured
from lpkit_conformance.results import IN_PYTHON, NEEDS, CheckResult, Finding, Report, Status, TargetResult
from lpkit_conformance.settings.hosts import in_words


class StatusWords(NamedTuple):
    """Names of a status: before a check, and behind a count."""

    mark: str
    counted: str


WORDS: dict[Status, StatusWords] = {
    "passed": StatusWords("ok", "passed"),
    "failed": StatusWords("FAIL", "failed"),
    "unexpected_pass": StatusWords("UNEXPECTED PASS", "passed unexpectedly"),
    "expected": StatusWords("expected", "failed as expected"),
    "advice": StatusWords("advice", "with advice"),
    "error": StatusWords("ERROR", "in error"),
    "skipped": StatusWords("skipped", "skipped"),
    "blocked": StatusWords("blocked", "blocked"),
}
SILENT: tuple[Status, ...] = ("skipped", "blocked")
"""Statuses of checks that did not run."""
SHOWN: tuple[Status, ...] = ("failed", "unexpected_pass", "error", "expected", "advice")
"""Statuses that need attention, the most urgent first."""

MOST_LABELS = 6
MOST_ARGUMENTS = 4


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Print the whole report."""
    file.writelines(f"{line}\n" for line in lines(report, verbose))


def write_coloured(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Print the whole report, in colours as far as ``file`` can."""
    show_coloured(lines(report, verbose), file)


def lines(report: Report, verbose: bool = False) -> Iterator[str]:
    """The whole report; ``verbose`` lists every check with its time."""
    for target in report.targets:
        yield from target_lines(target, verbose)


def target_lines(target: TargetResult, verbose: bool = False) -> Iterator[str]:
    """Return the lines of one target: a headline, checks that need attention, a summary."""
    yield headline(target)
    yield from settings_lines(target)
    if verbose:
        yield from every_check(target)
    for status in SHOWN:
        for entry in target.together(status):
            yield ""
            yield from check_lines(entry.check, entry.label)
    yield ""
    yield from summary(target)


def every_check(target: TargetResult) -> Iterator[str]:
    """A line per check, then the time of each family."""
    seconds: dict[str, float] = {}
    for check in target.checks:
        note = f"  {one_line(check.message)}" if check.message and check.status not in SHOWN else ""
        yield f"  {WORDS[check.status].mark:8} {check.label:10} {check.name:24} {check.seconds:7.2f} s{note}"
        seconds[check.code[:3]] = seconds.get(check.code[:3], 0.0) + check.seconds
    yield f"  seconds: {', '.join(f'{family} {spent:.2f}' for family, spent in seconds.items())}"


def headline(target: TargetResult) -> str:
    interface = f" ({target.interface.replace('v', 'V')} interface)" if target.interface else ""
    judged_with = f", against {target.judged_with}" if target.judged_with else ""
    return f"{target.target}{interface}{judged_with}"


def settings_lines(target: TargetResult) -> Iterator[str]:
    """Settings that reproduce the report."""
    if not target.settings:
        return
    given = target.settings
    versions = ", ".join(f"{name} {number}" for name, number in given["versions"].items() if number)
    yield f"  seed {given['seed']}; {versions}"
    for case in given["cases"]:
        if case:
            yield f"  case {one_line(json.dumps(case))}"
    for name in ("select", "ignore"):
        if given[name]:
            yield f"  {name} {', '.join(given[name])}"


def check_lines(check: CheckResult, label: str = "") -> Iterator[str]:
    """Return the lines of a check that needs attention, with its evidence; ``label`` names it with all its hosts."""
    yield f"{WORDS[check.status].mark} {label or check.label} {check.name}: {one_line(check.message)}"
    if check.status == "expected":
        return
    rule = rule_of(check.code)
    if rule:
        yield f"    rule        {rule}"
    if check.finding is not None:
        yield from finding_lines(check.finding)
    yield f"    more        lpkit explain {check.code}"


def finding_lines(finding: Finding) -> Iterator[str]:
    where = ", ".join(f"{key} {value}" for key, value in finding.where.items())
    shown = {
        "where": (where,),
        "expected": (finding.expected,),
        "got": (finding.got,),
        "operations": finding.operations,
        "arguments": tuple(arguments_of(finding)),
        "batch": finding.picture,
        "cause": (finding.cause,),
        "written": finding.written,
        "fix": (finding.fix,),
        "line": (finding.location, *source_lines(finding.location)),
        "replay": (f"lpkit replay {quoted(finding.replayable)}" if finding.replayable else "",),
    }
    for label, texts in shown.items():
        for number, line in enumerate(texts):
            if line:
                text = line.rstrip() if label == "batch" or (label == "line" and number) else one_line(line)
                yield f"    {'' if number else label:11} {text}"


def arguments_of(finding: Finding) -> Iterator[str]:
    """Return ``a, b: {...}``: the arguments of requests that use the plugin, one line for equal arguments."""
    users = users_by_arguments(finding.timeline or {})
    for arguments, names in list(users.items())[:MOST_ARGUMENTS]:
        shown = names if len(names) <= MOST_ARGUMENTS else [*names[:MOST_ARGUMENTS], "..."]
        yield f"{', '.join(shown)}: {arguments}"
    if len(users) > MOST_ARGUMENTS:
        yield f"and {len(users) - MOST_ARGUMENTS} more"


def users_by_arguments(timeline: Mapping[str, Any]) -> dict[str, list[str]]:
    """The requests of a batch that use the plugin, by what they were sent with."""
    users: dict[str, list[str]] = {}
    for request in timeline.get("requests", ()):
        if request["plugin"]:
            users.setdefault(request["arguments"], []).append(request["id"])
    return users


def source_lines(location: str) -> Iterator[str]:
    """Return the lines around ``file:line``, with that line marked."""
    margin = ""
    for number, text, kind in excerpt(location):
        margin = " " * len(margin) if kind == "caret" else f"{'>' if kind == 'at' else ' '} {number} | "
        yield printable(f"{margin}{text}")


def printable(text: str) -> str:
    """``text`` as it is, without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def quoted(path: str) -> str:
    """``path`` as it can be pasted into a shell."""
    return f'"{path}"' if re.search(r"[^\w./\\:-]", path) else path


def rule_of(code: str) -> str:
    """The title of a check."""
    return by_code()[code].title() if code in by_code() else ""


def summary(target: TargetResult) -> Iterator[str]:
    """Count the checks that ran, and explain why the others did not."""
    ran = len(target.checks) - target.count(*SILENT)
    counts = (f"{target.count(status)} {words.counted}" for status, words in WORDS.items() if status not in SILENT)
    counted = ", ".join(count for count in counts if not count.startswith("0 ")) or "none"
    hosts = f" on {in_words(target.hosts)}" if target.hosts else ""
    ignored = f"; ignored: {', '.join(target.settings['ignore'])}" if target.settings.get("ignore") else ""
    yield f"{ran} of {len(target.checks)} checks ran{hosts}: {counted}{ignored}"
    for status in SILENT:
        reasons: dict[str, list[str]] = {}
        for check in target.checks:
            if check.status == status:
                reasons.setdefault(check.message, []).append(check.label)
        for reason, labels in reasons.items():
            more = [f"and {len(labels) - MOST_LABELS} more"] * (len(labels) > MOST_LABELS)
            roots = reason.removeprefix(NEEDS).split(", ")
            runs = more and reason.startswith(NEEDS) and not set(Rule.requires) & {*roots}
            how = f" (run them: {' '.join(f'--ignore {root}' for root in roots)})" if runs else ""
            yield f"  {status} ({one_line(reason)}): {', '.join([*labels[:MOST_LABELS], *more])}{how}"
    said = (check.message.partition(IN_PYTHON) for check in target.checks)
    for note in (*target.notes, *dict.fromkeys(IN_PYTHON + reason for _, begun, reason in said if begun)):
        yield f"  note: {one_line(note)}"
    if target.error:
        yield f"  could not judge: {one_line(target.error)}"
    yield f"{target.said}  {target.target}"
