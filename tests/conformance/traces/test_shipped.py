"""The traces that ship with lpkit: they load, they show what their names promise, and they hold nothing private."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from importlib import resources

import pytest
from lpkit_conformance import traces
from lpkit_conformance.engine.recorded_workloads import WORKLOADS

PROMISED: Mapping[str, set[str]] = {
    "v1_steady": {"add", "no update"},
    "v1_churn": {"add", "remove", "move", "no update", "empty"},
    "v1_chunked": {"add", "partial prefill", "move"},
    "v1_preempt": {"add", "remove", "resume", "move"},
    "v1_aborts": {"add", "remove", "partial prefill", "empty"},
    "v1_big": {"add", "remove", "move"},
    "v1_async": {"add", "resume", "fresh", "move", "partial prefill", "placeholder"},
    "v1_sorted": {"add", "remove", "move", "swap", "partial prefill", "no update", "empty"},
    "v1_swaps": {"add", "remove", "resume", "move", "swap", "no update", "empty", "idle"},
    "v2_steady": {"add", "free"},
    "v2_churn": {"add", "free"},
    "v2_chunked": {"add", "free", "partial prefill"},
    "v2_preempt": {"add", "free", "resume"},
    "v2_drafts": {"add", "free", "resume", "partial prefill", "draft"},
    "v2_async": {"add", "free", "resume", "partial prefill", "draft"},
}
RUNNER_CLASSES = {
    "v1": "vllm.v1.worker.cpu_model_runner.CPUModelRunner",
    "v2": "vllm.v1.worker.cpu.model_runner.CPUModelRunner",
}


def _text(name: str) -> str:
    return resources.files(traces.__name__).joinpath(f"{name}.jsonl").read_text(encoding="utf-8")


def test_there_is_one_trace_per_workload() -> None:
    assert traces.names() == tuple(sorted(WORKLOADS))
    assert traces.names() == tuple(sorted(PROMISED))
    assert traces.names() == (*traces.names("v1"), *traces.names("v2"))


@pytest.mark.parametrize("name", traces.names())
def test_a_shipped_trace_is_valid_and_comes_from_the_engine_it_names(name: str) -> None:
    trace = traces.load(name)
    assert trace.name == name
    assert trace.engine.name == "vllm"
    assert trace.engine.version == "0.32.0"
    if trace.engine.driver == "engine":
        assert trace.engine.runner_class == RUNNER_CLASSES[trace.runner]
    else:
        assert name == "v1_swaps"


@pytest.mark.parametrize("name", traces.names())
def test_a_shipped_trace_shows_what_its_name_promises(name: str) -> None:
    shown = {kind for step in traces.load(name).steps for kind in traces.kinds(step)}
    assert shown >= PROMISED[name]


@pytest.mark.parametrize("name", traces.names())
def test_writing_a_loaded_trace_gives_the_same_bytes(name: str) -> None:
    assert traces.dumps(traces.load(name)) == _text(name)


@pytest.mark.parametrize("name", traces.names())
def test_shipped_token_ids_are_renumbered_by_first_appearance(name: str) -> None:
    trace = traces.load(name)
    assert trace.token_ids == "remapped"
    seen: list[int] = []
    for request in trace.requests.values():
        seen += request.prompt or ()
    for step in trace.steps:
        if isinstance(step, traces.V2Step):
            for call in step.applies:
                seen += call.inputs
        for ids in step.tokens.values():
            seen += ids
    first_seen = list(dict.fromkeys(seen))
    assert first_seen == list(range(len(first_seen)))


@pytest.mark.parametrize("name", traces.names())
def test_a_shipped_trace_is_small(name: str) -> None:
    assert len(_text(name)) < 100_000


def test_the_big_trace_passes_sixty_four_rows() -> None:
    trace = traces.load("v1_big")
    assert max(len(step.rows) for step in trace.v1_steps) == 96


# What the engine was seen to do, beyond what test_regenerate.py holds.


def test_a_sorted_batch_has_requests_that_decode_before_those_that_are_prefilled() -> None:
    made: set[str] = set()
    swaps = 0
    for step in traces.load("v1_sorted").v1_steps:
        decoding = [name in made for name in step.rows]
        assert decoding == sorted(decoding, reverse=True)
        made |= set(step.tokens)
        swaps += sum(move.kind == "<->" for move in step.update.moved) if step.update else 0
    assert swaps >= 10


def test_the_engine_replaces_requests_without_removing_them() -> None:
    replaced = 0
    before: tuple[str, ...] = ()
    for step in traces.load("v1_churn").v1_steps:
        if step.update is not None:
            replaced += sum(entry.row < len(before) for entry in step.update.added)
        before = step.rows
    assert replaced >= 10


def test_a_resumed_request_enters_with_its_outputs() -> None:
    steps = traces.load("v1_preempt").v1_steps
    resumed = [entry for step in steps if step.update for entry in step.update.added if entry.outputs]
    assert len(resumed) >= 5
    entered = {entry.request for step in steps if step.update for entry in step.update.added if not entry.outputs}
    assert {entry.request for entry in resumed} <= entered


def test_under_async_scheduling_a_request_comes_back_with_a_new_list_of_known_tokens() -> None:
    back = [
        (step, entry)
        for step in traces.load("v1_async").v1_steps
        for entry in (step.update.added if step.update else ())
        if entry.outputs
    ]
    assert back
    for step, entry in back:
        assert entry.fresh
        assert entry.request not in step.placeholders


def test_a_resumed_request_may_come_back_to_another_slot() -> None:
    slots: dict[str, set[int]] = {}
    for step in traces.load("v2_preempt").v2_steps:
        for place in step.added:
            slots.setdefault(place.request, set()).add(place.slot)
    assert any(len(used) > 1 for used in slots.values())


def test_of_three_drafts_any_number_is_right_and_others_of_the_batch_have_none() -> None:
    committed, alone = set(), 0
    for step in traces.load("v2_drafts").v2_steps:
        for call in step.applies:
            rows = Counter(call.rows)
            committed |= {len(step.tokens[name]) for name in rows if rows[name] == 4}
            alone += len(set(rows.values())) > 1
            assert set(rows.values()) <= {1, 4}
    assert committed == {1, 2, 3, 4}
    assert alone >= 5


def test_a_request_that_was_preempted_has_drafts_again() -> None:
    steps = traces.load("v2_drafts").v2_steps
    back = {
        item.request: n for n, step in enumerate(steps) for item in step.added if item.prefill_len > item.prompt_len
    }
    assert back
    for name, n in back.items():
        assert any(call.rows.count(name) == 4 for step in steps[n:] for call in step.applies)


def test_partial_prefills_are_sampled_before_the_first_output() -> None:
    trace = traces.load("v1_chunked")
    committed: set[str] = set()
    partial = 0
    for step in trace.v1_steps:
        assert not step.discarded & committed
        partial += len(step.discarded)
        committed |= set(step.tokens)
    assert partial >= 10


def test_a_trace_holds_only_numbers_flags_and_names_of_its_own() -> None:
    for name in traces.names():
        header, *steps = (json.loads(line) for line in _text(name).splitlines())
        assert all(request == f"r{request[1:]}" and request[1:].isdigit() for request in header["requests"])
        allowed = set(header["requests"]) | {"->", "<->"}
        for step in steps:
            assert set(_strings(step)) <= allowed


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for entry in value.values() for text in _strings(entry)]
    if isinstance(value, list):
        return [text for entry in value for text in _strings(entry)]
    return []
