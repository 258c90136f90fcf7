"""``lpkit replay --engine vllm`` without an engine: what it would send, and what the answers mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lpkit_cli.app import app
from lpkit_conformance.checks.engine.asks import Workload
from lpkit_conformance.engine import checking
from lpkit_conformance.engine.played import left_to_the_engine, workload
from lpkit_conformance.engine.requests import ROOMY_MODEL_LEN
from lpkit_conformance.engine.sizes import engine_settings
from lpkit_conformance.errors import FailureFileError
from lpkit_conformance.programs.generate import (
    Arrive,
    Finish,
    Idle,
    Op,
    Preempt,
    Resume,
    Speculate,
    Step,
    Swap,
    program,
)
from lpkit_conformance.results import CheckResult, Finding, TargetResult
from lpkit_conformance.run import failures
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from typer.testing import CliRunner

GOLDEN = Path(__file__).parents[2] / "contracts" / "golden" / "failures"
CASE = Case.parse({"extra_args": {"bias": 2.5}, "generated": 2})


def made(*ops: Op, most: int = 8, unjudged: bool = False) -> Workload:
    return workload(program("p", *ops, max_num_seqs=most), Subject.of("x", object, "v2", CASE), unjudged)


def lifetimes(*ops: Op, most: int = 8) -> dict[str, tuple[int, int]]:
    return {name: (ask.at, ask.params["max_tokens"]) for name, ask in made(*ops, most=most).asks.items()}


# -- what is sent ----------------------------------------------------------------------------------------------------


def test_requests_arrive_and_finish_at_the_programs_steps() -> None:
    ops = (Arrive("a", None), Step(2), Arrive("b", None), Step(), Finish("a"), Step(3))
    assert lifetimes(*ops) == {"a": (0, 3), "b": (2, 4)}


def test_a_request_that_gets_no_token_is_not_sent() -> None:
    assert list(lifetimes(Arrive("a", None), Finish("a"), Arrive("b", None), Step(), Arrive("c", None))) == ["b"]


def test_a_full_batch_takes_nobody_until_someone_leaves() -> None:
    ops = (Arrive("a", None), Arrive("b", None), Step(), Finish("a"), Arrive("c", None), Step())
    assert list(lifetimes(*ops, most=1)) == ["a", "c"]


def test_output_that_a_request_came_with_is_generated_first() -> None:
    assert lifetimes(Arrive("a", 0), Step(3)) == {"a": (0, 5)}


def test_prompts_and_texts_are_those_of_the_hosts() -> None:
    subject = Subject.of("x", object, "v2", CASE)
    ask = made(Arrive("a", None, 7), Step(4)).asks["a"]
    assert ask.prompt_token_ids == tuple(subject.model.prompt("a", 7, None))
    assert ask.text == tuple(subject.model.emitted("a", None, 4))


def test_users_get_the_cases_arguments_and_twins_those_of_their_twin() -> None:
    found = made(Arrive("a", 0), Arrive("b", None), Arrive("c", 0, twin_of="a"), Step())
    assert found.users == {"a", "c"}
    assert found.asks["a"].params["extra_args"] == {"bias": 2.5} == found.asks["c"].params["extra_args"]
    assert found.asks["a"].prompt_token_ids == found.asks["c"].prompt_token_ids
    assert "bias" not in (found.asks["b"].params.get("extra_args") or {})


def test_greedy_requests_are_greedy_and_not_judged_where_v1_ignores_the_result() -> None:
    ops = (Arrive("a", 0, greedy=True), Arrive("b", 0), Step())
    found = made(*ops, unjudged=True)
    assert [ask.params["temperature"] > 0 for ask in found.asks.values()] == [False, True]
    assert found.unjudged == {"a"}
    assert not made(*ops).unjudged


def test_no_request_is_longer_than_the_engine_takes() -> None:
    ask = made(Arrive("a", 0), Step(10_000)).asks["a"]
    assert len(ask.prompt_token_ids) + ask.params["max_tokens"] == ROOMY_MODEL_LEN


def test_the_engine_of_a_saved_failure_has_room_for_all_of_its_requests() -> None:
    found = engine_settings("v2", Plan(program=program("p", Step(), max_num_seqs=20)))
    assert (found.max_num_seqs, found.num_gpu_blocks_override, found.exact) == (20, None, True)
    assert engine_settings("v2", Plan()).num_gpu_blocks_override


def test_what_cannot_be_asked_of_an_engine_is_named() -> None:
    ops = (Arrive("a", chunks=2), Preempt("a"), Resume("a"), Swap(0, 1), Idle(), Speculate(), Step())
    assert left_to_the_engine(program("p", *ops)) == [
        "preemptions",
        "swaps of rows",
        "steps without tokens",
        "drafts",
        "prompts in pieces",
        "the order of rows",
    ]
    assert left_to_the_engine(program("p", Arrive("a"), Step())) == ["the order of rows"]


# -- what its answers mean -------------------------------------------------------------------------------------------


def answered(status: Any, error: str = "") -> TargetResult:
    finding = Finding("request c got different logits in the batch than alone") if status == "failed" else None
    checks = (
        CheckResult("LP901", "engine-starts", "v2", "passed"),
        CheckResult("LP902", "engine-crowd", "v2", status, "5 positions, bit for bit, of 3 requests", finding),
    )
    return TargetResult("plugin.py:Plugin", ("v2",), checks, "v2", "vLLM 0.32.0", error)


@pytest.mark.parametrize(
    ("status", "error", "code", "said"),
    [
        ("passed", "", 0, "PASSED  the requests of LP201[v1] get the same logits in a real engine's batch as alone"),
        ("failed", "", 1, "FAILING IN A REAL ENGINE  LP201[v1]"),
        ("skipped", "the plugin never acted", 2, "ERROR  LP201[v1]"),
    ],
)
def test_exit_codes_are_those_of_a_replay(
    status: Any, error: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Plan] = []
    monkeypatch.setattr(checking, "require_vllm", lambda: None)
    monkeypatch.setattr(
        checking, "check_target", lambda target, plan, path, **_: asked.append(plan) or answered(status, error)
    )
    saved = {**json.loads((GOLDEN / "program.json").read_text(encoding="utf-8")), "check": "LP201", "host": "v1"}
    (tmp_path / "saved.json").write_text(json.dumps(saved), encoding="utf-8")
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "saved.json"), "--engine", "vllm"])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (code, said)
    assert "note: left to the engine: " in done.stdout
    (plan,) = asked
    assert plan.program is not None
    assert (plan.hosts, plan.select) == (("v1",), ("LP901", "LP902", "LP903"))


def test_another_host_is_refused() -> None:
    saved = json.loads((GOLDEN / "program.json").read_text(encoding="utf-8"))
    with pytest.raises(FailureFileError, match="not a runner of vLLM"):
        failures.rerun_on_engine(failures.from_json({**saved, "host": "export", "check": "LP201"}))


def test_a_failure_in_a_trace_is_asked_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Plan] = []
    monkeypatch.setattr(checking, "require_vllm", lambda: None)
    monkeypatch.setattr(
        checking, "check_target", lambda target, plan, path, **_: asked.append(plan) or answered("passed")
    )
    failure = failures.from_json(json.loads((GOLDEN / "trace.json").read_text(encoding="utf-8")))
    assert failures.outcome_on_engine(failures.rerun_on_engine(failure)) == "fixed"
    (plan,) = asked
    assert plan.trace == failure.plan.trace is not None
    assert plan.select == ("LP901", "LP902", "LP903")
