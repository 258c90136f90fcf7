"""``lpkit check --engine vllm`` without an engine: what it refuses, what it would send, how it compares."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lpkit_conformance import run
from lpkit_conformance.checks.catalogue import all_checks, chosen
from lpkit_conformance.checks.engine.asks import Answer, Workload
from lpkit_conformance.checks.engine.evidence import Evidence, Expected, Tally, common
from lpkit_conformance.checks.lp9_engine import LP902, LP903, LP904, LP905, LP906
from lpkit_conformance.engine import requests as workloads
from lpkit_conformance.engine.child import in_one_engine
from lpkit_conformance.engine.following import follow, follow_drafts
from lpkit_conformance.engine.requests import BLOCK, MAX_MODEL_LEN
from lpkit_conformance.errors import CaseError, UsageError
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [str(ROOT / folder) for folder in ("sdk", "conformance", "cli")]
VOCAB = 128


def lpkit_check(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lpkit_cli.app", "check", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*([str(path)] if path else []), *SOURCES])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# -- one engine for all cases ----------------------------------------------------------------------------------------


def test_cases_that_name_no_reasoning_markers_get_those_of_the_others() -> None:
    markers = {"start": [5], "end": [6, 7]}
    cases = in_one_engine([Case.parse({"reasoning": markers}), Case.parse({"temperature": 0.5})])
    assert [case.reasoning for case in cases] == [{"start": (5,), "end": (6, 7)}] * 2


def test_cases_with_different_reasoning_markers_are_refused() -> None:
    cases = [Case.parse({"reasoning": {"start": [5], "end": [end]}}) for end in (6, 7)]
    with pytest.raises(CaseError, match="different reasoning markers"):
        in_one_engine(cases)


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_one_line_says_what_is_missing() -> None:
    done = lpkit_check("m:C", "--engine", "vllm")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("lpkit check: --engine vllm needs a vLLM")
    assert "none is installed" in line
    assert not done.stdout


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ImportError('libcuda.so.1 is missing')", "vLLM cannot be imported: ImportError: libcuda.so.1 is miss"),
        ("import os; os._exit(3)", "the process ended with exit code 3"),
    ],
)
def test_a_broken_vllm_is_one_line_too(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(source, encoding="utf-8")
    done = lpkit_check("m:C", "--engine", "vllm", path=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("lpkit check: --engine vllm needs a vLLM")
    assert message in line


def test_a_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="runs on the CPU"):
        run.run(["m:C"], run.Options(engine="vllm", device="cuda"))


@pytest.mark.parametrize(("engine", "code"), [("reference", "LP9"), ("reference", "LP902"), ("vllm", "LP2")])
def test_checks_of_the_other_engine_cannot_be_selected(engine: Any, code: str) -> None:
    with pytest.raises(UsageError, match=f"{code} does not run with --engine {engine}"):
        run.run(["m:C"], run.Options(engine=engine, select=(code,)))


def test_the_reference_runs_no_check_of_the_engine() -> None:
    assert not [check.code for check in chosen(Plan()) if check.code.startswith("LP9")]
    assert not [check.code for check in all_checks() if check.code.startswith("LP9")]
    assert [check.code for check in all_checks("vllm")] == ["LP901", "LP902", "LP903", "LP904", "LP905", "LP906"]
    assert len(all_checks(None)) == len(all_checks()) + 6 + len(all_checks("together"))


# -- what is sent ----------------------------------------------------------------------------------------------------


def make(runner: Any = "v1", invariant: bool = False, case: dict[str, Any] | None = None, vocab: int = 512) -> Workload:
    cases = [Case.parse(case or {"extra_args": {"a": n}}) for n in range(3)]
    return workloads.make(runner, cases, invariant, [("a='x'", {"a": "x"})], vocab, 0)


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize("invariant", [False, True])
def test_users_and_others_greedy_and_sampled_are_mixed(runner: str, invariant: bool) -> None:
    found = make(runner, invariant)
    for batch in found.batches:
        kinds = {(ask.request_id in found.users, ask.params["temperature"] > 0) for ask in batch}
        assert len(kinds) == 4 or (invariant and len(kinds) >= 3)
        assert all(len(ask.prompt_token_ids) + ask.params["max_tokens"] <= MAX_MODEL_LEN for ask in batch)
    assert len(found.asks) == sum(map(len, (*found.batches, found.drafted)))
    assert found == make(runner, invariant), "it is the same every time"


def test_seeds_go_to_requests_that_fit_one_block_only() -> None:
    """A seed in a partial prefill ends vLLM's V1 engine on a CPU."""
    found = make()
    seeded = [ask for ask in found.asks.values() if "seed" in ask.params]
    assert len(seeded) >= 6
    assert all(len(ask.prompt_token_ids) + ask.params["max_tokens"] < BLOCK for ask in found.batches[1])
    assert not [ask for ask in found.batches[0] if "seed" in ask.params]
    long = make(case={"prompt_token_ids": list(range(40))})
    assert not [ask for ask in long.asks.values() if "seed" in ask.params]


def test_greedy_requests_of_an_argmax_invariant_processor_are_not_judged() -> None:
    found = make(invariant=True)
    assert found.unjudged == {name for name, ask in found.asks.items() if ask.params["temperature"] == 0}
    assert not make(invariant=False).unjudged


def test_bad_requests_carry_the_bad_argument() -> None:
    ((text, ask),) = make().bad
    assert text == "a='x'"
    assert ask.params["extra_args"] == {"a": "x"}


def test_a_large_vocabulary_gets_the_short_workload() -> None:
    assert len(make(vocab=32000).asks) < len(make().asks)


def test_sampled_requests_follow_what_they_sampled_alone() -> None:
    found = make("v2")
    alone = {name: Answer(name, [7] * ask.params["max_tokens"]) for name, ask in found.asks.items()}
    for ask in workloads.following(found.batches[0], alone):
        assert ask.text == ((7,) * ask.params["max_tokens"] if ask.params["temperature"] else ())


# -- how rows are compared -------------------------------------------------------------------------------------------


def expected(n: int = 3) -> Expected:
    """Of a plugin that masks all tokens below 64."""
    plain = np.random.default_rng(1).normal(size=(n, VOCAB)).astype(np.float32) * 3
    rows = plain.copy()
    rows[:, :64] = -np.inf
    return Expected(rows, plain)


def test_rows_that_differ_no_more_than_sums_round_are_counted_and_not_blamed() -> None:
    item, tally = expected(), Tally()
    assert tally.compare(item.rows.copy(), item.rows, item.plain) is None
    assert str(tally) == "3 positions, bit for bit"
    got = item.rows.copy()
    got[1, 70] = np.nextafter(got[1, 70], np.float32(100))
    assert tally.compare(got, item.rows, item.plain) is None
    assert str(tally) == "6 positions, 5 of them bit for bit"


def test_a_row_that_the_plugin_leaves_alone_must_be_the_same_bits() -> None:
    plain = expected().plain
    got = plain.copy()
    got[2, 70] = np.nextafter(got[2, 70], np.float32(100))
    found = Tally().compare(got, plain, plain)
    assert found is not None
    assert (found.position, found.token, found.kind) == (2, 70, "stale")
    assert Tally(untouched_exact=False).compare(got, plain, plain) is None, "built-in stages may round differently"


def test_the_first_row_that_differs_is_reported_with_its_worst_token() -> None:
    item = expected()
    got = item.rows.copy()
    got[1, 70] += 1
    got[1, 80] += 2
    got[2, 90] += 9
    found = Tally().compare(got, item.rows, item.plain)
    assert found is not None
    assert (found.position, found.token, found.kind) == (1, 80, "wrong")


@pytest.mark.parametrize(("got", "kind"), [("plain", "lost"), ("rows", "stale")])
def test_a_plugin_that_did_not_act_lost_its_state_and_one_that_should_not_have_is_stale(got: str, kind: str) -> None:
    item = expected()
    other = {"plain": item.rows, "rows": item.plain}[got]
    found = Tally().compare(getattr(item, got), other, item.plain)
    assert found is not None
    assert found.kind == kind


def test_a_mask_that_differs_is_blamed() -> None:
    item = expected()
    got = item.rows.copy()
    got[0, 10] = 1.0
    assert Tally().compare(got, item.rows, item.plain) is not None


def test_answers_are_compared_up_to_and_including_the_first_token_that_differs() -> None:
    assert common([1, 2, 3], [1, 2, 3]) == 3
    assert common([1, 2, 3], [1, 5, 3]) == 2
    assert common([1], [1, 2]) == 1


# -- the verdicts ----------------------------------------------------------------------------------------------------


def evidence(acts: bool = True, runner: Any = "v1") -> Evidence:
    """Of a correct plugin that masks tokens below 64 for those who use it."""
    found = Evidence(runner, make(runner, vocab=VOCAB), drafts=3)
    for name, ask in found.workload.asks.items():
        n = ask.params["max_tokens"]
        item = expected(n)
        if not acts or name not in found.workload.users:
            item = dataclasses.replace(item, rows=item.plain.copy())
        found.expected[name] = item
        found.alone[name] = Answer(name, [5] * n, "length", item.rows.copy())
        answers = found.drafted if ask in found.workload.drafted else found.mixed
        answers[name] = Answer(name, [5] * n, "length", item.rows.copy())
    found.company = {ask.request_id: found.alone[ask.request_id] for ask in found.workload.company}
    found.refused = {ask.request_id: Answer(ask.request_id, error="ValueError: a") for _, ask in found.workload.bad}
    return found


@pytest.mark.parametrize("check", [LP902, LP903, LP904, LP905])
def test_what_agrees_passes(check: Any) -> None:
    assert check().run(evidence())


@pytest.mark.parametrize("check", [LP902, LP903, LP904])
def test_a_plugin_that_never_acts_is_skipped(check: Any) -> None:
    with pytest.raises(Skipped, match="never active"):
        check().run(evidence(acts=False))


class Sampler:
    """Samples 1 for every row."""

    def forward(self, rows: int) -> SimpleNamespace:
        return SimpleNamespace(sampled_token_ids=np.ones((rows, 1), dtype=np.int32))


def test_a_request_on_v1_gets_its_text_in_any_row_and_then_what_is_sampled() -> None:
    requests = {name: SimpleNamespace(output_token_ids=[]) for name in "abc"}
    batch = SimpleNamespace(req_ids=["a", "b"])
    runner = SimpleNamespace(sampler=Sampler(), input_batch=batch, requests=requests)
    follow(runner, {"a": (7, 8), "c": (9,)})
    assert runner.sampler.forward(2).sampled_token_ids.tolist() == [[7], [1]]
    requests["a"].output_token_ids += [7]
    batch.req_ids = ["c", "a"]
    assert runner.sampler.forward(2).sampled_token_ids.tolist() == [[9], [8]]
    requests["a"].output_token_ids += [8]
    assert runner.sampler.forward(2).sampled_token_ids.tolist() == [[9], [1]]


class V2Samplers:
    """Sample 1 for every row without drafts, and take all drafts for right."""

    def sample(self, logits: torch.Tensor, expanded: Any, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(len(slots), dtype=torch.int64), logits

    def _verify(
        self, logits: torch.Tensor, draft_logits: Any, inputs: torch.Tensor, pos: Any, starts: torch.Tensor, slots: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        counts = starts.diff()
        sampled = torch.ones(len(slots), 4, dtype=torch.int64)
        for row, count in enumerate(counts.tolist()):
            sampled[row, : count - 1] = inputs[starts[row] + 1 : starts[row] + count]
        return logits, sampled, counts


def test_a_request_with_drafts_gets_its_text_and_the_drafts_that_say_the_same() -> None:
    states = SimpleNamespace(
        index_to_req_id={0: "free", 2: "a", 3: "b"},
        total_len=SimpleNamespace(gpu=torch.tensor([9, 0, 5, 7])),
        prompt_len=SimpleNamespace(np=np.array([9, 0, 4, 4])),
    )
    samplers = V2Samplers()
    follow_drafts(
        SimpleNamespace(req_states=states, sampler=samplers, rejection_sampler=samplers),
        {"a": (5, 6, 7, 8), "b": (5, 6, 7, 8, 9)},
    )
    slots = torch.tensor([3, 0, 2])
    assert samplers.sample(torch.zeros(3, 9), None, slots)[0].tolist() == [8, 1, 6]
    inputs = torch.tensor([0, 8, 9, 3, 0, 2, 0, 6, 4, 8])
    starts = torch.tensor([0, 4, 6, 10])
    _, sampled, counts = samplers._verify(torch.zeros(10, 9), None, inputs, None, starts, slots)
    kept = [row[:count] for row, count in zip(sampled.tolist(), counts.tolist(), strict=True)]
    assert kept == [[8, 9], [2, 1], [6, 7]], "the text's end, what has no text, and a wrong draft"


def test_the_report_says_what_was_compared_and_what_was_not() -> None:
    found = evidence()
    sampled = [name for name, ask in found.workload.asks.items() if ask.params["temperature"]]
    for name in sampled[1:]:
        found.mixed[name].followed = True
    found.mixed[sampled[0]].token_ids[2] = 6
    positions, left_out = sum(len(ids) for ids in found.tokens().values()), len(found.tokens()[sampled[0]]) - 3
    assert LP902().run(found) == (
        f"{positions - left_out} positions, bit for bit, of {len(found.mixed)} requests; "
        f"{len(sampled) - 1} of them followed a given text; "
        f"{left_out} after sampled tokens that differed are left out"
    )


def test_a_request_whose_case_names_output_writes_it_to_its_end_on_either_runner() -> None:
    own = [7, 8, 9, 10, 11, 12, 13, 14]
    for runner in ("v1", "v2"):
        found = make(runner, case={"output_token_ids": own})
        for ask in itertools.chain(*found.batches):
            assert bool(ask.text) is (ask.request_id in found.users)
            assert ask.text[: len(own)] == tuple(own) * bool(ask.text)
            assert len(ask.text) in (0, ask.params["max_tokens"])
            assert len(ask.prompt_token_ids) + ask.params["max_tokens"] <= workloads.MAX_MODEL_LEN
    assert not any(ask.text for runner in ("v1", "v2") for batch in make(runner).batches for ask in batch)


def someone(found: Evidence, uses: bool) -> str:
    return next(name for name in found.mixed if (name in found.workload.users) is uses)


def test_a_request_with_other_logits_in_the_crowd_fails_the_crowd() -> None:
    found = evidence()
    found.mixed[someone(found, uses=True)].rows[2, 100] += 3
    with pytest.raises(Failed, match="different logits in the batch than alone"):
        LP902().run(found)


def test_a_bystander_that_is_touched_alone_and_in_the_crowd_fails_the_bystanders() -> None:
    found = evidence()
    name = someone(found, uses=False)
    found.mixed[name].rows[1, 3] += 3
    found.alone[name].rows[1, 3] += 3
    LP902().run(found)
    with pytest.raises(Failed, match="does not use the plugin"):
        LP903().run(found)


def test_a_plugin_that_acts_on_every_request_has_no_bystanders() -> None:
    found = evidence()
    name = someone(found, uses=False)
    found.expected[name].rows[0, 3] = -np.inf
    with pytest.raises(Skipped, match="acts on every request"):
        LP903().run(found)


def test_an_engine_that_accepts_a_bad_argument_fails() -> None:
    found = evidence()
    found.refused["bad0"] = Answer("bad0", [1, 2])
    with pytest.raises(Failed, match="accepts a='x'"):
        LP905().run(found)


def test_rows_behind_drafts_that_differ_fail_and_the_drafts_are_blamed() -> None:
    found = evidence(runner="v2")
    assert LP906().run(found) == "42 positions, bit for bit, of 4 requests; 3 tokens were drafted"
    found.drafted["d0"].rows[6, 100] += 3
    LP902().run(found)
    with pytest.raises(Failed, match="different logits with drafts than without") as failed:
        LP906().run(found)
    assert "right in steps without drafts" in failed.value.finding.cause


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"drafts": 0}, "drafted no token"), ({"undrafted": "vLLM 0.31.0 refuses drafts"}, "0.31.0 refuses drafts")],
)
def test_without_drafts_nothing_is_said_of_them(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(Skipped, match=reason):
        LP906().run(dataclasses.replace(evidence(runner="v2"), **change))


def test_the_drafted_requests_prompts_hold_their_texts_with_errors() -> None:
    for ask in make("v2").drafted:
        pairs = set(itertools.pairwise(ask.prompt_token_ids))
        right = [pair in pairs for pair in itertools.pairwise(ask.text)]
        assert any(right)
        assert not set(ask.prompt_token_ids) <= set(ask.text)


def test_a_case_that_the_engine_refuses_fails_with_its_words() -> None:
    found = evidence()
    name = someone(found, uses=True)
    found.alone[name] = Answer(name, error="ValueError: no tokenizer")
    with pytest.raises(Failed, match=r"refuses request .*: ValueError: no tokenizer"):
        LP902().run(found)
