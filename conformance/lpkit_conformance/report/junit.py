"""JUnit XML, for CI systems that read it."""

from __future__ import annotations

from typing import IO
from xml.etree import ElementTree as ET

from lpkit_conformance.documentation import check_page
from lpkit_conformance.report.text import finding_lines
from lpkit_conformance.report.xml_text import xml_text
from lpkit_conformance.results import BAD, CheckResult, Report


def write(report: Report, file: IO[str], verbose: bool = False) -> None:
    """One test suite per target, one test case per check and host, whatever ``verbose`` says."""
    root = ET.Element("testsuites")
    for target in report.targets:
        suite = ET.SubElement(
            root,
            "testsuite",
            name=target.target,
            tests=str(len(target.checks) + bool(target.error)),
            failures=str(target.count("failed", "unexpected_pass")),
            errors=str(target.count("error") + bool(target.error)),
            skipped=str(target.count("skipped", "blocked", "expected")),
            time=f"{sum(check.seconds for check in target.checks):.3f}",
        )
        for check in target.checks:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=target.target,
                name=f"{check.label} {check.name}",
                time=f"{check.seconds:.3f}",
            )
            _properties(case, check)
            body = "\n".join(finding_lines(check.finding)) if check.finding else ""
            if check.status in BAD:
                ET.SubElement(case, "failure", message=xml_text(check.message)).text = xml_text(body)
            elif check.status == "error":
                ET.SubElement(case, "error", message=xml_text(check.message)).text = xml_text(body)
            elif check.status in ("skipped", "blocked", "expected"):
                ET.SubElement(case, "skipped", message=xml_text(f"{check.status}: {check.message}"))
            elif check.status == "advice":
                ET.SubElement(case, "system-out").text = xml_text(f"advice: {check.message}\n{body}")
        if target.error:
            case = ET.SubElement(suite, "testcase", classname=target.target, name="run")
            ET.SubElement(case, "error", message=xml_text(target.error))
    ET.indent(root)
    # Written as UTF-8; ElementTree would declare the locale's encoding.
    file.write(f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n')


def _properties(case: ET.Element, check: CheckResult) -> None:
    """What a CI system may group and link by."""
    finding = check.finding
    values = {
        "status": check.status,
        "host": check.host,
        "documentation": check_page(check.code) if finding else "",
        "line": finding.location if finding else "",
        "replay": finding.saved if finding else "",
    }
    properties = ET.SubElement(case, "properties")
    for name, value in values.items():
        if value:
            ET.SubElement(properties, "property", name=name, value=xml_text(value))
