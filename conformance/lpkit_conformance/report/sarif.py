"""SARIF 2.1.0, for code scanning: findings on the lines of the source, rules with their documentation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from lpkit import __version__

from lpkit_conformance.report.excerpt import shown, split
from lpkit_conformance.report.terminal import one_line
from lpkit_conformance.report.text import SHOWN, rule_of
from lpkit_conformance.results import DOCUMENTATION, CheckResult, Report, TargetResult, check_page

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write one run with a result per check that needs attention; ``verbose`` has no effect."""
    results = [(target, check) for target in report.targets for check in target.checks if check.status in SHOWN]
    rules = sorted({(check.code, check.name) for _, check in results})
    numbers = {code: number for number, (code, _) in enumerate(rules)}
    driver = {
        "name": "lpkit",
        "version": __version__,
        "informationUri": DOCUMENTATION,
        "rules": [_rule(code, name) for code, name in rules],
    }
    # A target that could not be judged has no results, and must not look like success.
    errors = [f"{one_line(target.target)}: {one_line(target.error)}" for target in report.targets if target.error]
    notes = [{"level": "error", "message": {"text": error}} for error in errors]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"uri": f"{Path.cwd().as_uri()}/"}},
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": [_result(target, check, numbers[check.code]) for target, check in results],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    file.write(json.dumps(document, indent=2) + "\n")


def _rule(code: str, name: str) -> dict[str, Any]:
    title = rule_of(code)
    return {
        "id": code,
        "name": "".join(word.title() for word in name.split("-")),
        "shortDescription": {"text": f"{title}."},
        "helpUri": check_page(code),
        "help": {"text": f"{title}. lpkit explain {code} tells why, and how to fix it."},
    }


def _result(target: TargetResult, check: CheckResult, number: int) -> dict[str, Any]:
    finding = check.finding
    identity = f"{target.target} {check.label} {finding.summary if finding else ''}"
    expected = [{"kind": "external", "justification": one_line(check.message)}] if check.status == "expected" else []
    return {
        "ruleId": check.code,
        "ruleIndex": number,
        "level": "note" if check.status == "advice" else "error",
        "message": {"text": "\n".join(_message(target, check))},
        "locations": [_location(finding.location if finding else "", target.target)],
        "partialFingerprints": {"lpkit/v1": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:32]},
        "properties": {"target": target.target, "host": check.host, "status": check.status},
        **({"suppressions": expected} if expected else {}),
    }


def _message(target: TargetResult, check: CheckResult) -> Iterator[str]:
    yield f"{one_line(target.target)}: {one_line(check.message)}"
    if check.finding is None:
        return
    for label, text in (("Cause", check.finding.cause), ("Fix", check.finding.fix)):
        if text:
            yield f"{label}: {one_line(text)}"
    if check.finding.replayable:
        yield f"Replay: lpkit replay {check.finding.replayable}"


def _location(location: str, target: str) -> dict[str, Any]:
    """Return the line at fault; without a line, the project as a whole, as code scanning requires a file."""
    file, line = split(location)
    path = shown(file or "pyproject.toml")
    inside = {"uri": quote(path), "uriBaseId": "ROOT"}
    artifact = {"uri": Path(path).as_uri()} if Path(path).is_absolute() else inside
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line or 1}},
        "logicalLocations": [{"fullyQualifiedName": one_line(target), "kind": "type"}],
    }
