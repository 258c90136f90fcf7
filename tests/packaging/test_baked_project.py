"""Projects as ``lpkit new`` bakes them, one of each style: installed, checked, listed, typed, tested and built."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path
from textwrap import dedent

import pytest
from command import FIXTURES

from .conftest import Installed

pytestmark = pytest.mark.broad  # pip installs all of them

PROJECTS = {
    "my-proc": ("--style", "processor"),
    "my-req": ("--style", "request"),
    "my-bridge": ("--wrap", "old_plugin:OldTarget"),
}
PYPROJECT = """
    [build-system]
    requires = ["hatchling"]
    build-backend = "hatchling.build"

    [project]
    name = "old-plugin"
    version = "1.0"

    [tool.hatch.build.targets.wheel]
    packages = ["old_plugin"]
"""


@pytest.fixture(scope="session")
def plugins(once, distributions, environment) -> Path:
    """A folder with the projects, a V1 class of another distribution to wrap, and ``env``, where all are installed."""

    def fill(folder: Path) -> None:
        package = folder / "old" / "old_plugin"
        package.mkdir(parents=True)
        shutil.copy(FIXTURES / "old_plugin.py", package / "__init__.py")
        (folder / "old" / "pyproject.toml").write_text(dedent(PYPROJECT), encoding="utf-8")
        made = environment(folder / "env", distributions[0], folder / "old")
        for name, options in PROJECTS.items():
            made.lpkit("new", name, *options, "--no-git", "--lpkit-from", "index", cwd=folder)
        made.install(*(folder / name for name in PROJECTS))

    return once("plugins", fill)


@pytest.fixture
def installed(plugins: Path) -> Installed:
    return Installed(plugins / "env")


@pytest.fixture(params=PROJECTS)
def project(plugins: Path, request: pytest.FixtureRequest) -> Path:
    return plugins / request.param


def test_its_wheel_has_the_package_an_entry_point_and_the_licence(project: Path, installed: Installed) -> None:
    package = project.name.replace("-", "_")
    about = installed.site / f"{package}-0.1.0.dist-info"
    for name in ("__init__.py", "processor.py", "py.typed"):
        assert (installed.site / package / name).is_file()
    entry_point = f"{project.name} = {package}.processor:{project.name.title().replace('-', '')}"
    assert f"[vllm.logits_processors]\n{entry_point}" in (about / "entry_points.txt").read_text(encoding="utf-8")
    assert (about / "licenses" / "LICENSE").is_file()


def test_a_release_builds_and_brings_its_tests(plugins: Path, build, tmp_path: Path) -> None:
    build(plugins / "my-proc", tmp_path)
    assert [path.name for path in tmp_path.glob("*.whl")] == ["my_proc-0.1.0-py3-none-any.whl"]
    with tarfile.open(tmp_path / "my_proc-0.1.0.tar.gz") as sdist:
        assert "my_proc-0.1.0/tests/test_conformance.py" in sdist.getnames()


def test_a_bridge_depends_on_what_it_wraps(plugins: Path) -> None:
    text = (plugins / "my-bridge" / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dependencies = ["old-plugin", "torch", "vllm-lpkit' in text


EARLY = "behaviour or LP201 or LP202 or LP203 or LP204"


# The workflow's steps test a project of the style "processor"; `make types` types the others.
@pytest.mark.parametrize("name", ["my-req", "my-bridge"])
def test_it_passes_its_own_tests_with_a_few_checks(name: str, plugins: Path, installed: Installed) -> None:
    """The zoo's correct processors are of these styles, and meet every check."""
    own_tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", EARLY)
    done = installed.run(*own_tests, cwd=plugins / name, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= 8


def test_all_are_listed_and_let_a_default_vllm_start(installed: Installed, tmp_path: Path) -> None:
    found = json.loads(installed.lpkit("list", "--json", cwd=tmp_path).stdout)
    mine = [item for item in found["plugins"] if item["name"] in PROJECTS]
    assert {item["target"] for item in mine} == {
        "my_proc.processor:MyProc",
        "my_req.processor:MyReq",
        "my_bridge.processor:MyBridge",
    }
    for item in mine:
        assert (item["interface"], item["starts_v1"], item["starts_v2"]) == ("both", True, True)


def test_the_doctor_has_nothing_to_say_about_them(installed: Installed, tmp_path: Path) -> None:
    done = installed.lpkit("doctor", "--vllm", "0.33.0", "--spec-decode", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [plugin["verdict"] for plugin in found["plugins"] if plugin["name"] in PROJECTS] == ["starts"] * 3
    assert found["findings"] == []
