"""Each plugin passes the tests that it brings, and the conformance suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lpkit_conformance.checks.catalogue import inactive
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from shipped import PLUGINS, load, settings

ROOT = Path(__file__).resolve().parents[2]


def own_tests(folder: Path, *options: str) -> int:
    """Return the number of tests in the folder that passed; none may fail."""
    path = os.pathsep.join(map(str, (ROOT / "sdk", ROOT / "conformance", *ROOT.glob("reference_plugins/*/src"))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"(\d+) passed", done.stdout)[-1])


def test_the_behaviour_tests_of_all_plugins_pass() -> None:
    files = [str(file) for file in sorted(ROOT.glob("reference_plugins/*/tests/test_behaviour.py"))]
    assert own_tests(ROOT, "--import-mode=importlib", *files) >= 3 * len(PLUGINS)


@pytest.mark.broad
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_every_check_passes_with_every_case(plugin: Path) -> None:
    plan = Plan(cases=tuple(map(Case.parse, settings(plugin).cases)))
    results = list(Session(plugin.name, load(plugin), plan).results())
    assert not [item for item in results if item.status not in ("passed", "skipped")]
    assert not inactive(results)
    assert sum(item.status == "passed" for item in results) >= 60
