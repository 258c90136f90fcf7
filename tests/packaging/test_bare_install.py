"""A serving container: lpkit with nothing but its required dependencies. No torch, no vLLM, no pytest."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sysconfig
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

from .conftest import Installed

OLD = "from vllm.v1.sample.logits_processor import LogitsProcessor\nclass P(LogitsProcessor): ...\n"
HEAVY = ("torch", "numpy", "pytest", "cookiecutter", "vllm")


def closure(*names: str) -> dict[str, Distribution]:
    """The distributions that ``names`` need here, extras left out."""
    todo, found = list(names), dict[str, Distribution]()
    while todo:
        name = todo.pop()
        with contextlib.suppress(PackageNotFoundError):  # it is needed on another platform or Python
            if name not in found:
                found[name] = distribution(name)
                wanted = (text for text in found[name].requires or [] if "extra ==" not in text)
                todo += [re.match(r"[A-Za-z0-9._-]+", text)[0] for text in wanted]
    return found


@pytest.fixture(scope="session")
def bare(once, distributions, environment) -> Installed:
    """lpkit's wheel, and copies of its required dependencies."""
    return Installed(once("bare", lambda folder: bring_dependencies(environment(folder, distributions[0], bare=True))))


def bring_dependencies(made: Installed) -> None:
    parent = Path(sysconfig.get_path("purelib"))
    for needed in closure("pydantic", "typer", "rich", "importlib-metadata", "tomli").values():
        tops = {file.parts[0] for file in needed.files or ()}
        for top in tops - {"..", "__pycache__"}:
            source, target = parent / top, made.site / top
            if source.is_dir() and not target.exists():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.is_file():
                shutil.copy(source, target)


@pytest.fixture
def old_plugin(bare):
    """A V1-only plugin, installed there."""
    info = bare.site / "old_proc-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: old-proc\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.logits_processors]\nold = old_proc:P\n")
    (bare.site / "old_proc.py").write_text(OLD)
    yield
    shutil.rmtree(info)
    (bare.site / "old_proc.py").unlink()


def test_nothing_else_is_there(bare, tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print(*filter(find_spec, {HEAVY}))"
    assert bare.run("-c", code, cwd=tmp_path).stdout.split() == []


@pytest.mark.parametrize("command", ["doctor", "list", "--help"])
def test_the_commands_of_a_serving_container_answer(bare, command: str, tmp_path: Path) -> None:
    done = bare.lpkit(command, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout


def test_the_doctor_judges_a_plugin_there(bare, old_plugin, tmp_path: Path) -> None:
    done = bare.lpkit("doctor", "--json", cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["versions"]["torch"] is None
    assert document["versions"]["lpkit"] is not None
    assert [finding["code"] for finding in document["findings"]] == ["blocks-start"]


@pytest.mark.parametrize("command", ["check", "bench"])
def test_what_needs_more_says_what_to_install(bare, command: str, tmp_path: Path) -> None:
    (tmp_path / "proc.py").write_text("import lpkit\nclass P(lpkit.LogitsProcessor): ...\n")
    done = bare.lpkit(command, "proc.py:P", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "vllm-lpkit[check]" in done.stderr
