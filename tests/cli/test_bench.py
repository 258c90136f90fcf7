"""``lpkit bench`` as its users run it: a table, JSON, and one line for everything that cannot be measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lpkit_cli.app import app
from lpkit_conformance.bench import run
from typer.testing import CliRunner, Result

PLUGIN = """
import os, time
import lpkit, torch

class Bias(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        bias: float = lpkit.Field(le=9.0)
    bias = lpkit.column(torch.float32)
    def admit(self, request):
        self.bias[request.slot] = request.params.bias
        return True
    def process(self, logits, rows):
        return logits.add_(self.bias[rows].unsqueeze(1))

class Raises(Bias):
    def process(self, logits, rows):
        raise RuntimeError("boom")

class Exits(Bias):
    def process(self, logits, rows):
        print("bye", flush=True)
        os._exit(3)"""

PROJECT = """
[project]
name = "mine"
[project.entry-points."vllm.logits_processors"]
mine = "plugin:Bias"
[tool.lpkit]
cases = [{ extra_args = { bias = 1.5 } }]
"""

SMALL = ("--quick", "--batch", "2,3", "--vocab", "256")
LEAST = ("--quick", "--batch", "1", "--vocab", "128")


def write_project(folder: Path, settings: str = "") -> Path:
    (folder / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    (folder / "pyproject.toml").write_text(PROJECT + settings, encoding="utf-8")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path)


@pytest.fixture
def bench(in_process: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``lpkit bench`` in this process, with the fewest rounds."""
    monkeypatch.setattr(run, "QUICK_SECONDS", 0.0)

    def invoke(*arguments: str, cwd: Path) -> Result:
        monkeypatch.chdir(cwd)
        return CliRunner().invoke(app, ["bench", *arguments])

    return invoke


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A project that names what it is compared with, measured once on both runners, in a process of its own."""
    folder = write_project(tmp_path_factory.mktemp("project"), 'against = ["plugin:Bias"]')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "QUICK_SECONDS", 0.0)
        patch.chdir(folder)
        return folder, CliRunner().invoke(app, ["bench", *SMALL, "--json", "out.json", "--plot", "out.svg"])


def test_the_project_is_measured_on_both_runners(measured: tuple[Path, Result]) -> None:
    folder, done = measured
    assert (done.exit_code, done.stderr) == (0, "")
    assert "mine on V1" in done.stdout and "plugin:Bias on V1" in done.stdout and "one read and write" in done.stdout
    assert "\x1b" not in done.stdout
    report = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert report["schema"] == "lpkit-bench/1"
    (target,) = report["targets"]
    assert [(point["batch"], point["vocab"]) for point in target["points"]] == [(2, 256), (3, 256)]
    sides = target["points"][0]["sides"]
    assert [side["kind"] for side in sides] == ["target"] * 2 + ["alternative"] * 2 + ["floor"] * 2
    assert all(side["apply"]["rounds"] >= 3 and not side["problem"] for side in sides)
    curves = [item for item in ET.parse(folder / "out.svg").iter() if item.tag.endswith("polyline")]
    assert [item.get("class", "").split()[1] for item in curves] == [side["kind"] for side in sides]
    assert report["settings"]["threads"] == report["environment"]["threads"] == 1


def test_a_budget_takes_its_sizes_from_the_file_and_fails_when_more_is_done(bench, measured, project: Path) -> None:
    recorded, _ = measured
    document = json.loads((recorded / "out.json").read_text(encoding="utf-8"))
    for point in document["targets"][0]["points"]:
        for side in point["sides"]:
            side["versus_floor"] = 1e9  # what this machine takes does not matter
    (project / "budget.json").write_text(json.dumps(document), encoding="utf-8")
    more = PLUGIN.replace("unsqueeze(1))", "unsqueeze(1)).add_(0.0)")
    (project / "plugin.py").write_text(more, encoding="utf-8")
    done = bench("--quick", "--budget", "budget.json", cwd=project)
    assert done.exit_code == 1
    worse = [line.partition(": ")[0] for line in done.stdout.splitlines() if " operations; there were " in line]
    assert worse == [f"WORSE  mine on {host}, {batch} x 256" for batch in (2, 3) for host in ("V1", "V2")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--batch", "1x"), "--batch takes whole numbers of at least 1, not '1x'"),
        (("--vocab", "128kk"), "--vocab takes whole numbers of at least 1, not '128kk'; did you mean '128k'?"),
        (("--batch", "0"), "--batch takes whole numbers of at least 1, not '0'"),
        (("nope",), "nope: no installed logits processor is named 'nope'"),
        (("--case", "{"), "case is not JSON"),
        (("--case", '{"extra_arg": {}}'), "case has an unknown key 'extra_arg'; did you mean 'extra_args'?"),
        (("--case", '{"extra_args": {"bias": 10}}'), "mine: mine refuses the case"),
        (("--against-case", "{}"), "there are more --against-case than --against"),
        (("--json", "-", "--plot", "-"), "only one of --json and --plot can be standard output"),
        (("plugin.py:Raises", *LEAST, "--host", "v1"), "plugin.py:Raises on V1: apply: raised RuntimeError: boom"),
    ],
)
def test_what_cannot_be_measured_is_one_line(bench, project: Path, arguments: tuple[str, ...], said: str) -> None:
    done = bench(*arguments, cwd=project)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


def test_a_plugin_that_ends_the_measuring_process_is_named_with_the_size(project: Path, monkeypatch) -> None:
    monkeypatch.chdir(project)
    done = CliRunner().invoke(app, ["bench", "plugin.py:Exits", *SMALL])
    assert done.exit_code == 2 and "the process ended with exit code 3 while measuring 2 x 256" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("against = 3", "[tool.lpkit] against must be a list"),
        ("against = [3]", "[tool.lpkit] against must list"),
        ('against = [{ target = "a:B", cas = {} }]', "a:B has unknown keys ['cas']; known: target, case"),
    ],
)
def test_a_wrong_against_in_the_project_is_refused(bench, tmp_path: Path, line: str, said: str) -> None:
    done = bench(cwd=write_project(tmp_path, line))
    assert done.exit_code == 2 and said in done.stderr
