"""Saved failures: readable files that hold everything and run again, and files that do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import zoo
from lpkit.loading import resolve_target
from lpkit_conformance.errors import FailureFileError
from lpkit_conformance.programs.as_json import KINDS, op_from_json, op_to_json, program_from_json, program_to_json
from lpkit_conformance.programs.generate import (
    Arrive,
    Finish,
    Idle,
    Op,
    Preempt,
    Program,
    Resume,
    Speculate,
    Step,
    Swap,
    soak,
)
from lpkit_conformance.report.replay import lines
from lpkit_conformance.results import CheckResult, Finding, Report, TargetResult
from lpkit_conformance.run import failures
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import compute_check

SUSPECTS = Path(__file__).parents[1] / "suspects"
TARGET = f"{SUSPECTS / 'bias.py'}:ForgetsToReplace"
GOOD = f"{SUSPECTS / 'bias.py'}:Good"
CASE = Case.parse({"extra_args": {"bias": 2.5}})
PLAN = Plan(cases=(CASE,), select=("LP202",))

pytestmark = pytest.mark.usefixtures("in_process")

OPS: tuple[Op, ...] = (
    Arrive("a", 0),
    Arrive("b", None, 9, chunks=2, greedy=True),
    Arrive("c", 3, twin_of="a"),
    Finish("a"),
    Preempt("b"),
    Resume("b"),
    Resume("b", new_list=True),
    Swap(0, 1),
    Step(),
    Step(7),
    Idle(),
    Speculate(),
    Speculate(3, 0),
)


@pytest.fixture(scope="module")
def failed() -> CheckResult:
    """The command's result for a plugin that fails LP202."""
    return compute_check("LP202", TARGET, case=CASE)


@pytest.fixture
def saved(failed: CheckResult, tmp_path: Path) -> Path:
    report = failures.save(Report((TargetResult(TARGET, ("v1",), (failed,)),)), tmp_path)
    finding = report.targets[0].checks[0].finding
    assert finding is not None
    return Path(finding.saved)


# -- operations as JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS, ids=str)
def test_an_operation_comes_back_as_it_was(op: Op) -> None:
    assert op_from_json(json.loads(json.dumps(op_to_json(op)))) == op


def test_every_operation_has_a_name() -> None:
    assert set(KINDS.values()) == set(Op.__subclasses__())
    assert {type(op) for op in OPS} == set(KINDS.values())


@pytest.mark.parametrize("drafts", [False, True])
def test_a_program_comes_back_as_it_was(drafts: bool) -> None:
    program = soak(3, drafts=drafts)
    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("step", """an operation is an object like {"op": "step"}, not 'step'"""),
        ({}, "unknown operation None"),
        ({"op": "arive", "request": "a"}, "unknown operation 'arive'; did you mean 'arrive'?"),
        ({"op": "zzz"}, "known: arrive, finish"),
        ({"op": ["step"]}, "unknown operation ['step']"),
        ({"op": "arrive"}, "arrive needs a field 'request'"),
        ({"op": "arrive", "request": "a", "varient": 1}, "arrive has no field 'varient'; did you mean 'variant'?"),
        ({"op": "arrive", "request": 1}, "arrive: request must be a string, not 1"),
        ({"op": "arrive", "request": "a", "variant": "0"}, "variant must be a whole number or null, not '0'"),
        ({"op": "arrive", "request": "a", "greedy": 1}, "greedy must be true or false, not 1"),
        ({"op": "arrive", "request": "a", "prompt_len": 0}, "prompt_len must be between 1 and 10000, not 0"),
        ({"op": "arrive", "request": "a", "chunks": -1}, "chunks must be between 0 and 10000, not -1"),
        ({"op": "step", "count": True}, "count must be a whole number, not True"),
        ({"op": "step", "count": 0}, "count must be between 1 and 10000, not 0"),
        ({"op": "step", "count": 10**9}, "count must be between 1 and 10000"),
        ({"op": "swap", "first": 0}, "swap needs a field 'second'"),
        ({"op": "speculate", "drafts": 1, "accepted": 2}, "accepted (2) cannot exceed drafts (1)"),
    ],
)
def test_an_operation_that_does_not_fit_says_what_would(value: object, message: str) -> None:
    with pytest.raises(FailureFileError) as error:
        op_from_json(value)
    assert message in str(error.value)


# -- files -------------------------------------------------------------------------------------------------------


def test_a_failure_is_saved_with_one_operation_per_line(saved: Path) -> None:
    assert saved.name.endswith("bias.py_ForgetsToReplace-LP202-v1.json")
    text = saved.read_text(encoding="utf-8")
    data = json.loads(text)
    assert data["schema"] == "lpkit.failure/1"
    assert (data["target"], data["check"], data["host"]) == (TARGET, "LP202", "v1")
    assert data["case"] == {"extra_args": {"bias": 2.5}}
    for operation in data["program"]["operations"]:
        assert f"\n      {json.dumps(operation)}" in text
    assert 3 <= len(data["program"]["operations"]) <= 6


def test_a_saved_failure_is_loaded_with_everything_it_needs(saved: Path, failed: CheckResult) -> None:
    failure = failures.load(saved)
    assert (failure.target, failure.code, failure.host) == (TARGET, "LP202", "v1")
    plan = failure.plan
    assert (plan.cases, plan.hosts, plan.select) == (PLAN.cases, ("v1",), ("LP202",))
    assert (plan.seed, plan.vocab_size, plan.max_num_seqs) == (0, 512, 8)
    assert failed.finding is not None and failed.finding.scenario is not None
    assert plan.program == program_from_json(failed.finding.scenario["program"])


def test_only_failures_with_operations_that_are_not_announced_are_saved(failed: CheckResult, tmp_path: Path) -> None:
    plain = CheckResult("LP102", "x", "", "failed", "m", Finding("m"))
    passed = CheckResult("LP001", "y", "", "passed")
    report = Report((TargetResult("t", (), (plain, passed, replace(failed, status="expected"))),))
    assert failures.save(report, tmp_path / "new") == report
    assert not (tmp_path / "new").exists()


def test_the_default_folder_keeps_itself_out_of_git(failed, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures.save(Report((TargetResult("a b/c:D", (), (failed,)),)), failures.FOLDER)
    assert (tmp_path / ".lpkit" / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert (tmp_path / ".lpkit" / "failures" / "a_b_c_D-LP202-v1.json").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "lpkit.failure/9"}, "this has the schema 'lpkit.failure/9'; `lpkit replay` reads lpkit.failure/1"),
        ({"schema": None}, "this has no schema"),
        ({"chekc": "LP202"}, "unknown key 'chekc'; did you mean 'check'?"),
        ({"check": "LP2O2"}, "there is no check 'LP2O2'; did you mean 'LP2"),
        ({"check": "LP102"}, "LP102 runs on no host, not on 'v1'"),
        ({"host": "v3"}, "LP202 runs on v1, v2, export, not on 'v3'"),
        ({"seed": "0"}, "seed must be a whole number, not '0'"),
        ({"seed": True}, "seed must be a whole number, not True"),
        ({"vocab_size": 100}, "vocab_size must be a multiple of 128, not 100"),
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1, not 0"),
        ({"case": {"extra_arg": {}}}, "did you mean 'extra_args'?"),
        ({"case": []}, "case must be an object, not []"),
        ({"program": {"max_num_seqs": 8, "operations": []}}, "operations must be a list with at least one operation"),
        ({"program": {"max_num_seqs": 8}}, "operations must be a list"),
        ({"program": {"operations": [{"op": "step"}]}}, "the program's max_num_seqs must be between 1 and 10000"),
        ({"program": {"max_num_seqs": 8, "operations": [{"op": "step"}, {"op": "stop"}]}}, "operation 2: unknown"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(saved: Path, change: dict, message: str) -> None:
    saved.write_text(json.dumps({**json.loads(saved.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(FailureFileError) as error:
        failures.load(saved)
    assert message in str(error.value)
    assert str(saved) in str(error.value)


TRACE = {"check": "LP220", "trace": "v1_churn", "pattern": "all"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trace": "v1_chum"}, "there is no trace 'v1_chum' for v1; did you mean 'v1_churn'?"),
        ({"trace": "v2_churn"}, "there is no trace 'v2_churn' for v1"),
        ({"pattern": "al"}, "there is no pattern 'al'; did you mean 'all'?"),
        ({"check": "LP202"}, "LP202 replays no recorded trace; LP220 does"),
        ({"program": {}}, "a program or a trace, not both"),
        ({"pattern": None}, "pattern must be a string"),
        ({"pattern": ...}, "pattern is missing"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused_by_name(saved: Path, change: dict, message: str) -> None:
    data = {**json.loads(saved.read_text(encoding="utf-8")), "program": ..., **TRACE, **change}
    with pytest.raises(FailureFileError) as error:
        failures.from_json({key: value for key, value in data.items() if value is not ...})
    assert message in str(error.value)


@pytest.mark.parametrize("key", ["target", "check", "host", "case", "seed", "vocab_size", "max_num_seqs", "program"])
def test_a_missing_key_is_named(saved: Path, key: str) -> None:
    data = json.loads(saved.read_text(encoding="utf-8"))
    del data[key]
    with pytest.raises(FailureFileError, match=f"{key} is missing"):
        failures.from_json(data)


@pytest.mark.parametrize(
    ("content", "message"), [(b"{", "is not JSON"), (b"\xff\xff", "is not a text file"), (b"[]", "object")]
)
def test_a_file_that_is_no_failure_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(FailureFileError, match=message):
        failures.load(tmp_path / "x.json")


def test_a_mistyped_file_name_is_answered_with_the_nearest(saved: Path) -> None:
    with pytest.raises(FailureFileError, match=rf"did you mean .*{saved.name}'\?"):
        failures.load(saved.with_name(saved.name.replace("LP202", "LP203")))


# -- running again -----------------------------------------------------------------------------------------------


def test_the_same_operations_give_the_same_finding(saved: Path, failed: CheckResult) -> None:
    result = failures.rerun(failures.load(saved))
    (check,) = result.checks
    assert check.finding is not None and failed.finding is not None
    same = ("summary", "where", "expected", "got", "operations", "picture", "scenario")
    assert [getattr(check.finding, name) for name in same] == [getattr(failed.finding, name) for name in same]


def test_a_replay_has_what_the_project_gives_its_plugin(saved: Path, tmp_path: Path, monkeypatch) -> None:
    settings = '[tool.lpkit]\nmodel = { own = 3 }\nenvironment = { OWN = "1" }\n'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "own"\nversion = "0"\n{settings}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    given: list[Plan] = []

    def check(spec: str, plan: Plan, path: list[str], limit: float) -> TargetResult:
        given.append(plan)
        return TargetResult(spec, (), ())

    monkeypatch.setattr(failures, "check_target", check)
    failures.rerun(replace(failures.load(saved), target=f"{tmp_path / 'own.py'}:Own"))
    assert (given[0].model, given[0].environment) == ({"own": 3}, {"OWN": "1"})


@pytest.mark.parametrize(
    ("target", "repeats", "expected"),
    [
        (GOOD, True, "fixed"),
        (GOOD, False, "silent"),  # passing what failed only after earlier runs is no proof
        (TARGET, False, "failing"),
        ("no_module:X", True, "unknown"),
    ],
)
def test_a_plugin_that_passes_these_operations_is_fixed(
    saved: Path, target: str, repeats: bool, expected: failures.Outcome
) -> None:
    failure = replace(failures.load(saved), target=target, repeats=repeats)
    result = failures.rerun(failure)
    assert failures.outcome(failure, result) == expected
    if target == GOOD and not repeats:
        last = list(lines(failure, result, expected))[-1]
        assert last.startswith("DID NOT REPRODUCE") and "run `lpkit check`" in last
    assert ("no module" in result.error) == (target == "no_module:X")


def test_a_failure_next_to_a_request_of_another_case_is_saved_with_that_case() -> None:
    way = zoo.specimen("v1-LastWay")
    result = compute_check("LP201", way.target, case=way.case, others=way.others)
    failure = failures.from_json(json.loads(failures.to_text("way", result)))
    assert failure.plan.others == way.others
    again = Session("way", way.target, replace(failure.plan, alone=True)).result("LP201[v1]")
    assert (again.status, again.message) == ("failed", result.message)


def test_operations_in_which_the_plugin_never_acts_do_not_reproduce_the_failure(saved: Path) -> None:
    failure = failures.load(saved)
    idle = replace(failure, plan=replace(failure.plan, program=Program("", (Arrive("a", None), Step()))))
    result = failures.rerun(idle)
    assert [check.status for check in result.checks] == ["skipped"]
    assert failures.outcome(idle, result) == "silent"
    assert list(lines(idle, result, "silent"))[-1].startswith(
        "DID NOT REPRODUCE  LP202[v1] passes, which proves nothing: "
    )


def test_a_failure_on_a_recorded_trace_is_saved_and_fails_again_on_that_trace_alone(tmp_path: Path) -> None:
    plan = replace(PLAN, select=("LP220",), trace=("v1_churn", "alternating"))
    (first,) = Session(TARGET, resolve_target(TARGET), plan).results()
    assert first.finding is not None
    report = failures.save(Report((TargetResult(TARGET, ("v1",), (first,)),)), tmp_path)
    finding = report.targets[0].checks[0].finding
    assert finding is not None
    failure = failures.load(Path(finding.saved))
    result = failures.rerun(failure)
    (check,) = result.checks
    assert (failures.outcome(failure, result), check.code) == ("failing", "LP220")
    assert check.finding is not None and check.finding.where == first.finding.where
