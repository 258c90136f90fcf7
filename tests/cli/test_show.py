"""``lpkit show`` as its users run it: the gist, the page, the data, and processors that end the reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import write_suspect
from lpkit_cli.app import app
from typer.testing import CliRunner, Result

PLUGIN = """
import time
import lpkit, torch

class Bias(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        bias: float = lpkit.Field(le=9.0)
    bias = lpkit.column(torch.float32)
    def admit(self, request):
        self.bias[request.slot] = request.params.bias
        return True
    def process(self, logits, rows):
        logits[:, 4] += self.bias[rows]
        return logits

class Raises(Bias):
    history = "length"
    def process(self, logits, rows):
        if int(rows.output_len.max()) == 2:
            raise RuntimeError("boom")
        return logits

class Hangs(Bias):
    def process(self, logits, rows):
        time.sleep(60)
"""
PROJECT = """
[project]
name = "mine"
[project.entry-points."vllm.logits_processors"]
mine = "plugin:Bias"
[tool.lpkit]
cases = [{ extra_args = { bias = 9.0 } }]
"""
RULES = '[{"rule": "ban", "phrases": [" town"]}, {"rule": "min_p", "threshold": 0.1}]'

Run = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a project; it starts the child process as always."""
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        done = CliRunner().invoke(app, arguments)
        assert "Traceback" not in done.output
        return done

    return invoke


@pytest.fixture
def run(project: Run, in_process: None) -> Run:
    return project


def test_a_project_is_shown_with_its_case_as_gist_page_and_data(run: Run, tmp_path: Path) -> None:
    done = run("show", "--steps", "6", "--json", "data.json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "acted on 6 of 6 tokens" in done.stdout and "toy" in done.stdout
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["schema"] == "lpkit-show/1" and data["names"] == ["mine"]
    assert json.loads(data["case"])["extra_args"] == {"bias": 9.0}
    assert "acted on 6 of 6 tokens" in (tmp_path / "lpkit-show.html").read_text()


def test_the_steps_of_a_document_are_shown_one_by_one_before_the_targets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(RULES, encoding="utf-8")
    asked = ("--prompt", "There was a small", "--steps", "3", "--json", "-")
    data = json.loads(run("show", "mine", "--rules", "rules.json", *asked).stdout)
    assert data["names"] == ["/0 ban", "/1 min_p", "mine"]
    assert data["receipts"][0]["first"] == 1 and data["receipts"][0]["banned"] == 3
    assert all(step["token"] != " town" for step in data["steps"][:1])


def test_another_version_of_the_same_module_is_compared_on_the_same_request(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/plugin.py").write_text(PLUGIN.replace("+= self", "-= self"), encoding="utf-8")
    done = run("show", "--compare", "plugin.py:Bias,old/plugin.py:Bias", "--steps", "6", "--json", "data.json")
    same, other = json.loads((tmp_path / "data.json").read_text())["compared"]
    assert (same["value"], same["parted"], same["problem"]) == ("plugin.py:Bias", None, "")
    assert other["receipts"][0]["acted"] == 6 and "old/plugin.py:Bias: parts at token" in done.stdout


def test_rules_try_is_show_with_rules(run: Run) -> None:
    done = run("rules", "try", RULES, "--steps", "2")
    assert done.exit_code == 0 and "/0 ban then /1 min_p" in done.stdout


def test_a_processor_that_ends_the_reply_is_named_and_the_steps_before_are_shown(run: Run, tmp_path: Path) -> None:
    done = run("show", "plugin.py:Raises", "--json", "data.json")
    assert done.exit_code == 2
    assert "stopped after 2 tokens: plugin.py:Raises.apply: raised RuntimeError: boom" in done.stderr
    assert len(json.loads((tmp_path / "data.json").read_text())["steps"]) == 2
    assert "Stopped after" in (tmp_path / "lpkit-show.html").read_text()


def test_a_processor_that_hangs_is_named(project: Run, tmp_path: Path) -> None:
    done = project("show", "plugin.py:Hangs", "--limit", "1", "--json", "data.json")
    assert done.exit_code == 2 and "plugin.py:Hangs.apply did not return within 1 s" in done.stderr
    assert json.loads((tmp_path / "data.json").read_text())["steps"] == []


def test_a_saved_failure_is_shown_with_the_tokens_of_the_row_that_differs_until_it_is_fixed(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "suspect.py"
    write_suspect(file, "ForgetsToReplace")
    case = '{"extra_args": {"bias": 2.5}}'
    saved = ".lpkit/failures/suspect.py_Plugin-LP202-v1.json"
    assert saved in run("check", "suspect.py:Plugin", "--select", "LP202", "--case", case).stdout
    done = run("show", "--trace", saved, "--json", "data.json")
    assert done.exit_code == 0 and "`self.biases[0]`, 2.5, which is still there" in done.stdout
    check = json.loads((tmp_path / "data.json").read_text())["check"]
    assert (check["code"], check["finding"]["steps"][-1]["stages"][-1]["moved"] > 0) == ("LP202", True)
    assert "right before: a finishes; c arrives" in (tmp_path / "lpkit-show.html").read_text()
    write_suspect(file, "Good")
    done = run("show", "--trace", saved)
    assert done.exit_code == 2 and "LP202[v1] does not fail now" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plugin.py:Nothing",), "has no attribute 'Nothing'"),
        (("mine", "--host", "export"), "v1 and v2 are shown"),
        (("mine", "--out", "-", "--json", "-"), "only one of"),
        (("mine", "--compare", "bias="), "--compare takes NAME=A,B"),
        (("mine", "--engine", "vllm"), "needs a vLLM that works"),
        (("mine", "--compare", "bias"), "no installed logits processor is named 'bias'"),
        (("mine", "--trace", "x.json"), "the file of --trace holds its processor and its request: omit targets"),
        (("--trace", "x.json", "--seed", "3", "--engine", "vllm", "--case", "{}"), "omit --seed, --engine\n"),
    ],
)
def test_what_cannot_be_shown_is_one_line_and_writes_no_page(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run("show", *arguments)
    assert done.exit_code == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "lpkit-show.html").exists()
