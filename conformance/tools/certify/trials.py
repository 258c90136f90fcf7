"""Trials of a release: each reference plugin, and the engine tests."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from commands import variables

from certify.environment import ROOT, Environment

TESTS_SECONDS = 90 * 60

Outcome = dict[str, Any]
"""For a plugin: ``verdict``, ``runners`` (how many checks passed and ran on each), ``problems``. For the tests:
``passed``, ``skipped``, ``failed`` (how many of each file, by reason), ``problems``."""

CAUSE = re.compile(r".*\b(\w+(?:Error|Expired|Exception)(?:: |$)|Value error, )(.*)")
"""A line that names an exception, with the text of the innermost exception. The last alternative is pydantic's."""

VARIES = re.compile(r" \[type=.*| at 0x[0-9a-f]+")
"""Parts of messages that differ between tests that fail for the same reason."""

TRACEBACK = "Traceback (most recent call last)"

MOST = 160
"""Characters of a reason."""


def try_plugin(environment: Environment, folder: Path) -> Outcome:
    """`lpkit check --engine vllm` of one plugin, with the cases of its own project."""
    command = [str(environment.python.with_name("lpkit")), "check", "--engine", "vllm", "--json", "-"]
    done = subprocess.run(command, cwd=folder, env=variables(), capture_output=True, text=True, check=False)
    try:
        (target,) = json.loads(done.stdout)["targets"]
    except (ValueError, KeyError):
        return {"verdict": "error", "runners": {}, "problems": [(done.stderr or done.stdout).strip()[-300:]]}
    runners: dict[str, list[int]] = {}
    problems = [target["error"]] if target["error"] else []
    for check in target["checks"]:
        if check["status"] in ("passed", "failed", "error", "blocked"):
            count = runners.setdefault(check["host"], [0, 0])
            count[0] += check["status"] == "passed"
            count[1] += 1
        if check["status"] in ("failed", "error"):
            problems.append(f"{check['code']}[{check['host']}]: {check['message']}")
    return {"verdict": target["verdict"], "runners": runners, "problems": problems}


def try_tests(environment: Environment) -> Outcome:
    """The engine tests of this repository, which skip what the release does not have yet."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-n", "2", "--dist", "loadfile", f"--junitxml={report}", "-p", "no:cacheprovider"]
        command = [str(environment.python), "-m", "pytest", "tests/engine", *options]
        try:
            subprocess.run(command, cwd=ROOT, env=variables(), capture_output=True, check=False, timeout=TESTS_SECONDS)
        except subprocess.TimeoutExpired:
            return _stopped(f"did not end within {TESTS_SECONDS // 60} minutes")
        return tests_of(report.read_text()) if report.exists() else _stopped("no report")


def _stopped(problem: str) -> Outcome:
    return {"passed": 0, "skipped": 0, "failed": {}, "problems": [problem]}


def tests_of(junit: str) -> Outcome:
    """Summarize a JUnit file: number of tests passed and skipped, and the failures of each file by reason."""
    passed = skipped = 0
    failed: dict[str, dict[str, int]] = {}
    for case in ElementTree.fromstring(junit).iter("testcase"):
        problem = next((element for kind in ("failure", "error") if (element := case.find(kind)) is not None), None)
        if problem is not None:
            file = case.get("classname", "").rpartition("engine.")[2].partition(".")[0]
            files = failed.setdefault(reason(problem.get("message", "")), {})
            files[file] = files.get(file, 0) + 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "skipped": skipped, "failed": failed, "problems": []}


def reason(message: str) -> str:
    """Why a test failed: the last exception that its message names, or else the message's first line."""
    lines = [line for line in message.strip().splitlines() if TRACEBACK not in line] or ["it does not say why"]
    causes = [match for line in lines if (match := CAUSE.match(line))]
    said = causes[-1][1].replace("Value error, ", "") + causes[-1][2] if causes else lines[0]
    return VARIES.sub("", said).replace("`", "'")[:MOST].rstrip('" ')
