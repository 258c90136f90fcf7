"""``lpkit check``: what programs read of it, in one run over targets of every kind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from command import FIXTURES, lpkit
from golden import hold
from shape import report

TARGETS = (
    "plugins:ForgetsToReplace",
    "plugins.py:KeepsSlots",
    "plugins.py:Silent",
    "exits_at_import.py:Plugin",
    "nobody-installed-this",
)
OPTIONS = ("--case", '{"extra_args": {"bias": 2.5}}', "--select", "LP202")


def test_the_reports_the_exit_code_and_the_saved_failures(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES, tmp_path / "work"))
    reports = ("--json", "out.json", "--junit-xml", "out.xml", "--format", "github")
    done = lpkit("check", *TARGETS, *OPTIONS, *reports, cwd=folder)
    hold(
        "check",
        {
            "exit code": done.returncode,
            "stderr": done.stderr,
            "json": report(json.loads((folder / "out.json").read_text(encoding="utf-8"))),
            "junit": [suite(item) for item in ET.parse(folder / "out.xml").getroot()],
            "github": [annotation(line) for line in done.stdout.splitlines() if line.startswith("::")],
            "saved": {file.name: keys_of(file) for file in sorted((folder / ".lpkit" / "failures").iterdir())},
        },
    )


def suite(item: ET.Element) -> dict[str, Any]:
    """Attributes of a suite, and its cases that did not pass; seconds and prose left out."""
    assert {case.get("classname") for case in item} == {item.get("name")}
    assert {child.tag for case in item for child in case if not child.get("message")} == set()
    cases = sorted(" ".join((str(case.get("name")), *(child.tag for child in case))) for case in item if len(case))
    return {**item.attrib, "time": "<number>", "cases": cases}


def annotation(line: str) -> str:
    """``::error file=plugins.py,line=57,title=LP202[v1] replace-on-add::prose``"""
    return re.sub(r"line=\d+", "line=<line>", re.sub(r"(?<=[^:])::.*", "::<text>", line))


def keys_of(file: Path) -> str:
    return " ".join(sorted({*json.loads(file.read_text(encoding="utf-8"))} - {"manner"}))
