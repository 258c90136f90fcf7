"""``lpkit check --engine vllm`` as its users run it: a correct plugin on both runners, and planted defects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import pytest
from lpkit_cli.app import app
from site_folder import Site
from typer.testing import CliRunner

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
PROBES = Path(__file__).parent / "probes"
PLANTED = PROBES / "engine_check_probes.py"
HOSTILE = ROOT / "tests" / "conformance" / "suspects" / "hostile.py"
REASONING = json.dumps({"extra_args": {"end_after": 2}, "reasoning": {"start": [5], "end": [6, 7], "natural_end": [8]}})
CODES = ("LP901", "LP902", "LP903", "LP904", "LP905")
ON_V2 = (*CODES, "LP906")

Ran = tuple[int, dict[str, Any]]
"""Exit code, and the target's part of the JSON report."""

Check = Callable[..., Ran]


def invoke(folder: Path, *arguments: str) -> Any:
    """Run the command in this process, in a folder; its engines are real and have their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        return CliRunner().invoke(app, [*arguments, "--engine", "vllm"])


def judged(folder: Path, *arguments: str) -> Ran:
    done = invoke(folder, "check", *arguments, "--json", "-")
    assert not done.stderr, done.stderr
    return done.exit_code, json.loads(done.stdout)["targets"][0]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """``check(target, argument=7)``: checks of a target with one case, on the runners whose interface it has."""

    def run(target: str, *options: str, **case: Any) -> Ran:
        given = ("--case", json.dumps({"extra_args": case})) if case else ()
        return judged(tmp_path, target, *given, *options)

    return run


def statuses(report: dict[str, Any], host: str) -> dict[str, str]:
    return {item["code"]: item["status"] for item in report["checks"] if item["host"] == host}


def failed(report: dict[str, Any]) -> set[str]:
    return {item["code"] for item in report["checks"] if item["status"] == "failed"}


def result(report: dict[str, Any], host: str, code: str) -> dict[str, Any]:
    (found,) = [item for item in report["checks"] if (item["host"], item["code"]) == (host, code)]
    return dict(found)


@pytest.fixture(scope="module")
def correct() -> Ran:
    return judged(ROOT / "reference_plugins" / "lpkit-target-token")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Of two installed plugins, one cannot be imported."""
    site = tmp_path_factory.mktemp("site")
    for name, target in (("leaves", "engine_check_probes:LeavesAtMoves"), ("broken", "no_such_module:Anything")):
        Site(site).dist(name, entry_points=f"{name} = {target}")
    return judged(site, "leaves", "--case", json.dumps({"extra_args": {"leaves_token": 7}}), "--host", "all")


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_a_correct_plugin_passes_on_both_runners(host: str, correct: Ran) -> None:
    code, report = correct
    assert statuses(report, host) == dict.fromkeys(ON_V2 if host == "v2" else CODES, "passed"), report
    assert (code, report["verdict"]) == (0, "pass")


@pytest.mark.needs_release("0.31")
def test_the_report_says_which_runners_it_ran_on(correct: Ran) -> None:
    _, report = correct
    assert report["hosts"] == ["v1", "v2"]
    assert "V1 (cpu_model_runner.CPUModelRunner) and V2 (cpu.model_runner.CPUModelRunner)" in report["against"]
    assert "vllm.v1.worker.cpu.model_runner.CPUModelRunner" in result(report, "v2", "LP901")["message"]


def test_nothing_but_the_engines_checks_runs(correct: Ran) -> None:
    _, report = correct
    assert {item["code"] for item in report["checks"]} == set(ON_V2)


def test_state_left_behind_by_a_move_fails_on_v1_once(planted: Ran) -> None:
    code, report = planted
    assert code == 1
    assert statuses(report, "v1") == {
        "LP901": "passed",
        "LP902": "failed",
        "LP903": "blocked",
        "LP904": "blocked",
        "LP905": "blocked",
    }
    finding = result(report, "v1", "LP902")["finding"]
    assert "does not use the plugin" in finding["where"]["request"]
    added = 20.0 / float(finding["where"]["temperature"])
    assert float(finding["got"]) == pytest.approx(float(finding["expected"]) + added, abs=0.01)
    assert "an earlier request is still in use" in finding["cause"]
    assert finding["location"].endswith(line_of("def update_state"))


def test_a_plugin_for_v1_only_does_not_start_on_v2_and_the_engine_says_why(planted: Ran) -> None:
    _, report = planted
    assert statuses(report, "v2") == {"LP901": "failed", **dict.fromkeys(ON_V2[1:], "blocked")}
    assert "LeavesAtMoves is not a subclass of vllm" in result(report, "v2", "LP901")["message"]


def test_a_trace_of_its_neighbours_in_a_sampled_request_fails_on_v2(check: Check) -> None:
    """Only a text that the request follows, and a model that does not round, show it."""
    code, report = check(f"{PLANTED}:WhispersToSampled", whispers_token=7)
    assert (code, failed(report)) == (1, {"LP902"})
    where = result(report, "v2", "LP902")["finding"]["where"]
    assert "does not use the plugin" in where["request"]
    assert float(where["temperature"]) > 0
    assert int(where["output so far"].split()[0]) >= 2


@pytest.mark.needs_release("0.32")
def test_a_length_that_is_not_the_rows_fails_with_drafts_and_only_there(check: Check) -> None:
    code, report = check(f"{PLANTED}:ForgetsDrafts", drafts_token=7)
    assert (code, failed(report)) == (1, {"LP906"})
    assert result(report, "v2", "LP906")["finding"]["where"]["output so far"] == "5 tokens"


@pytest.mark.needs_release("0.31")
def test_a_processor_whose_own_sums_round_is_not_blamed(check: Check) -> None:
    code, report = check(f"{PLANTED}:RoundsItsSums", rounds=7)
    assert (code, report["hosts"]) == (0, ["v2"]), report
    assert re.match(r"64 positions, \d+ of them bit for bit, ", result(report, "v2", "LP902")["message"])


@pytest.mark.needs_release("0.31")
def test_what_was_compared_is_reported_for_each_runner(correct: Ran) -> None:
    _, report = correct
    v1, v2 = (result(report, host, "LP902")["message"] for host in ("v1", "v2"))
    assert re.fullmatch(r"64 positions, bit for bit, of 14 requests; \d of them followed a given text", v2)
    assert re.fullmatch(r"\d+ positions, bit for bit, of 32 requests; \d+ of them followed a given text", v1)
    assert re.fullmatch(r"\d+ positions, bit for bit", result(report, "v1", "LP904")["message"])


def test_a_saved_failure_runs_in_a_real_engine(tmp_path: Path) -> None:
    """A correct plugin passes there: see test_online.py."""
    saved = tmp_path / "saved.json"
    held = ROOT / "tests" / "contracts" / "golden" / "failures" / "program.json"
    target = {"target": f"{command.FIXTURES / 'plugins.py'}:KeepsSlots", "host": "v2"}
    saved.write_text(json.dumps(json.loads(held.read_text(encoding="utf-8")) | target), encoding="utf-8")
    done = invoke(tmp_path, "replay", str(saved))
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1].startswith("FAILING IN A REAL ENGINE  LP202[v2]")


def test_an_engine_has_the_reasoning_configuration_of_the_case(check: Check) -> None:
    code, report = check(f"{PROBES / 'reads_reasoning.py'}:FavoursTheEnd", "--case", REASONING, "--host", "v1")
    assert (code, report["hosts"]) == (0, ["v1"]), report
    assert all(item["status"] == "passed" for item in report["checks"]), report


def test_a_plugin_that_ends_the_engines_process_fails_with_its_line(check: Check) -> None:
    code, report = check(f"{HOSTILE}:Exits", "--host", "v1", bias=2.5)
    assert code == 1
    assert statuses(report, "v1") == {"LP901": "passed", "LP902": "failed", **dict.fromkeys(CODES[2:], "blocked")}
    finding = result(report, "v1", "LP902")["finding"]
    assert finding["got"] == "the process ended with exit code 0"
    lines = HOSTILE.read_text(encoding="utf-8").splitlines()
    assert finding["location"] == f"{HOSTILE}:{lines.index('        os._exit(0)') + 1}"


def test_other_installed_plugins_are_left_out(planted: Ran) -> None:
    """One that cannot be imported would keep vLLM from starting; and the target itself is loaded once."""
    _, report = planted
    assert report["interface"] == "v1"
    assert result(report, "v1", "LP901")["status"] == "passed"


def line_of(text: str) -> str:
    lines = PLANTED.read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return f"engine_check_probes.py:{number}"


def test_a_plugin_without_cases_is_served_with_derived_ones_and_the_report_says_so(check: Check) -> None:
    code, report = check(f"{PROBES / 'watch_probes.py'}:Trips", "--host", "v1")
    assert (code, report["verdict"]) == (0, "pass")
    assert any("derived from the declared parameters" in note for note in report["notes"])
