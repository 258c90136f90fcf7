"""Each plugin passes the tests that it brings, the conformance suite among them, as its owner would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from lpkit_conformance.catalogue import inactive
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted((ROOT / "reference_plugins").iterdir())

# Dense, sparse with history, and an adapter; the others are `make deep`.
ONE_OF_EACH_KIND = {"lpkit-min-p", "lpkit-penalties", "lpkit-no-repeat-ngram"}
EARLY = "behaviour or LP104 or LP201 or LP202 or LP204"


def own_tests(plugin: Path, *options: str) -> int:
    """How many of its own tests passed; none may fail."""
    path = os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", plugin / "src"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options],
        cwd=plugin,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"(\d+) passed", done.stdout)[-1])


@pytest.mark.parametrize("name", sorted(ONE_OF_EACH_KIND))
def test_own_tests_with_a_few_checks(name: str) -> None:
    assert own_tests(ROOT / "reference_plugins" / name, "-k", EARLY) >= 8


@pytest.mark.parametrize("name", sorted(ONE_OF_EACH_KIND))
def test_the_whole_suite_in_this_process(name: str) -> None:
    project = tomllib.loads((ROOT / "reference_plugins" / name / "pyproject.toml").read_text(encoding="utf-8"))
    (target,) = project["project"]["entry-points"]["vllm.logits_processors"].values()
    module, _, cls = target.partition(":")
    cases = (Case.parse(project["tool"]["lpkit"]["cases"][0]),)
    # LP604 starts a process, which takes longer than all the rest.
    session = Session(name, getattr(import_module(module), cls), Plan(cases=cases, ignore=("LP604",)))
    results = list(session.results())
    assert not [item for item in results if item.status not in ("passed", "skipped")]
    assert not inactive(results)
    # Some checks do not concern some plugins; most concern all.
    assert len([item for item in results if item.status == "passed"]) >= 60


@pytest.mark.deep
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_own_tests_with_every_check(plugin: Path) -> None:
    assert own_tests(plugin) >= 60
