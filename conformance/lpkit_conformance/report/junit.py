"""JUnit XML, for CI systems that read it."""

from __future__ import annotations

from typing import IO
from xml.etree import ElementTree as ET

from lpkit_conformance.report.markup import xml_text
from lpkit_conformance.report.text import finding_lines
from lpkit_conformance.results import CheckResult, Report, Status

TAGS: dict[Status, str] = {
    "failed": "failure",
    "unexpected_pass": "failure",
    "error": "error",
    "skipped": "skipped",
    "blocked": "skipped",
    "expected": "skipped",
    "advice": "system-out",
}


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """Write one test suite per target, one test case per check and host; ``verbose`` has no effect."""
    root = ET.Element("testsuites")
    for target in report.targets:
        cases = [_case(target.target, check) for check in target.checks]
        if target.error:
            cases.append(ET.Element("testcase", classname=target.target, name="run"))
            ET.SubElement(cases[-1], "error", message=xml_text(target.error))
        counts = {f"{tag}s": sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error")}
        counts |= {"tests": len(cases), "skipped": sum(case.find("skipped") is not None for case in cases)}
        suite = ET.SubElement(root, "testsuite", {name: str(count) for name, count in counts.items()})
        suite.attrib |= {"name": target.target, "time": f"{sum(check.seconds for check in target.checks):.3f}"}
        suite.extend(cases)
    ET.indent(root)
    # Written as UTF-8; ElementTree would declare the locale's encoding.
    file.write(f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n')


def _case(target: str, check: CheckResult) -> ET.Element:
    name = f"{check.label} {check.name}"
    case = ET.Element("testcase", classname=target, name=name, time=f"{check.seconds:.3f}")
    if check.status in TAGS:
        said = check.message if TAGS[check.status] != "skipped" else f"{check.status}: {check.message}"
        body = "\n".join(finding_lines(check.finding)) if check.finding else ""
        if check.status == "advice":
            ET.SubElement(case, "system-out").text = xml_text(f"advice: {said}\n{body}")
        else:
            ET.SubElement(case, TAGS[check.status], message=xml_text(said)).text = xml_text(body)
    return case
