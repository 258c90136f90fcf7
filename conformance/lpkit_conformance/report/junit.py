"""JUnit XML, for CI systems that read it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lpkit_conformance.report.text import finding_lines
from lpkit_conformance.results import BAD, Report


def to_junit(report: Report) -> str:
    """One test suite per target, one test case per check and host."""
    root = ET.Element("testsuites")
    for target in report.targets:
        suite = ET.SubElement(
            root,
            "testsuite",
            name=target.target,
            tests=str(len(target.checks)),
            failures=str(target.count("failed", "unexpected_pass")),
            errors=str(target.count("error")),
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
            body = "\n".join(finding_lines(check.finding)) if check.finding else ""
            if check.status in BAD:
                ET.SubElement(case, "failure", message=check.message).text = body
            elif check.status == "error":
                ET.SubElement(case, "error", message=check.message).text = body
            elif check.status in ("skipped", "blocked", "expected"):
                ET.SubElement(case, "skipped", message=f"{check.status}: {check.message}")
            elif check.status == "advice":
                ET.SubElement(case, "system-out").text = f"advice: {check.message}\n{body}"
        if target.error:
            case = ET.SubElement(suite, "testcase", classname=target.target, name="run")
            ET.SubElement(case, "error", message=target.error)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
