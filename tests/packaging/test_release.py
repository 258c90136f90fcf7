"""`make release-check` reads distributions correctly, and the committed tree passes."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import lpkit
import pytest
from lpkit_conformance.vllm_api import releases
from lpkit_conformance.vllm_api.facts import VLLM, in_short

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "conformance" / "tools"))

from release_check import artifacts  # noqa: E402
from release_check.artifacts import Built  # noqa: E402

USES = re.compile(r"uses:\s*(\S+)(.*)")
WORKFLOWS = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "action.yml"]


@pytest.fixture(scope="module")
def built(distributions: tuple[Path, Path]) -> Built:
    return Built(*distributions)


def without(built: Built, folder: Path, *left_out: str) -> Built:
    """The same release; the wheel lacks files whose names end so."""
    wheel = folder / built.wheel.name
    with zipfile.ZipFile(built.wheel) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if not name.endswith(left_out):
                target.writestr(name, source.read(name))
    return Built(wheel, built.sdist)


def test_what_is_committed_makes_a_release(built: Built) -> None:
    assert list(artifacts.problems(built, ROOT)) == []


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [
        ("licenses/LICENSE", "the wheel has no licence LICENSE"),
        ("lpkit/py.typed", "the wheel has no data file lpkit/py.typed"),
        ("_template/cookiecutter.json", "the wheel has no file of the template lpkit_cli/_template/cookiecutter.json"),
        ("lpkit_cli/__init__.py", "the wheel has no package lpkit_cli"),
    ],
)
def test_what_a_wheel_lacks_is_named(built: Built, left_out: str, problem: str, tmp_path: Path) -> None:
    assert list(artifacts.problems(without(built, tmp_path, left_out), ROOT)) == [problem]


def test_links_that_work_in_the_repository_alone_are_found() -> None:
    page = '[a](docs/a.md) ![b](b.svg) [c](https://c.example/) [d](#d) <img src="e.svg">'
    assert artifacts.relative_links(page) == ["docs/a.md", "b.svg", "e.svg"]


def test_the_version_stands_in_one_place(built: Built) -> None:
    assert str(artifacts.metadata(built.wheel)["Version"]) == lpkit.__version__
    assert lpkit.__version__ not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_of_others_are_pinned_by_commit(file: Path) -> None:
    for action, comment in USES.findall(file.read_text(encoding="utf-8")):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action} does not say which version it is"


def test_the_page_on_support_says_what_is_declared(built: Built) -> None:
    page = (ROOT / "docs" / "reference" / "support.md").read_text(encoding="utf-8")
    found = artifacts.metadata(built.wheel)
    versions = [text.split(" :: ")[-1] for text in found.get_all("Classifier", []) if ":: Python :: 3." in text]
    assert f"| Python | {versions[0]} to {versions[-1]} |" in page
    assert found["Requires-Python"] == f">={versions[0]}"
    assert "torch>=2.4; extra == 'runtime'" in found.get_all("Requires-Dist", [])
    assert "| torch | 2.4 and newer |" in page
    since = in_short(releases.V2_PROCESSORS_SINCE)
    engine = VLLM.developed_with.rpartition(".")[0]
    tested = f"| vLLM, on both runners | {since} and newer | `make test-vllm` runs a real engine of {engine}, "
    assert any(line.startswith(tested) for line in page.splitlines()), (
        f"docs/reference/support.md does not say {tested!r}"
    )
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert f'python: ["{versions[0]}", "{versions[-1]}"]' in workflow
