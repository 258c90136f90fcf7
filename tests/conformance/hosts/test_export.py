"""The export host: what other engines show a processor, asked for by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lpkit
import pytest
import torch
import zoo
from lpkit_conformance.bench.child import BenchPlan
from lpkit_conformance.explanation.advice import cause
from lpkit_conformance.hosts.beams import BeamsHost
from lpkit_conformance.hosts.export import ExportProgramHost
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.programs.generate import Arrive, Finish, Step
from lpkit_conformance.report.script import script
from lpkit_conformance.run.failures import from_json, to_text
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.plugin import Plugin
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import compute_check
from lpkit_conformance.vllm_api.tokenizer import END
from zoo.correct.portable import PortableMinP
from zoo.correct.v1_history import History
from zoo.correct.v2 import V2MinP
from zoo.correct.words import BansWords
from zoo.lp231 import Cycle, RaisesBehindTheEnd

CASE = Case.parse(History.CASE)
MIN_P = {"extra_args": {"min_p": 0.2}}


def subject(cls: Any) -> Subject:
    return Subject.of("x", cls, "export", CASE)


class Recorded(History):
    """Notes every history that it is shown, and how large a batch it was built for."""

    built: list[int]
    shown: list[list[tuple[int, ...]]]

    def __init__(self, config: Any, *rest: Any) -> None:
        super().__init__(config, *rest)
        self.built.append(config.scheduler_config.max_num_seqs)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.shown.append([tuple(self.rows[row][1]) for row in sorted(self.rows)])
        return super().apply(logits)


def recorded() -> type[Recorded]:
    class Fresh(Recorded):
        built: list[int] = []
        shown: list[list[tuple[int, ...]]] = []

    return Fresh


def test_beams_are_copies_with_another_last_token_and_finished_rows_are_filled_up() -> None:
    cls = recorded()
    host = BeamsHost(subject(cls), 4)
    seen = list(host.run([Arrive("a", 0), Arrive("b", 1), Step(6), Finish("a"), Step(4)]))
    outputs = {name: active.request.output_token_ids for name, active in host.pool.requests.items()}
    histories = [history for call in cls.shown for history in call]
    pairs = [(list(one), own) for one in histories for own in outputs.values() if 1 < len(one) <= len(own)]
    assert any(one[:-1] == own[: len(one) - 1] and one[-1] != own[len(one) - 1] for one, own in pairs)
    assert any(END in history and history[-1] == 0 for history in histories)
    orders = [[row.request for row in item.rows] for item in seen]
    assert any(order.count("b") > 1 for order in orders)
    assert all(sum(not row.discarded for row in item.rows if row.request == "b") <= 1 for item in seen)


def test_a_larger_batch_gets_another_instance_in_the_middle_of_its_requests() -> None:
    cls = recorded()
    host = ExportProgramHost(subject(cls), 16)
    for _ in host.run([Arrive("a", 0), Step(3), *(Arrive(f"r{i}", 0) for i in range(9)), Step(2)]):
        pass
    assert cls.built == [8, 16]
    assert max(map(len, cls.shown)) == 10


def test_equal_parameters_of_several_requests_are_one_object() -> None:
    host = ExportProgramHost(subject(Cycle), 4)
    for _ in host.run([Arrive("a", 0, character="x"), Arrive("b", 0, character="x"), Step()]):
        pass
    one, other = (host.pool.requests[name].request for name in "ab")
    assert one.params is not other.params
    assert host.driver.shown(one).params is host.driver.shown(other).params


def test_a_plugin_is_judged_on_it_only_if_it_is_asked_for() -> None:
    def hosts(**settings: Any) -> tuple[str, ...]:
        return Session("x", PortableMinP, Plan(cases=(Case.parse(MIN_P),), **settings)).hosts

    assert hosts() == hosts(select=("LP2",)) == hosts(select=("LP231", "LP202")) == ("v1", "v2")
    assert hosts(select=("LP231",)) == hosts(hosts=("export",)) == ("export",)
    assert hosts(hosts=("export", "v2")) == ("v2", "export")


def test_a_class_that_other_engines_cannot_drive_gets_an_error_that_says_so() -> None:
    found = compute_check("LP101", V2MinP, host="export", case={"extra_args": {"floor": 0.15}})
    assert found.status == "failed"
    assert "has no V1 interface, which an export needs" in found.message


class NeedsEndToken(lpkit.LogitsProcessor):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if args[0].model_config.hf_config.eos_token_id is None:
            raise RuntimeError("no end token")

    def process(self, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        return logits


def test_what_only_vllm_gives_a_constructor_is_named_as_the_cause() -> None:
    assert compute_check("LP101", NeedsEndToken, host="v1").status == "passed"
    found = compute_check("LP101", NeedsEndToken, host="export").finding
    assert found is not None
    assert found.cause == cause("elsewhere", "LP101")
    assert "when a request needs it" in found.fix


def test_a_processor_that_is_right_on_vllm_is_not_blamed_for_its_bookkeeping() -> None:
    found = compute_check("LP231", RaisesBehindTheEnd, case=RaisesBehindTheEnd.CASE)
    assert found.status == "failed"
    assert found.finding is not None
    assert found.finding.cause.startswith("on vLLM the plugin is right")
    assert "handle any token" in found.finding.fix
    assert any("finishes" in line for line in found.finding.operations)


def test_the_bench_measures_what_it_is_asked_for() -> None:
    job = {"hosts": ["export"], "vocabs": [128], "batches": [2], "alternatives": None}
    plan = BenchPlan([({"name": "min-p"}, Plugin("min-p", PortableMinP), Case.parse(MIN_P))], job, torch.device("cpu"))
    candidate = plan.candidates(torch.device("cpu"))[0]
    assert (candidate.name, candidate.host) == ("min-p on EXPORT", "export")
    steady = SteadyBatch(2, 128, 16, 1.0, torch.device("cpu"))
    candidate.prepare(steady, steady.change())
    candidate.follow()
    logits = torch.randn(2, 128)
    assert torch.equal(
        candidate.apply(logits).isneginf(), logits < logits.amax(1, keepdim=True) + torch.tensor(0.2).log()
    )


def test_a_failure_on_it_runs_again_and_becomes_a_test() -> None:
    target = "zoo.lp231:RaisesBehindTheEnd"
    failed = compute_check("LP231", target, case=RaisesBehindTheEnd.CASE)
    again = from_json(json.loads(to_text(target, failed)))
    assert again.plan.hosts == ("export",)
    (result,) = Session(target, RaisesBehindTheEnd, again.plan).results()
    assert (result.status, result.message) == ("failed", failed.message)
    written: dict[str, Any] = {}
    exec(script(again, result, target, [], Path()), written)
    with pytest.raises(AssertionError, match="this request has ended"):
        written["test_lp231_export"]()


def test_a_plugin_that_asks_for_words_is_given_the_tokenizer() -> None:
    (case,) = next(item.cases for item in zoo.CORRECT if item.target is BansWords)
    plan = Plan(cases=(case,), hosts=("export",), select=("LP201", "LP231"))
    results = {result.code: result.status for result in Session("x", BansWords, plan).results()}
    assert (results["LP201"], results["LP231"]) == ("passed", "passed")
