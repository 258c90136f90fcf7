"""A project as ``lpkit new`` bakes it: installed, checked, listed, typed, tested and built."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

ENTRY_POINT = "[vllm.logits_processors]\nmy-proc = my_proc.processor:MyProc"


def test_it_builds(built) -> None:
    wheel = zipfile.ZipFile(built[0])
    names = set(wheel.namelist())
    assert {"my_proc/__init__.py", "my_proc/processor.py", "my_proc/py.typed"} <= names
    assert ENTRY_POINT in wheel.read("my_proc-0.1.0.dist-info/entry_points.txt").decode()
    assert "my_proc-0.1.0.dist-info/licenses/LICENSE" in names
    with tarfile.open(built[1]) as sdist:
        assert "my_proc-0.1.0/tests/test_conformance.py" in sdist.getnames()


def test_it_is_strictly_typed(baked, tmp_path_factory: pytest.TempPathFactory) -> None:
    project, installed = baked
    # Shared by both styles and kept between them: most of the time goes into torch's own annotations.
    cache = tmp_path_factory.getbasetemp() / "mypy"
    done = installed.run("-m", "mypy", "--cache-dir", cache, cwd=project, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues found in 4 source files" in done.stdout


def test_it_keeps_its_own_style_rules(baked) -> None:
    project, installed = baked
    installed.run("-m", "ruff", "check", "--no-cache", ".", cwd=project)
    installed.run("-m", "ruff", "format", "--no-cache", "--check", ".", cwd=project)


def test_it_passes_its_own_tests(baked) -> None:
    project, installed = baked
    done = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_it_is_conformant_on_both_hosts(baked, tmp_path: Path) -> None:
    project, installed = baked
    report = tmp_path / "report.json"
    done = installed.lpkit("check", "--json", str(report), cwd=project, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text(encoding="utf-8"))
    assert (found["schema"], found["verdict"]) == ("lpkit.check/1", "pass")
    (target,) = found["targets"]
    assert sorted(target["hosts"]) == ["v1", "v2"]
    passed = {check["code"] for check in target["checks"] if check["status"] == "passed"}
    assert len(passed) >= 15
    assert not {check["status"] for check in target["checks"]} & {"failed", "error", "blocked"}


def test_it_is_listed_and_lets_a_default_vllm_start(baked, tmp_path: Path) -> None:
    _, installed = baked
    done = installed.lpkit("list", cwd=tmp_path)
    assert "my-proc" in done.stdout
    assert "my_proc.processor:MyProc" in done.stdout


def test_the_doctor_has_nothing_to_say_about_it(baked) -> None:
    project, installed = baked
    done = installed.lpkit("doctor", "--vllm", "0.33.0", "--spec-decode", "--json", cwd=project)
    found = json.loads(done.stdout)
    assert [plugin["verdict"] for plugin in found["plugins"] if plugin["name"] == "my-proc"] == ["starts"]
    assert found["findings"] == []
