"""Each plugin passes the tests that it brings, and the conformance suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.checks.catalogue import inactive
from lpkit_conformance.results import CheckResult
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from shipped import PLUGINS, load, settings

ROOT = Path(__file__).resolve().parents[2]
# Sparse with history; the zoo has correct processors of the other kinds, and `make deep` runs all checks of all.
SPARSE = next(plugin for plugin in PLUGINS if plugin.name == "lpkit-penalties")


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


def passed(plugin: Path, **chosen: Any) -> list[CheckResult]:
    """Return the chosen checks that passed, in this process, by default with its first case; none may fail."""
    plan = Plan(**{"cases": (Case.parse(settings(plugin).case),), **chosen})
    results = list(Session(plugin.name, load(plugin), plan).results())
    assert not [item for item in results if item.status not in ("passed", "skipped")]
    assert not inactive(results)
    return [item for item in results if item.status == "passed"]


def test_the_behaviour_tests_of_all_plugins_pass() -> None:
    files = [str(file) for file in sorted(ROOT.glob("reference_plugins/*/tests/test_behaviour.py"))]
    assert own_tests(ROOT, "--import-mode=importlib", *files) >= 3 * len(PLUGINS)


@pytest.mark.broad
def test_the_suite_in_this_process() -> None:
    # These take longer than all the rest. Some checks do not concern some plugins.
    assert len(passed(SPARSE, ignore=("LP219", "LP220", "LP221", "LP603", "LP604", "LP808"))) >= 55


@pytest.mark.broad
@pytest.mark.parametrize("plugin", [item for item in PLUGINS if item != SPARSE], ids=lambda path: path.name)
def test_the_others_read_histories_and_v2s_rows_right(plugin: Path) -> None:
    assert len(passed(plugin, select=("LP502", "LP505", "LP509", "LP804", "LP806", "LP809"), alone=True)) >= 4


@pytest.mark.deep
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_every_check_with_every_case(plugin: Path) -> None:
    assert len(passed(plugin, cases=tuple(map(Case.parse, settings(plugin).cases)))) >= 60
