"""JUnit XML, for CI systems that read it."""

from __future__ import annotations

from typing import IO
from xml.etree import ElementTree as ET

from lpkit_conformance.report.markup import text_of, xml_text
from lpkit_conformance.report.text import finding_lines
from lpkit_conformance.results import CheckResult, Report, Status

TAGS: dict[Status, str] = {
    "failed": "failure",
    "unexpected_pass": "failure",
    "error": "error",
    "skipped": "skipped",
    "blocked": "skipped",
    "expected": "skipped",
}


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write one test suite per target, one test case per check and host; ``verbose`` has no effect."""
    root = ET.Element("testsuites")
    for target in report.targets:
        suite = ET.SubElement(root, "testsuite", name=target.target)
        for check in target.checks:
            _case(suite, target.target, check)
        if target.error:
            case = ET.SubElement(suite, "testcase", classname=target.target, name="run")
            ET.SubElement(case, "error", message=xml_text(target.error))
        counts = {"tests": "testcase", "failures": "*/failure", "errors": "*/error", "skipped": "*/skipped"}
        suite.attrib |= {name: str(len(suite.findall(tag))) for name, tag in counts.items()}
        suite.set("time", f"{sum(check.seconds for check in target.checks):.3f}")
    ET.indent(root)
    # Written as UTF-8; ElementTree would declare the locale's encoding.
    file.write(f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n')


def _case(suite: ET.Element, target: str, check: CheckResult) -> None:
    name = f"{check.label} {check.name}"
    case = ET.SubElement(suite, "testcase", classname=target, name=name, time=f"{check.seconds:.3f}")
    body = "\n".join(finding_lines(check.finding)) if check.finding else ""
    if check.status == "advice":
        text_of(case, "system-out", f"advice: {check.message}\n{body}")
    elif check.status in TAGS:
        tag = TAGS[check.status]
        message = f"{check.status}: {check.message}" if tag == "skipped" else check.message
        text_of(case, tag, body).set("message", xml_text(message))
