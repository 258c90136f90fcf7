"""A trace on a real engine, simulated: the requests for the engine, and the report of the engine's behaviour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance import traces
from lpkit_conformance.checks.engine.asks import Workload
from lpkit_conformance.engine import drafted, traced
from lpkit_conformance.engine.recorded_workloads import WORKLOADS
from lpkit_conformance.engine.requests import following
from lpkit_conformance.engine.sizes import engine_settings
from lpkit_conformance.engine.traced import LONGEST_PROMPT, RUN_UP, has_swaps, met, stays, workload
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.traces import Added, Apply, Placement, Trace, TraceRequest, Update, V1Step, V2Step
from lpkit_conformance.vllm_api.runners import V1, V2

CASE = Case.parse({"extra_args": {"bias": 2.5}})
LEVEL = Case.parse({"extra_args": {"bias": 7.5}})


def made(trace: Trace, pattern: str = "alternating", cases: tuple[Case, ...] = (CASE,), longest: int = 512) -> Workload:
    return workload(trace, pattern, [Subject.of("x", object, trace.runner, case) for case in cases], False, longest)


def saved(**watch: Any) -> Trace:
    """A trace as the watcher of a V1 server saves it: the first step stands for all steps before the last ones."""
    names = ("a", "b")
    added = (Added(0, "a", 0), Added(1, "b", 0))
    rows = (("a", "b"), ("a", "b"), ("a", "b"))
    tokens = ({"a": (0,) * 5, "b": (0,) * 2}, {"a": (0,), "b": (0,)}, {"a": (0,), "b": (0,)})
    steps = tuple(
        V1Step(n, Update(2, (), added, ()) if n == 0 else None, rows[n], True, tokens=tokens[n]) for n in range(3)
    )
    return Trace(
        V1,
        "watch",
        traces.load("v1_churn").engine,
        {
            "max_num_seqs": 256,
            "max_model_len": 40_000,
            "vocab_size": 32_000,
            "watch": {"uses": {"a": True, "b": False}, "arguments": {}, "values": False, "request": "b", **watch},
        },
        "remapped",
        {name: TraceRequest(3, None) for name in names},
        v1_steps=steps,
    )


# -- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v1_churn", "v1_aborts", "v1_chunked", "v1_preempt", "v2_churn", "v2_preempt"])
def test_requests_come_and_leave_as_the_trace_was_made(name: str) -> None:
    asks = made(traces.load(name)).asks
    sent = {ask.request_id: ask for ask in WORKLOADS[name].asks}
    assert set(asks) <= set(sent)
    for request, ask in asks.items():
        assert len(ask.prompt_token_ids) == len(sent[request].prompt_token_ids)
        if sent[request].abort_at is None:
            assert ask.params["max_tokens"] == sent[request].params["max_tokens"]
            assert ask.abort_at is None


def test_a_request_that_left_without_a_token_is_aborted() -> None:
    trace = traces.load("v1_aborts")
    nothing = [name for name, stay in stays(trace).items() if not stay.tokens]
    assert nothing
    asks = made(trace).asks
    for name in nothing:
        assert asks[name].abort_at is not None and asks[name].abort_at > asks[name].at
        assert name in made(trace).beside


def test_users_and_arguments_are_the_patterns_and_the_cases() -> None:
    found = made(traces.load("v1_churn"))
    assert {int(name[1:]) % 2 for name in found.users} == {0}
    assert all(
        ("bias" in (ask.params.get("extra_args") or {})) is (name in found.users) for name, ask in found.asks.items()
    )
    assert all(len(ask.text) == ask.params["max_tokens"] for ask in found.asks.values())


def test_what_requests_had_generated_before_the_trace_is_generated_first() -> None:
    asks = made(saved(), "recorded").asks
    assert {name: (ask.at, ask.params["max_tokens"]) for name, ask in asks.items()} == {"a": (0, 7), "b": (3, 4)}


def test_longer_outputs_and_prompts_are_cut_and_the_notes_say_so() -> None:
    trace = saved()
    steps = (replace(trace.v1_steps[0], tokens={"a": (0,) * 900, "b": (0,)}), *trace.v1_steps[1:])
    requests = {**trace.requests, "b": TraceRequest(9000, None)}
    found = made(replace(trace, v1_steps=steps, requests=requests), "recorded", longest=4096)
    assert found.asks["a"].params["max_tokens"] == RUN_UP + 3
    assert len(found.asks["b"].prompt_token_ids) == LONGEST_PROMPT
    assert found.notes == (
        "1 prompts are cut to 1024 tokens",
        "1 requests have generated 16 tokens when the trace begins, and not as many as in the server",
    )


def test_a_request_uses_the_plugin_with_its_own_arguments_where_the_trace_has_them() -> None:
    trace = saved(values=True, arguments={"a": {"bias": 7.5}, "b": {}})
    assert made(trace, "recorded", (CASE, LEVEL)).asks["a"].params["extra_args"] == {"bias": 7.5}
    assert made(saved(), "recorded", (CASE, LEVEL)).asks["a"].params["extra_args"] == {"bias": 2.5}


def test_of_many_requests_some_are_served_beside_and_the_one_to_blame_is_judged(monkeypatch: Any) -> None:
    monkeypatch.setitem(traced.MOST_JUDGED, V1, 3)
    found = made(saved(), "recorded")
    assert found.beside == found.unjudged == {"a"}
    assert (found.asks["a"].logits, found.asks["b"].logits) == (False, True)
    assert found.notes == ("1 of 2 requests are served in the batch only, and not judged: there are many",)
    assert following(tuple(found.asks.values()), {})


def test_a_v2_request_was_running_before_its_first_row_shows_it() -> None:
    def call(rows: tuple[str, ...], pos: tuple[int, ...]) -> Apply:
        return Apply(rows, pos, (0,) * len(rows), (0,) * len(rows), tuple(p + 1 for p in pos))

    steps = (
        V2Step(0, (), (Placement("a", 0, 3, 3),), True, ()),
        V2Step(1, (), (Placement("b", 1, 3, 3),), True, (call(("a", "b"), (2, 2)),), {"a": (0,), "b": (0,)}),
    )
    trace = replace(saved(), runner=V2, v1_steps=(), v2_steps=steps)
    found = stays(trace)
    assert (found["a"].prompt, found["a"].tokens, found["a"].ahead) == (2, 2, 1)
    assert (found["b"].prompt, found["b"].tokens, found["b"].ahead) == (3, 1, 0)
    asks = made(trace, "recorded").asks
    assert asks["b"].at - asks["a"].at == 1


def test_the_engine_has_the_room_of_the_recorded_one_and_else_enough(tmp_path: Path) -> None:
    recorded = engine_settings(V1, Plan(trace=("v1_preempt", "mixed")))
    assert (recorded.max_model_len, recorded.num_gpu_blocks_override, recorded.max_num_seqs) == (96, 9, 8)
    file = tmp_path / "saved.jsonl"
    requests = {**saved().requests, "b": TraceRequest(900, tuple(range(900)))}
    watch = {**saved().settings["watch"]}
    base = saved()
    traces.write(
        replace(
            base,
            requests={**requests, "a": TraceRequest(3, (1, 2, 3))},
            settings={**base.settings, "watch": watch},
        ),
        file,
    )
    room = engine_settings(V1, Plan(trace=(str(file), "recorded")))
    assert room.max_model_len >= 904 and room.num_gpu_blocks_override is None and room.exact


# -- asynchronous scheduling and drafts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"), [("v1_async", None), ("v2_drafts", "ngram"), ("v2_async", "ngram_gpu"), ("v2_churn", None)]
)
def test_the_engine_is_asynchronous_and_has_drafts_as_the_recorded_one(name: str, method: str | None) -> None:
    extra = engine_settings(traces.load(name).runner, Plan(trace=(name, "alternating"))).extra
    assert extra.get("async_scheduling", False) is name.endswith("async")
    assert extra.get("speculative_config", {}).get("method") == method
    assert not [note for note in made(traces.load(name)).notes if "drafts" in note or "asynchronous" in note]


def test_placeholders_say_that_the_server_was_asynchronous() -> None:
    trace = saved()
    assert not drafted.extra(trace)
    steps = (trace.v1_steps[0], replace(trace.v1_steps[1], placeholders={"a": 1}), trace.v1_steps[2])
    assert drafted.extra(replace(trace, v1_steps=steps)) == {"async_scheduling": True}


@pytest.mark.parametrize("name", ["v2_drafts", "v2_async"])
def test_what_drafts_are_looked_up_in_repeats_itself_as_it_was_recorded(name: str) -> None:
    trace = traces.load(name)
    asks = made(trace).asks
    recorded = {request: [*item.prompt] for request, item in trace.requests.items() if item.prompt}
    for step in trace.steps:
        for request, ids in step.tokens.items():
            recorded[request] += ids
    pairs = set()
    for request, ask in asks.items():
        pairs.update(zip(recorded[request], (*ask.prompt_token_ids, *ask.text), strict=True))
    assert len(pairs) == len({ours for _, ours in pairs}) == len({theirs for theirs, _ in pairs})


def test_a_request_is_done_before_a_step_that_began_too_early() -> None:
    """Requests as recorded: the last of their ``max_tokens`` came with drafts."""
    for name, late in (("v2_async", {"r0": 4, "r3": 4, "r4": 4, "r6": 1}), ("v2_drafts", {})):
        trace = traces.load(name)
        lost = {key: trace.output_lens[key] - stay.tokens for key, stay in stays(trace).items()}
        assert {key: count for key, count in lost.items() if count} == late


def test_requests_that_come_together_are_sent_in_the_order_of_their_slots() -> None:
    trace = traces.load("v2_drafts")
    assert trace.v2_steps[0].applies[0].requests == ("r1", "r0")
    assert list(made(trace).asks)[:2] == ["r0", "r1"]


def test_what_is_still_not_repeated_is_named() -> None:
    trace = traces.load("v2_drafts")
    model = replace(trace, settings={**trace.settings, "speculative_config": {"method": "eagle"}})
    (note,) = made(model).notes
    assert note == "the engine runs without drafts: their drafter (eagle) needs a model"
    named = Case.parse({"extra_args": {"bias": 2.5}, "output_token_ids": [5, 6, 7], "min_p": 0.1})
    notes = made(trace, cases=(named,)).notes
    assert notes == (
        "4 requests write what their case names: their drafts are others than the recorded ones",
        "requests are without min_p, which vLLM refuses next to drafts",
    )
    unknown = {name: replace(item, prompt=None) for name, item in trace.requests.items()}
    (note,) = made(replace(trace, requests=unknown)).notes
    assert note.startswith("drafts are looked up in other texts than the recorded ones")


def test_swaps_are_asked_for_where_the_trace_has_them() -> None:
    assert has_swaps(traces.load("v1_sorted"))
    assert not has_swaps(traces.load("v1_churn"))
    assert not has_swaps(traces.load("v2_churn"))


# -- what it did -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v1_sorted", "v2_preempt"])
def test_an_engine_that_did_the_same_met_all_of_the_trace(name: str) -> None:
    trace = traces.load(name)
    rows, events = met(trace, trace.steps)
    count = rows.split()[1]
    assert rows.startswith(f"met: {count} of the trace's {count} batches have the same requests")
    assert f"{count} by the same" in rows
    pairs = [words.split()[-3::2] for words in events.removeprefix("met, in steps: ").split(", ")]
    assert pairs and all(did == asked for did, asked in pairs)


def test_what_the_engine_did_otherwise_is_counted() -> None:
    trace = traces.load("v1_sorted")
    without = [replace(step, update=None) if step.update and step.update.moved else step for step in trace.v1_steps]
    rows, events = met(trace, without)
    assert "28 of the trace's 28 batches have the same requests in the same rows" in rows
    assert "28 by the same batch updates" not in rows
    assert "swaps 0 of 8" in events
    assert met(trace, without[:10])[0].startswith("met: 9 of") or met(trace, without[:10])[0].startswith("met: 10 of")


def test_updates_of_steps_without_rows_count_with_the_next_batch() -> None:
    trace = saved()
    apart = (replace(trace.v1_steps[0], applied=False, tokens={}), replace(trace.v1_steps[0], update=None))
    assert met(replace(trace, v1_steps=apart), trace.v1_steps[:1])[0].startswith("met: 1 of the trace's 1 batches")
    assert "1 by the same" in met(replace(trace, v1_steps=apart), trace.v1_steps[:1])[0]
