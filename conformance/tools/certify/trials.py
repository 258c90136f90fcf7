"""What is tried on a release: each reference plugin, and the engine tests."""

from __future__ import annotations

import json
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from commands import variables

from certify.environment import ROOT, Environment

TESTS_SECONDS = 90 * 60

Outcome = dict[str, Any]
"""Of a plugin: ``verdict``, ``runners`` (how many checks passed and ran on each), ``problems``. Of the tests:
``passed``, and ``failed`` by file."""


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
    """The engine tests of this repository; without those of V2 where it runs no custom processors."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-n", "2", "--dist", "loadfile", f"--junitxml={report}", "-p", "no:cacheprovider"]
        if not environment.has_v2:
            options += ["-k", "not v2"]
        command = [str(environment.python), "-m", "pytest", "tests/engine", *options]
        try:
            subprocess.run(command, cwd=ROOT, env=variables(), capture_output=True, check=False, timeout=TESTS_SECONDS)
        except subprocess.TimeoutExpired:
            return {"passed": 0, "failed": {}, "problems": [f"did not end within {TESTS_SECONDS // 60} minutes"]}
        return (
            tests_of(report.read_text()) if report.exists() else {"passed": 0, "failed": {}, "problems": ["no report"]}
        )


def tests_of(junit: str) -> Outcome:
    """What a JUnit file says: how many tests passed, and how many of each file failed."""
    passed, failed = 0, dict[str, int]()
    for case in ElementTree.fromstring(junit).iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            passed += 1
        else:
            file = case.get("classname", "").rpartition("engine.")[2].partition(".")[0]
            failed[file] = failed.get(file, 0) + 1
    return {"passed": passed, "failed": failed, "problems": []}
