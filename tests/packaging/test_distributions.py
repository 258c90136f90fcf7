"""Contents of the wheel and the sdist, which work outside the checkout."""

from __future__ import annotations

import re
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ("--no-git", "--lpkit-from", "index", "--author", "Ada", "--email", "ada@example.org")
TEMPLATE = {path.relative_to(ROOT / "template").as_posix() for path in (ROOT / "template").rglob("*") if path.is_file()}


@pytest.fixture(params=["installed", "installed_from_sdist"])
def either(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


def test_the_wheel_holds_three_packages_and_the_template(distributions) -> None:
    names = set(zipfile.ZipFile(distributions[0]).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lpkit", "lpkit_cli", "lpkit_conformance"}
    bundled = {name.removeprefix("lpkit_cli/_template/") for name in names if "/_template/" in name}
    assert bundled == {name for name in TEMPLATE if "__pycache__" not in name}


def test_the_bare_install_asks_only_for_what_every_vllm_image_has(distributions) -> None:
    wheel = zipfile.ZipFile(distributions[0])
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    message = Parser().parsestr(wheel.read(metadata).decode())
    assert message["Name"] == "vllm-lpkit"
    assert message["License-Expression"] == "Apache-2.0"
    bare = [item for item in message.get_all("Requires-Dist", []) if "extra ==" not in item]
    names = {item.split(">")[0].split(";")[0].strip() for item in bare}
    assert names == {"pydantic", "typer", "rich", "importlib-metadata", "tomli"}
    assert not [item for item in bare if "<" in item.split(";")[0] or "==" in item.split(";")[0]]


def test_pytest_gets_no_plugin_from_us(distributions) -> None:
    wheel = zipfile.ZipFile(distributions[0])
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    groups = re.findall(r"^\[(.+)\]$", wheel.read(entry_points).decode(), re.MULTILINE)
    assert set(groups) == {"console_scripts", "vllm.general_plugins"}


@pytest.mark.broad
def test_it_runs_from_where_it_was_installed(either, tmp_path: Path) -> None:
    code = "import lpkit, lpkit_cli, lpkit_conformance as c; print(lpkit.__file__, lpkit_cli.__file__, c.__file__)"
    places = either.run("-c", code, cwd=tmp_path).stdout.split()
    assert [Path(place).parents[1] for place in places] == [either.site] * 3


@pytest.mark.broad
def test_the_script_answers(installed, tmp_path: Path) -> None:
    (script,) = installed.scripts.glob("lpkit*")
    done = subprocess.run([script, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("lpkit ")


@pytest.mark.broad
def test_new_bakes_the_same_project_as_the_checkout_and_writes_nothing_to_home(either, lpkit, tmp_path: Path) -> None:
    either.lpkit("new", "my-proc", *PLAIN, cwd=tmp_path)
    assert lpkit("new", "my-proc", *PLAIN, "-o", "checkout").returncode == 0
    ours, theirs = tmp_path / "my-proc", tmp_path / "checkout" / "my-proc"
    names = {path.relative_to(ours) for path in ours.rglob("*")}
    assert names == {path.relative_to(theirs) for path in theirs.rglob("*")}
    for name in names:
        if (ours / name).is_file():
            assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    assert not either.home.exists()


@pytest.mark.broad
def test_byte_compiled_templates_leave_no_trace(installed, tmp_path: Path) -> None:
    template = installed.site / "lpkit_cli" / "_template"
    installed.run("-m", "compileall", "-q", template, cwd=tmp_path, check=False)
    assert list(template.rglob("*.pyc"))
    installed.lpkit("new", "my-proc", *PLAIN, cwd=tmp_path)
    assert not list(tmp_path.rglob("__pycache__"))
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.broad
def test_a_project_brings_along_the_wheel_that_is_installed(
    installed, distributions, environment, tmp_path: Path
) -> None:
    installed.lpkit("new", "my-proc", "--no-git", cwd=tmp_path)
    (packed,) = (tmp_path / "my-proc" / "wheelhouse").iterdir()
    assert packed.name == distributions[0].name
    ours, built = zipfile.ZipFile(packed), zipfile.ZipFile(distributions[0])
    assert set(ours.namelist()) == set(built.namelist())
    for name in set(built.namelist()):
        if not name.endswith("RECORD"):
            assert ours.read(name) == built.read(name), name
    environment(tmp_path / "env", packed).lpkit("--version", cwd=tmp_path)
