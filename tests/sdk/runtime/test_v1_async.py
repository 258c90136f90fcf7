"""Asynchronous scheduling on V1: what a processor finds in the output lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lpkit import v1
from lpkit.runtime import Request, Scheduler, V1AsyncEngine, V1Engine


class Reader(v1.LogitsProcessor):
    """Copies the output list of row 0 whenever it is called."""

    def __init__(self, *_: Any) -> None:
        self.at_update: list[list[int]] = []
        self.at_apply: list[list[int]] = []
        self.lists: list[list[int]] = []

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        self.lists += [outputs for row, *_, outputs in (batch_update.added if batch_update else ()) if row == 0]
        if self.lists:
            self.at_update.append(list(self.lists[-1]))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.at_apply.append(list(self.lists[-1]))
        return logits


@pytest.fixture
def reader() -> Reader:
    return Reader()


def run(engine: V1AsyncEngine, request: Request, steps: int) -> list[int]:
    engine.add(request)
    for _ in range(steps):
        engine.step()
    return request.output_token_ids


def test_an_explicit_processor_sees_a_placeholder_in_the_update_and_true_ids_in_apply(
    reader: Reader, make_request: Callable[..., Request]
) -> None:
    outputs = run(V1AsyncEngine([reader], device="cpu"), make_request("r"), 5)
    assert reader.at_update == [[], *([*outputs[:n], -1] for n in range(4))]
    assert reader.at_apply == [outputs[:n] for n in range(5)]


def test_an_entry_point_only_processor_keeps_its_placeholders(
    reader: Reader, make_request: Callable[..., Request]
) -> None:
    outputs = run(V1AsyncEngine([reader], explicit=False, device="cpu"), make_request("r"), 5)
    assert reader.at_apply == [[-1] * n for n in range(5)]
    assert -1 not in outputs and len(outputs) == 5


def test_a_penalty_request_that_joins_repairs_one_token_and_shrinks_the_list(
    reader: Reader, make_request: Callable[..., Request]
) -> None:
    engine = V1AsyncEngine([reader], explicit=False, device="cpu")
    outputs = run(engine, make_request("r"), 3)
    engine.add(make_request("penalised", repetition_penalty=1.5))
    engine.step()
    assert reader.at_apply[-1] == [-1, -1, -1]
    engine.step()
    assert reader.at_update[-1] == [-1] * 4 and reader.at_apply[-1] == [outputs[3]]


def test_penalties_see_true_ids_without_any_custom_processor(make_request: Callable[..., Request]) -> None:
    results = []
    for engine in (V1Engine(device="cpu", vocab_size=128), V1AsyncEngine(device="cpu", vocab_size=128)):
        scheduler = Scheduler(engine, num_blocks=8, block_size=8)
        for i in range(6):
            options: dict[str, Any] = {"frequency_penalty": 1.5} if i % 2 else {"temperature": 1.0}
            scheduler.submit(make_request(f"r{i}", prompt=4 + i, max_tokens=30, **options))
        results.append(scheduler.run())
        assert scheduler.num_preemptions
    assert results[0] == results[1]


def test_a_stopped_request_runs_one_step_more_and_its_token_is_thrown_away(
    make_request: Callable[..., Request],
) -> None:
    scheduler = Scheduler(V1AsyncEngine(device="cpu"))
    scheduler.submit(make_request("stop", stop_token_ids=[9], logit_bias={9: 100.0}))
    scheduler.submit(make_request("length", max_tokens=1))
    rows = [scheduler.step().rows for _ in range(2)]
    assert rows[0] == (("stop", 3, False), ("length", 3, False))
    assert rows[1] == (("stop", 4, True),)
    assert not scheduler.unfinished and scheduler.finished["stop"].output_token_ids == [9]


def test_the_configuration_says_so() -> None:
    assert V1AsyncEngine(device="cpu").config.scheduler_config.async_scheduling is True
    assert V1Engine(device="cpu").config.scheduler_config.async_scheduling is False
