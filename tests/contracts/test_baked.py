"""Projects of ``lpkit new``: what today's template gives, and that those of 0.1.0 still work, untouched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import FIXTURES, lpkit, python
from golden import FOLDER, hold
from shape import report

STYLES = {"processor": (), "request": ("--style", "request"), "wrap": ("--wrap", "old_plugin:OldTarget")}
STORED = FOLDER / "baked_0_1_0"


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what 0.1.0 generated; checking writes into it."""
    return Path(shutil.copytree(STORED / request.param, tmp_path / "my-proc"))


def test_todays_template_gives_the_same_files(tmp_path: Path) -> None:
    found = {}
    for style, options in STYLES.items():
        plain = ("--no-git", "--lpkit-from", "index")
        done = lpkit("new", "my-proc", *options, *plain, "-o", style, cwd=tmp_path, path=(FIXTURES,))
        assert done.returncode == 0, done.stderr
        folder = tmp_path / style / "my-proc"
        found[style] = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    hold("baked_files", found)


@pytest.mark.parametrize("project", ["request", "wrap"], indirect=True)
def test_a_project_of_0_1_0_passes(project: Path) -> None:
    done = lpkit("check", "--select", "LP201", "--json", "-", cwd=project, path=(FIXTURES,))
    assert done.returncode == 0, done.stdout + done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    assert (target["target"], target["verdict"], target["hosts"]) == ("my-proc", "pass", ["v1", "v2"])
    assert {item["status"] for item in target["checks"]} == {"passed"}


@pytest.mark.parametrize("project", ["processor"], indirect=True)
def test_a_project_of_0_1_0_passes_every_check(project: Path) -> None:
    done = lpkit("check", "--json", "-", cwd=project)
    hold("check_everything", {"exit code": done.returncode, **report(json.loads(done.stdout))})


# The tests of the style "request" import the same as those of "processor".
@pytest.mark.parametrize("project", ["processor", "wrap"], indirect=True)
def test_its_own_tests_run(project: Path) -> None:
    """All of its behaviour, and of its conformance tests the first: their names are what people select by."""
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA")
    which = ("-k", "test_behaviour or LP001")
    done = python(*pytest_, *which, cwd=project, path=(project / "src", FIXTURES))
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [line.removeprefix("PASSED ") for line in done.stdout.splitlines() if line.startswith("PASSED ")]
    style = json.loads((project / ".lpkit-template.json").read_text(encoding="utf-8"))["answers"]["style"]
    hold(f"baked_tests-{style}", sorted(passed))
