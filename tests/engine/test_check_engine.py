"""``lpkit check --engine vllm`` as its users run it: a correct plugin on both runners, and planted defects."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from site_folder import Site

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
PROBES = Path(__file__).parent / "probes"
SOURCES = [str(ROOT / folder) for folder in ("sdk", "conformance", "cli")]
HOSTILE = ROOT / "tests" / "conformance" / "suspects" / "hostile.py"
REASONING = json.dumps({"extra_args": {"end_after": 2}, "reasoning": {"start": [5], "end": [6, 7], "natural_end": [8]}})
BIAS_CASE = json.dumps({"extra_args": {"bias": 2.5}})
CODES = ("LP901", "LP902", "LP903", "LP904", "LP905")
ON_V2 = (*CODES, "LP906")

Ran = tuple[int, dict[str, Any]]


def lpkit(*arguments: str, cwd: Path, path: Path | None = None) -> tuple[int, str]:
    """Exit code and output of a command with a real engine."""
    done = subprocess.run(
        [sys.executable, "-m", "lpkit_cli.app", *arguments, "--engine", "vllm"],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*SOURCES, *([str(path)] if path else [])])},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def check(*arguments: str, cwd: Path, path: Path | None = None) -> Ran:
    """Exit code and the target's part of the JSON report."""
    code, printed = lpkit("check", *arguments, "--json", "-", cwd=cwd, path=path)
    return code, json.loads(printed)["targets"][0]


def statuses(report: dict[str, Any], host: str) -> dict[str, str]:
    return {item["code"]: item["status"] for item in report["checks"] if item["host"] == host}


def result(report: dict[str, Any], host: str, code: str) -> dict[str, Any]:
    (found,) = [item for item in report["checks"] if (item["host"], item["code"]) == (host, code)]
    return dict(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Looks like an environment with two installed plugins, of which one cannot be imported."""
    folder = tmp_path_factory.mktemp("site")
    for name, target in (("leaves", "engine_check_probes:LeavesAtMoves"), ("broken", "no_such_module:Anything")):
        Site(folder).dist(name, entry_points=f"{name} = {target}")
    source = (PROBES / "engine_check_probes.py").read_text(encoding="utf-8")
    (folder / "engine_check_probes.py").write_text(source, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def runs(site: Path) -> dict[str, Future[Ran]]:
    """Two at a time: each keeps about one core busy."""
    case, slots_case, whispers_case, rounds_case, drafts_case = (
        json.dumps({"extra_args": {key: 7}})
        for key in ("leaves_token", "keeps_token", "whispers_token", "rounds", "drafts_token")
    )
    probes = site / "engine_check_probes.py"
    with ThreadPoolExecutor(2) as pool:
        return {
            "correct": pool.submit(check, cwd=ROOT / "reference_plugins" / "lpkit-target-token"),
            "planted": pool.submit(check, "leaves", "--case", case, "--host", "all", cwd=site, path=site),
            "slots": pool.submit(check, f"{probes}:KeepsSlots", "--case", slots_case, cwd=site),
            "whispers": pool.submit(
                check, f"{probes}:WhispersToSampled", "--case", whispers_case, "--host", "v2", cwd=site
            ),
            "rounds": pool.submit(check, f"{probes}:RoundsItsSums", "--case", rounds_case, "--host", "v2", cwd=site),
            "drafts": pool.submit(check, f"{probes}:ForgetsDrafts", "--case", drafts_case, cwd=site),
            "reasons": pool.submit(
                check, f"{PROBES / 'reads_reasoning.py'}:FavoursTheEnd", "--case", REASONING, "--host", "v1", cwd=site
            ),
            "exits": pool.submit(check, f"{HOSTILE}:Exits", "--case", BIAS_CASE, "--host", "v1", cwd=site),
        }


@pytest.fixture
def correct(runs: dict[str, Future[Ran]]) -> Ran:
    return runs["correct"].result()


@pytest.fixture
def planted(runs: dict[str, Future[Ran]]) -> Ran:
    return runs["planted"].result()


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
    assert "an earlier request is still there" in finding["cause"]
    assert finding["location"].endswith(line_of("def update_state"))


def test_a_plugin_for_v1_only_does_not_start_on_v2_and_the_engine_says_why(planted: Ran) -> None:
    _, report = planted
    assert statuses(report, "v2") == {"LP901": "failed", **dict.fromkeys(ON_V2[1:], "blocked")}
    assert "LeavesAtMoves is not a subclass of vllm" in result(report, "v2", "LP901")["message"]


def test_a_slot_that_keeps_its_last_occupants_state_fails_on_v2(runs: dict[str, Future[Ran]]) -> None:
    """A class with V2's interface only is judged there and nowhere else."""
    code, report = runs["slots"].result()
    assert (code, report["hosts"]) == (1, ["v2"])
    failed = {item["code"] for item in report["checks"] if item["status"] == "failed"}
    assert failed == {"LP902"}
    assert "an earlier request is still there" in result(report, "v2", "LP902")["finding"]["cause"]


def test_a_trace_of_its_neighbours_in_a_sampled_request_fails_on_v2(runs: dict[str, Future[Ran]]) -> None:
    """Only a text that the request follows, and a model that does not round, show it."""
    code, report = runs["whispers"].result()
    assert code == 1
    assert {item["code"] for item in report["checks"] if item["status"] == "failed"} == {"LP902"}
    where = result(report, "v2", "LP902")["finding"]["where"]
    assert "does not use the plugin" in where["request"]
    assert float(where["temperature"]) > 0
    assert int(where["output so far"].split()[0]) >= 2


@pytest.mark.needs_release("0.32")
def test_a_length_that_is_not_the_rows_fails_with_drafts_and_only_there(runs: dict[str, Future[Ran]]) -> None:
    code, report = runs["drafts"].result()
    assert code == 1
    assert {item["code"] for item in report["checks"] if item["status"] == "failed"} == {"LP906"}
    assert result(report, "v2", "LP906")["finding"]["where"]["output so far"] == "5 tokens"


@pytest.mark.needs_release("0.31")
def test_a_processor_whose_own_sums_round_is_not_blamed(runs: dict[str, Future[Ran]]) -> None:
    code, report = runs["rounds"].result()
    assert (code, report["hosts"]) == (0, ["v2"]), report
    assert re.match(r"64 positions, \d+ of them bit for bit, ", result(report, "v2", "LP902")["message"])


@pytest.mark.needs_release("0.31")
def test_what_was_compared_is_told_for_each_runner(correct: Ran) -> None:
    _, report = correct
    v1, v2 = (result(report, host, "LP902")["message"] for host in ("v1", "v2"))
    assert re.fullmatch(r"64 positions, bit for bit, of 14 requests; \d of them followed a given text", v2)
    assert re.fullmatch(r"\d+ positions, bit for bit, of 32 requests; \d+ of them followed a given text", v1)
    assert re.fullmatch(r"\d+ positions, bit for bit", result(report, "v1", "LP904")["message"])


FAILURE = {
    "schema": "lpkit.failure/1",
    "check": "LP202",
    "host": "v2",
    "seed": 0,
    "vocab_size": 512,
    "max_num_seqs": 8,
    "program": {
        "name": "a slot is taken over",
        "max_num_seqs": 8,
        "operations": [
            {"op": "arrive", "request": "a", "variant": 0},
            {"op": "arrive", "request": "b", "variant": 2},
            {"op": "step"},
            {"op": "finish", "request": "a"},
            {"op": "arrive", "request": "c", "variant": None},
            {"op": "step", "count": 3},
        ],
    },
}


def test_a_saved_failure_runs_in_a_real_engine(tmp_path: Path) -> None:
    """A correct plugin passes there: see test_watch.py."""
    saved = tmp_path / "saved.json"
    target = f"{PROBES / 'engine_check_probes.py'}:KeepsSlots"
    case = {"extra_args": {"keeps_token": 7}}
    saved.write_text(json.dumps({**FAILURE, "target": target, "case": case}), encoding="utf-8")
    code, printed = lpkit("replay", str(saved), cwd=tmp_path)
    assert code == 1
    assert printed.splitlines()[-1].startswith("FAILING IN A REAL ENGINE  LP202[v2]")


def test_an_engine_has_the_reasoning_configuration_of_the_case(runs: dict[str, Future[Ran]]) -> None:
    code, report = runs["reasons"].result()
    assert (code, report["hosts"]) == (0, ["v1"]), report
    assert all(item["status"] == "passed" for item in report["checks"]), report


def test_a_plugin_that_ends_the_engines_process_fails_with_its_line(runs: dict[str, Future[Ran]]) -> None:
    code, report = runs["exits"].result()
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
    lines = (PROBES / "engine_check_probes.py").read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return f"engine_check_probes.py:{number}"


def test_a_plugin_without_cases_is_served_with_derived_ones_and_the_report_says_so() -> None:
    code, report = check(f"{PROBES / 'watch_probes.py'}:Trips", "--host", "v1", cwd=PROBES)
    assert (code, report["verdict"]) == (0, "pass")
    assert any("derived from the declared parameters" in note for note in report["notes"])
