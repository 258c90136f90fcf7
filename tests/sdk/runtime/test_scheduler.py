"""Continuous batching: arrivals, budgets, chunked prefill, preemption, finishes and aborts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lpkit.runtime import Engine, Request, Scheduler, V1Engine, V2Engine, generate
from lpkit.sampling_params import SamplingParams

BOTH = pytest.mark.parametrize("engine_class", [V1Engine, V2Engine])


@BOTH
def test_a_prompt_beyond_the_token_budget_is_fed_in_chunks(
    engine_class: type[Engine], make_request: Callable[..., Request]
) -> None:
    scheduler = Scheduler(engine_class(device="cpu"), max_num_batched_tokens=8)  # type: ignore[call-arg]
    scheduler.submit(make_request("long", prompt=20, max_tokens=2))
    scheduler.submit(make_request("short", prompt=3, max_tokens=3))
    rows = [{r.request_id: (r.position, r.discarded) for r in scheduler.step().rows} for _ in range(4)]
    assert rows[0] == {"long": (7, True)} and rows[1] == {"long": (15, True)}
    assert rows[2] == {"long": (19, False), "short": (2, False)}
    assert rows[3] == {"long": (20, False), "short": (3, False)}
    assert set(scheduler.finished) == {"long"} and scheduler.reasons["long"] == "length"


@BOTH
def test_requests_arrive_when_told_and_wait_for_a_free_row(
    engine_class: type[Engine], make_request: Callable[..., Request]
) -> None:
    scheduler = Scheduler(engine_class(device="cpu", max_num_seqs=2))  # type: ignore[call-arg]
    for name in "abc":
        scheduler.submit(make_request(name, max_tokens=2))
    scheduler.submit(make_request("later", max_tokens=1), at_step=3)
    present = []
    while scheduler.unfinished:
        present.append({row.request_id for row in scheduler.step().rows})
    assert present == [{"a", "b"}, {"a", "b"}, {"c"}, {"c", "later"}]


@BOTH
def test_when_blocks_run_out_the_newest_request_is_preempted_and_resumed_with_its_outputs(
    engine_class: type[Engine], make_request: Callable[..., Request]
) -> None:
    free = Scheduler(engine_class(device="cpu"))  # type: ignore[call-arg]
    tight = Scheduler(engine_class(device="cpu"), num_blocks=7, block_size=4, new_lists=True)  # type: ignore[call-arg]
    for scheduler in (free, tight):
        for name in "abc":
            scheduler.submit(make_request(name, prompt=4, max_tokens=14, temperature=1.0))
    assert tight.run() == free.run()
    assert tight.num_preemptions > 0 == free.num_preemptions
    assert list(tight.finished) == ["a", "b", "c"]


@BOTH
def test_stop_tokens_and_lengths_end_a_request(engine_class: type[Engine], make_request: Any) -> None:
    scheduler = Scheduler(engine_class(device="cpu"))  # type: ignore[call-arg]
    force = {"logit_bias": {9: 100.0}}
    scheduler.submit(make_request("stop", stop_token_ids=[9], **force))
    scheduler.submit(make_request("held", stop_token_ids=[9], min_tokens=3, **force))
    scheduler.submit(make_request("length", max_tokens=5))
    outputs = scheduler.run()
    assert outputs["stop"] == [9] and scheduler.reasons["stop"] == "stop"
    assert len(outputs["held"]) == 4 and 9 not in outputs["held"][:3] and outputs["held"][3] == 9
    assert len(outputs["length"]) == 5 and scheduler.reasons["length"] == "length"


@BOTH
def test_aborts_reach_running_waiting_preempted_and_future_requests(
    engine_class: type[Engine], make_request: Callable[..., Request]
) -> None:
    engine = engine_class(device="cpu", max_num_seqs=2)  # type: ignore[call-arg]
    scheduler = Scheduler(engine, num_blocks=4, block_size=4)
    for name in "abcd":
        scheduler.submit(make_request(name, prompt=4, max_tokens=12))
    scheduler.submit(make_request("future", max_tokens=2), at_step=30)
    while not scheduler.num_preemptions:
        scheduler.step()
    assert [request.request_id for request in scheduler.running] == ["a"]
    for name in ("b", "d", "future", "a", "unknown"):
        scheduler.abort(name)
    outputs = scheduler.run()
    assert {name for name, why in scheduler.reasons.items() if why == "abort"} == {"a", "b", "d", "future"}
    assert len(outputs["c"]) == 12 and not engine.requests


def test_the_batch_is_empty_in_the_end(v1_recorder: Any, make_request: Callable[..., Request]) -> None:
    recorder = v1_recorder()
    scheduler = Scheduler(V1Engine([recorder], device="cpu"))
    scheduler.submit(make_request("a", max_tokens=2))
    scheduler.run()
    update = recorder.calls[-1][2]
    assert update.batch_size == 0 and list(update.removed) == [0]


def test_requests_that_could_never_run_are_refused(make_request: Callable[..., Request]) -> None:
    scheduler = Scheduler(V1Engine(device="cpu", max_model_len=32), num_blocks=4, block_size=4)
    with pytest.raises(ValueError, match="max_model_len"):
        scheduler.submit(make_request("a", prompt=30, max_tokens=3))
    with pytest.raises(ValueError, match="blocks"):
        scheduler.submit(make_request("b", prompt=10, max_tokens=10))


def test_generate_takes_one_set_of_parameters_or_one_each() -> None:
    prompts = [[1, 2, 3], [4, 5]]
    shared = generate(prompts, SamplingParams(temperature=0, max_tokens=4), device="cpu")
    each = generate(prompts, [SamplingParams(temperature=0, max_tokens=n) for n in (4, 2)], runner="v2", device="cpu")
    assert shared[0] == each[0] and shared[1][:2] == each[1] and [len(ids) for ids in each] == [4, 2]
