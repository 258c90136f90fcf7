"""``lpkit bench`` as its users run it: a table, JSON, and one line for everything that cannot be measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

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
        os._exit(3)

class Prints(Bias):
    def process(self, logits, rows):
        print("x" * 9_000_000)
        return super().process(logits, rows)
"""

PROJECT = """
[project]
name = "mine"
[project.entry-points."vllm.logits_processors"]
mine = "plugin:Bias"
[tool.lpkit]
cases = [{ extra_args = { bias = 1.5 } }]
"""

ROOT = Path(__file__).resolve().parents[2]
SOURCES = os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", "cli"))
SMALL = ("--quick", "--batch", "2,3", "--vocab", "256")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def test_the_project_is_measured_on_both_runners(lpkit, project: Path) -> None:
    files = ("--json", "out.json", "--plot", "out.svg")
    done = lpkit("bench", *SMALL, *files, "--against", "plugin.py:Bias", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine on V1" in done.stdout and "one read and write" in done.stdout
    assert "\x1b" not in done.stdout
    report = json.loads((project / "out.json").read_text(encoding="utf-8"))
    assert report["schema"] == "lpkit-bench/1"
    (target,) = report["targets"]
    assert [(point["batch"], point["vocab"]) for point in target["points"]] == [(2, 256), (3, 256)]
    sides = target["points"][0]["sides"]
    assert [side["kind"] for side in sides] == ["target"] * 2 + ["alternative"] * 2 + ["floor"] * 2
    assert all(side["apply"]["rounds"] >= 3 and not side["problem"] for side in sides)
    curves = [item for item in ET.parse(project / "out.svg").iter() if item.tag.endswith("polyline")]
    assert [item.get("class", "").split()[1] for item in curves] == [side["kind"] for side in sides]
    assert report["settings"]["threads"] == report["environment"]["threads"] == 1


def test_a_vllm_that_ends_the_process_is_told_and_the_stand_in_used(lpkit, project: Path) -> None:
    (project / "site" / "vllm").mkdir(parents=True)
    (project / "site" / "vllm" / "__init__.py").write_text("import os\nos._exit(11)\n", encoding="utf-8")
    path = os.pathsep.join([str(project / "site"), SOURCES])
    done = lpkit("bench", "--quick", "--batch", "1", "--vocab", "128", cwd=project, env={"PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    assert "the installed vLLM is broken: importing it, the process ended with exit code 11" in shown
    assert "mine on V2" in shown


def test_standard_output_can_be_the_json(lpkit, project: Path) -> None:
    done = lpkit("bench", "--quick", "--batch", "1", "--vocab", "128", "--host", "v2", "--json", "-", cwd=project)
    assert [side["host"] for side in json.loads(done.stdout)["targets"][0]["points"][0]["sides"]] == ["v2", "", ""]


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
        (("--against", "plugin.py:Bais", *SMALL), "mine: "),
        (("plugin.py:Raises", *SMALL), "plugin.py:Raises on V1: apply: raised RuntimeError: boom"),
        (("plugin.py:Exits", *SMALL), "the process ended with exit code 3 while measuring 2 x 256"),
        (("plugin.py:Prints", *SMALL), "the plugin printed more than 8 MiB while measuring 2 x 256"),
    ],
)
def test_what_cannot_be_measured_is_one_line(lpkit, project: Path, arguments: tuple[str, ...], said: str) -> None:
    done = lpkit("bench", *arguments, cwd=project)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("against = 3", "[tool.lpkit] against must be a list"),
        ("against = [3]", "[tool.lpkit] against must list"),
        ('against = [{ target = "a:B", cas = {} }]', "a:B has unknown keys ['cas']; known: target, case"),
    ],
)
def test_a_wrong_against_in_the_project_is_refused(lpkit, project: Path, line: str, said: str) -> None:
    (project / "pyproject.toml").write_text(PROJECT + line, encoding="utf-8")
    done = lpkit("bench", cwd=project)
    assert done.returncode == 2 and said in done.stderr


def test_a_project_names_what_it_is_measured_against(lpkit, project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT + 'against = ["plugin:Bias"]', encoding="utf-8")
    done = lpkit("bench", *SMALL, "--host", "v1", cwd=project)
    assert done.returncode == 0 and "plugin:Bias on V1" in done.stdout


def test_a_budget_takes_its_sizes_from_the_file_and_fails_when_more_is_done(lpkit, project: Path) -> None:
    recorded = lpkit("bench", *SMALL, "--json", "budget.json", cwd=project)
    assert recorded.returncode == 0
    document = json.loads((project / "budget.json").read_text(encoding="utf-8"))
    for point in document["targets"][0]["points"]:
        for side in point["sides"]:
            side["versus_floor"] = 1e9  # whatever this machine does besides
    (project / "budget.json").write_text(json.dumps(document), encoding="utf-8")
    same = lpkit("bench", "--quick", "--budget", "budget.json", cwd=project)
    assert (same.returncode, "2 x 256" in same.stdout, "3 x 256" in same.stdout) == (0, True, True)
    source = (project / "plugin.py").read_text(encoding="utf-8")
    (project / "plugin.py").write_text(source.replace("unsqueeze(1))", "unsqueeze(1)).add_(0.0)"), encoding="utf-8")
    more = lpkit("bench", "--quick", "--budget", "budget.json", cwd=project)
    assert more.returncode == 1
    assert "WORSE  mine on V1, 2 x 256: " in more.stdout and " operations; there were " in more.stdout
