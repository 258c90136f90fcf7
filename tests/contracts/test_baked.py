"""Projects of ``lpkit new``: their files, the suite's verdict on them, and the names of their tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import FIXTURES, python
from golden import WRITING, hold
from lpkit_cli.app import app
from lpkit_cli.scaffold.baking import bundled_template
from lpkit_conformance.report.picture import picture
from lpkit_conformance.testing import show
from typer.testing import CliRunner

STYLES = {"processor": (), "request": ("--style", "request"), "wrap": ("--wrap", "old_plugin:OldTarget")}


def new(style: str, folder: Path) -> Path:
    plain = ("--no-git", "--lpkit-from", "index", "-o", style)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(FIXTURES)
        done = CliRunner().invoke(app, ["new", "my-proc", *STYLES[style], *plain])
    assert done.exit_code == 0, done.output
    return folder / style / "my-proc"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project of the style "processor"."""
    return new("processor", tmp_path_factory.mktemp("new"))


def test_each_style_gives_the_same_files(tmp_path: Path) -> None:
    found = {}
    for style in STYLES:
        folder = new(style, tmp_path)
        found[style] = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    hold("baked_files", found)


@pytest.mark.parametrize("style", ["processor", "request"])
def test_the_picture_in_a_readme_is_what_lpkit_show_draws(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new(style, tmp_path)
    monkeypatch.syspath_prepend(folder / "src")
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_proc"]:  # of another style
        monkeypatch.delitem(sys.modules, name)
    drawn = picture(show("my_proc.processor:MyProc", root=folder))
    drawn = drawn.replace("my_proc.processor:MyProc", "my-proc")
    if WRITING:
        held = bundled_template() / "templates" / style / "rule.svg"
        held.write_text(drawn.replace("my-proc", "{{ cookiecutter.project_name }}"), encoding="utf-8")
    assert (folder / "docs/rule.svg").read_text(encoding="utf-8") == drawn
    assert "docs/rule.svg" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.broad
def test_the_names_of_conformance_tests_by_which_people_select(project: Path) -> None:
    quiet = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA")
    done = python(*quiet, "-k", "LP001 or LP301", cwd=project, path=(project / "src", FIXTURES))
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [line.removeprefix("PASSED ") for line in done.stdout.splitlines() if line.startswith("PASSED ")]
    assert sorted(passed) == [
        "tests/test_conformance.py::test_conformance[LP001-is-a-processor]",
        "tests/test_conformance.py::test_conformance[LP301[v1]-returns-logits]",
        "tests/test_conformance.py::test_conformance[LP301[v2]-returns-logits]",
    ]
