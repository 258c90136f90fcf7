"""A self-contained page for a browser: works without a network, prints, in light and dark.

``page.html`` is its template; this module provides the results in the wording and order of the text report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.resources import files
from math import isfinite
from typing import IO, Any

from lpkit_conformance.checks.catalogue import FAMILIES
from lpkit_conformance.report import drawing, text
from lpkit_conformance.report.excerpt import excerpt, shown, split
from lpkit_conformance.report.markup import Markup, embedded, escaped, fill, in_page
from lpkit_conformance.results import (
    CheckResult,
    Finding,
    GroupedResult,
    Report,
    Status,
    TargetResult,
    check_page,
    label_of,
)

Values = dict[str, Any]
"""Values of a template, by name."""

COUNTED: tuple[Status, ...] = (*text.SHOWN, "passed", *text.SILENT)
"""Statuses in the order of the counts."""

WIDTH = 150.0
"""Width of the drawing of a token's logits."""


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write the whole page; ``verbose`` has no effect."""
    several = len(report.targets) > 1
    targets = [_target(target, f"t{n}-" if several else "") for n, target in enumerate(report.targets)]
    page = {**assets(), "verdict": report.verdict, "said": report.verdict.upper()}
    file.write(fill(part("page.html"), {**page, "several": several, "targets": targets}))


def part(name: str) -> str:
    """Return a file of this folder: a template, a sheet or a script."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def assets() -> Values:
    """Return the sheets and the script of a page with tokens to choose."""
    sheets = Markup("".join(map(part, ("html.css", "drawing.css", "show.css"))))
    return {"style": sheets, "script": Markup(part("show.js"))}


def _target(target: TargetResult, prefix: str) -> Values:
    entries = [entry for status in text.SHOWN for entry in target.together(status)]
    anchors = {
        label_of(entry.check.code, host): f"{prefix}{entry.check.code}-{entry.check.host}".strip("-")
        for entry in entries
        for host in entry.hosts or ("",)
    }
    interface = target.interface.replace("v", "V") + " interface" if target.interface else ""
    facts = (interface, target.judged_with, *(line.strip() for line in text.settings_lines(target)))
    families = (
        (title, [_check(check, anchors) for check in target.checks if check.code.startswith(family)])
        for family, title in FAMILIES.items()
    )
    counts = (
        {"status": status, "count": target.count(status), "word": text.WORDS[status].counted} for status in COUNTED
    )
    return {
        "id": f"{prefix}top",
        "target": target.target,
        "verdict": target.verdict,
        "said": target.said,
        "facts": " · ".join(filter(None, facts)),
        "error": target.error,
        "notes": list(target.notes),
        "checks": bool(target.checks),
        "counts": [item for item in counts if item["count"]],
        "families": [{"title": title, "squares": checks, "rows": checks} for title, checks in families if checks],
        "findings": [article(entry, anchors[entry.check.label]) for entry in entries],
    }


def _check(check: CheckResult, anchors: Mapping[str, str]) -> Values:
    return {
        "code": check.code,
        "name": check.name,
        "label": check.label,
        "page": check_page(check.code),
        "status": check.status,
        "word": text.WORDS[check.status].counted,
        "anchor": anchors.get(check.label),
        "host": check.host.upper(),
        "seconds": f"{check.seconds:.2f}",
        "note": "" if check.status in text.SHOWN else check.message,
    }


def article(entry: GroupedResult, anchor: str = "", opened: bool = False) -> Markup:
    """Return a finding as part of a page, under the first sentence of its cause; ``opened``: tokens are unfolded."""
    check, finding = entry.check, entry.check.finding
    cause = finding.cause if finding else ""
    heading, rest = ("", cause) if finding and finding.exception else _first(cause)
    values = {
        "open": opened,
        **_check(check, {}),
        "anchor": anchor,
        "hosts": [host.upper() for host in entry.hosts],
        "heading": _prose(heading or check.message),
        "message": _prose(check.message) if heading else "",
        "rule": _prose(text.rule_of(check.code)),
        "evidence": _evidence(replace(finding, cause=rest), check) if finding else None,
    }
    return fill(part("finding.html"), values)


def _first(cause: str) -> tuple[str, str]:
    """Return the first sentence of a cause, and the others; a value in backticks stays whole."""
    first, _, rest = cause.partition("; ")
    return (cause, "") if first.count("`") % 2 else (first, rest)


def _evidence(finding: Finding, check: CheckResult) -> Values:
    timeline = finding.timeline or {}
    logits = _logits(finding.logits) if finding.logits and finding.logits["tokens"] else None
    batch = None
    if timeline.get("steps"):
        title = f"The batch, {timeline['unit']}s by steps: {check.message}"
        batch = in_page(drawing.drawing(timeline, title))
    facts = {**finding.where} if logits else {**finding.where, "expected": finding.expected, "got": finding.got}
    pairs = [{"key": key, "value": value} for key, value in facts.items() if value]
    users = [{"names": ", ".join(names), "sent": sent} for sent, names in text.users_by_arguments(timeline).items()]
    return {
        "cause": _prose(finding.cause),
        "fix": _prose(finding.fix),
        "written": {"lines": list(finding.written)} if finding.written else None,
        "source": _source(finding.location) if finding.location else None,
        "pictures": {"batch": batch, "logits": logits} if batch or logits else None,
        "shown": _shown(finding) if finding.steps else None,
        "arguments": {"users": users} if users else None,
        "where": {"pairs": pairs} if pairs else None,
        "operations": {"lines": list(finding.operations)} if finding.operations else None,
        "replay": text.quoted(finding.replayable) if finding.replayable else "",
    }


def _shown(finding: Finding) -> Values:
    """Return the tokens of the request whose row differs, up to the token of the differing row."""
    tokens = [
        {"kind": "hue1", "shade": f"{step.stages[-1].moved ** 0.5:.2f}", "title": step.batch, "text": step.token}
        for step in finding.steps
    ]
    tokens[-1]["kind"] += " apart"
    return {"tokens": tokens, "data": embedded({"names": [], "prompt": [], "steps": list(map(asdict, finding.steps))})}


def _prose(said: str) -> Markup:
    """Return the text with parts in backticks as code."""
    parts = enumerate(escaped(said).split("`"))
    return Markup("".join(f"<code>{part}</code>" if number % 2 and part else part for number, part in parts))


def _source(location: str) -> Values:
    file, line = split(location)
    lines = [line._asdict() for line in excerpt(location)]
    return {"file": f"{shown(file)}:{line}" if line else shown(file), "excerpt": {"lines": lines} if lines else None}


def _logits(logits: Mapping[str, Any]) -> Values:
    """Draw the logits alone and in the batch, a line per token, on a common scale."""
    tokens = logits["tokens"]
    keys = ("model", "alone", "batch")
    finite = [value for item in tokens for key in keys if isfinite(value := float(item[key]))]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)

    def at(value: float) -> str:
        if not isfinite(value):
            return "6" if value < 0 else f"{WIDTH - 6:g}"
        return f"{18 + (WIDTH - 36) * ((value - low) / (high - low) if high > low else 0.5):g}"

    caption = f"Logits of {len(tokens)} of the {logits['differ']} tokens that differ (of {logits['of']})"
    if len(tokens) == logits["differ"]:
        differ = "token that differs" if len(tokens) == 1 else "tokens that differ"
        caption = f"Logits of the {differ} (of {logits['of']})"
    rows = [
        {
            "token": item["token"],
            **{key: _number(item[key]) for key in keys},
            **{f"{key}_at": at(float(item[key])) for key in keys},
        }
        for item in tokens
    ]
    return {"caption": caption, "width": f"{WIDTH:g}", "tokens": rows}


def _number(value: str) -> str:
    return value.replace("-inf", "\u2212\u221e").replace("inf", "\u221e").replace("-", "\u2212")
