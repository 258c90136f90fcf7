"""The traces that ship with lpkit: they load, they show what their names promise, and they hold nothing private."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources

import pytest
from lpkit_conformance import traces
from lpkit_conformance.engine.recorded_workloads import WORKLOADS
from lpkit_conformance.engine.recording import remap
from lpkit_conformance.traces.schema import V2Step

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
    assert remap(trace) == trace  # ids are numbered by their first appearance
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


def test_rows_of_drafts_go_beyond_the_length_that_max_tokens_allows() -> None:
    """vLLM's scheduler cuts a request's drafts at `max_model_len` only: a table by length needs an entry for each."""
    trace = traces.load("v2_drafts")
    lengths: dict[str, list[int]] = {}
    written = dict.fromkeys(trace.requests, 0)  # in the end what `max_tokens` allowed
    for step in trace.steps:
        assert isinstance(step, V2Step)
        for call in step.applies:
            for request, position in zip(call.rows, call.pos, strict=True):
                lengths.setdefault(request, []).append(position + 1 - trace.requests[request].prompt_len)
        for request, ids in step.tokens.items():
            written[request] += len(ids)
    assert any(max(lengths[request]) >= written[request] for request in trace.requests)


@pytest.mark.parametrize("name", traces.names())
def test_a_shipped_trace_is_small(name: str) -> None:
    assert len(_text(name)) < 100_000


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
