"""``lpkit new``: what it writes, and that it writes nothing when it refuses."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from lpkit_cli.scaffold.baking import template_directory

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STYLES = ("processor", "request")
PLAIN = ("--lpkit-from", "index", "--no-git")


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(new, tmp_path: Path, style: str) -> Path:
    new("my-proc", "--style", style)
    return tmp_path / "my-proc"


def test_nothing_of_the_template_language_is_left(project: Path) -> None:
    for name in files(project):
        text = (project / name).read_text(encoding="utf-8")
        assert "{%" not in text, name
        assert "cookiecutter" not in text, name
        if not name.startswith(".github"):
            assert "{{" not in text, name


def test_the_entry_point_names_the_class(project: Path) -> None:
    config = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert config["project"]["name"] == "my-proc"
    assert config["project"]["entry-points"]["vllm.logits_processors"] == {"my-proc": "my_proc.processor:MyProc"}
    module = ast.parse((project / "src/my_proc/processor.py").read_text(encoding="utf-8"))
    assert "MyProc" in {node.name for node in module.body if isinstance(node, ast.ClassDef)}


def test_it_depends_on_our_distribution_and_declares_a_case(project: Path) -> None:
    config = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    needed = config["project"]["dependencies"] + config["dependency-groups"]["dev"]
    assert any(item.startswith("vllm-lpkit>=") for item in needed)
    assert not any(item.startswith("lpkit") for item in needed)
    assert config["tool"]["lpkit"]["hosts"] == ["v1", "v2"]
    assert all(case["extra_args"] for case in config["tool"]["lpkit"]["cases"])


def test_the_answers_are_recorded(project: Path, style: str) -> None:
    record = json.loads((project / ".lpkit-template.json").read_text(encoding="utf-8"))
    assert record["answers"] == {
        "project_name": "my-proc",
        "package_name": "my_proc",
        "class_name": "MyProc",
        "style": style,
        "bare": False,
        "description": "A logits processor for vLLM.",
        "author": "",
        "email": "",
        "repository": "",
        "lpkit_from": "index",
    }
    assert record["template_version"]


def test_the_readme_tells_how_to_serve_and_ask(project: Path) -> None:
    text = (project / "README.md").read_text(encoding="utf-8")
    for needed in (
        "vllm serve",
        '"vllm_xargs"',
        "extra_body=",
        "pip install -r requirements-lpkit.txt .",
    ):
        assert needed in text
    assert "pip install lpkit" not in text


def test_three_commands_come_next(new) -> None:
    shown = [line.strip() for line in new("my-proc").stdout.splitlines()]
    assert shown[-3:] == [
        "cd my-proc",
        "pip install -e .",
        "lpkit check",
    ]


@pytest.mark.parametrize("longest", ["x", "my-" + "long-" * 7 + "p"])
def test_names_of_any_length_stay_formatted(new, tmp_path: Path, style: str, longest: str) -> None:
    new(longest, "--style", style)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "."],
            cwd=tmp_path / longest,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_an_existing_target_is_left_alone(new, tmp_path: Path, make) -> None:
    make(tmp_path / "my-proc")
    assert "already exists" in new("my-proc", code=2).stderr
    assert not files(tmp_path) - {"my-proc"}


def test_an_output_that_is_no_folder_is_refused(new, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "not a folder" in new("my-proc", "-o", "file", code=2).stderr


def test_home_is_neither_read_nor_written(lpkit, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".cookiecutterrc").write_text("not: [valid", encoding="utf-8")
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    work = tmp_path / "work"
    work.mkdir()
    done = lpkit("new", "my-proc", *PLAIN, cwd=work, env={"HOME": str(home), "USERPROFILE": str(home)})
    assert done.returncode == 0, done.stderr
    assert files(home) == {".cookiecutterrc"}


def test_missing_cookiecutter_is_reported(lpkit, tmp_path: Path) -> None:
    (tmp_path / "cookiecutter.py").write_text("raise ImportError('no cookiecutter here')", encoding="utf-8")
    done = lpkit("new", "my-proc", *PLAIN, cwd=tmp_path)
    assert done.returncode == 2
    assert "needs cookiecutter" in done.stderr
    assert not (tmp_path / "my-proc").exists()


def test_plain_cookiecutter_bakes_the_same(new, tmp_path: Path, style: str) -> None:
    new("my-proc", "--style", style, "-o", "ours")
    plain = [sys.executable, "-m", "cookiecutter", str(template_directory()), "--no-input", "-o", "plain"]
    environment = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    answers = ["project_name=my-proc", f"style={style}"]
    subprocess.run([*plain, *answers], cwd=tmp_path, env=environment, check=True, stdin=subprocess.DEVNULL)
    ours, theirs = tmp_path / "ours" / "my-proc", tmp_path / "plain" / "my-proc"
    assert files(theirs) == files(ours)
    for name in files(ours):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    refused = subprocess.run(
        [*plain, "project_name=class"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert not (tmp_path / "plain" / "class").exists()
