"""``lpkit bench --json``, and saved failures that are replayed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import FIXTURES
from golden import FOLDER, hold
from lpkit_cli.app import app
from lpkit_conformance.bench import run
from shape import shape
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("in_process")

CASE = ("--case", '{"extra_args": {"bias": 2.5}}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES, tmp_path / "work"))


def test_bench(folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run, "QUICK_SECONDS", 0.0)
    sizes = ("--quick", "--batch", "1,2", "--vocab", "128")
    done = CliRunner().invoke(app, ["bench", "plugins.py:Portable", *CASE, *sizes, "--json", "-"])
    document = json.loads(done.stdout)
    literal = ("schema", "target", "interface", "batch", "vocab", "kind", "host", "problem", "error")
    points = document["targets"][0].pop("points")
    # Whether transformers is installed decides how many alternatives there are.
    sides = [
        [(side["kind"], side["host"]) for side in point["sides"] if side["kind"] != "alternative"] for point in points
    ]
    hold(
        "bench",
        {
            "exit code": done.exit_code,
            **shape(document, literal),
            "points": shape(points),
            "sizes": [(point["batch"], point["vocab"]) for point in points],
            "sides": sides,
        },
    )


@pytest.mark.parametrize("name", ["program", "trace"])
def test_a_saved_failure_still_fails(folder: Path, name: str, monkeypatch) -> None:
    saved = (FOLDER / "failures" / f"{name}.json").read_text(encoding="utf-8")
    failure = json.loads(saved)
    (folder / "saved.json").write_text(saved, encoding="utf-8")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["replay", "saved.json"])
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == f"STILL FAILING  {failure['check']}[{failure['host']}]"


def test_operations_in_which_the_plugin_never_acts_are_exit_code_4(folder: Path, monkeypatch) -> None:
    failure = json.loads((FOLDER / "failures" / "program.json").read_text(encoding="utf-8"))
    operations = [
        operation | {"variant": None} if "variant" in operation else operation
        for operation in failure["program"]["operations"]
    ]
    failure["program"]["operations"] = operations
    (folder / "saved.json").write_text(json.dumps(failure), encoding="utf-8")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["replay", "saved.json"])
    assert (done.exit_code, done.stderr) == (4, "")
    assert done.stdout.splitlines()[-1].startswith("DID NOT REPRODUCE")


@pytest.mark.parametrize(
    "wrong", [{"schema": "lpkit.failure/9"}, {"check": "LP999"}, {"host": "v3"}, {"target": "nowhere.py:Plugin"}]
)
def test_a_failure_that_cannot_run_is_exit_code_2(tmp_path: Path, wrong: dict[str, str]) -> None:
    saved = json.loads((FOLDER / "failures" / "program.json").read_text(encoding="utf-8"))
    (tmp_path / "saved.json").write_text(json.dumps(saved | wrong), encoding="utf-8")
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "saved.json")])
    assert done.exit_code == 2, done.output
