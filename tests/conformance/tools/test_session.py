"""The recorded terminal session says what the commands say today, and nothing of the machine it was made on."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import session
from lpkit_conformance.report.text import rule_of

ROOT = Path(__file__).resolve().parents[3]


def said() -> list[str]:
    lines: dict[str, str] = {}
    for item in ET.parse(ROOT / session.PAGE).iter("{http://www.w3.org/2000/svg}text"):
        lines[item.attrib["y"]] = lines.get(item.attrib["y"], "") + (item.text or "")
    return [line.replace("\xa0", " ").rstrip() for line in lines.values()]


def test_the_session_shows_a_pass_a_failure_and_its_repair() -> None:
    lines = said()
    verdicts = [line.split()[0] for line in lines if line.split() and line.split()[0] in ("PASS", "FAIL", "FIXED")]
    assert verdicts == ["PASS", "FAIL", "FAIL", "FIXED"]
    rule = rule_of("LP201")
    assert rule
    assert f"    rule        {rule}" in lines


def test_the_edited_lines_are_the_templates() -> None:
    text = (ROOT / "template" / "templates" / "processor" / "processor.py").read_text(encoding="utf-8")
    assert text.count(session.RIGHT) == text.count(session.READ_RIGHT) == 1


def test_nothing_is_loaded_from_elsewhere_and_no_path_of_a_machine_is_shown() -> None:
    text = (ROOT / session.PAGE).read_text(encoding="utf-8")
    assert "url(http" not in text
    assert not [line for line in said() if re.search(r"(^|\s)/\w+/", line)]


def test_numbers_of_the_machine_are_taken_out() -> None:
    printed = "torch 2.13.0+cpu, python 3.11.7\n/tmp/x/my-proc/src/a.py:3 in 1.23 s\n"
    assert list(session.shortened(printed, Path("/tmp/x"))) == ["torch ..., python ...", "src/a.py:3 in 0.0 s"]
