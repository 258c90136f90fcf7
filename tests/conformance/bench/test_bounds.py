"""The reason for a step's time is found from evidence of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lpkit_conformance.bench.bounds import bound, seconds_per_operation
from lpkit_conformance.bench.results import Bound, CandidateResult, Times
from lpkit_conformance.instruments.operations import MeasureOperations

LOGITS = 4_000_000
"""Bytes: a million elements."""

SIDE = CandidateResult(
    "mine on V1",
    "target",
    "v1",
    apply=Times(1e-3, 1e-3, 5),
    churn=Times(1e-5, 1e-5, 5),
    operations=10,
    passes=0.0,
    peak=0,
    versus_floor=4.0,
)


def told(side: CandidateResult, per_operation: float = 1e-6) -> Bound:
    found = bound([side], LOGITS, per_operation)[0].bound
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changes", "by", "evidence"),
    [
        ({"syncs": {"item": 2, "nonzero": 1}}, "waiting", "item 2x, nonzero 1x"),
        ({"churn": Times(2e-3, 2e-3, 5)}, "host", "2.0 times as long as apply"),
        ({"versus_floor": 1.1}, "", "1.10 times as long as one read and write"),
        ({"operations": 400}, "launches", "400 operations take 2 us each on average"),
        ({"peak": 2 * LOGITS, "passes": 3.0}, "allocation", "allocates 2.0 times"),
        ({"passes": 3.0}, "memory", "over all logits 3.0 times"),
        ({"passes": 0.5}, "computation", "process 0.5 times as many elements"),
    ],
)
def test_each_cause_is_told_with_its_evidence(changes: dict[str, object], by: str, evidence: str) -> None:
    found = told(replace(SIDE, **changes))  # type: ignore[arg-type]
    assert found.by == by
    assert evidence in found.why
    assert bool(found.advice) == bool(by)


@pytest.mark.parametrize(
    ("host", "by", "evidence"),
    [
        (4e-4, "launches", "the host needs 400 us to launch what the GPU computes in 100 us"),
        (1e-4, "", "1.00 times as long as one read"),
    ],
)
def test_on_a_gpu_the_hosts_part_is_told_from_the_gpus_own_work(host: float, by: str, evidence: str) -> None:
    gpu = Times(1e-4, 1e-4, 5)
    floor = CandidateResult("floor", "floor", apply=Times(5e-3, 5e-3, 5), gpu=gpu)
    found = bound([replace(SIDE, launch=Times(host, host, 5), gpu=gpu), floor], LOGITS, 1e-6)[0].bound
    assert found is not None
    assert found.by == by
    assert evidence in found.why


def test_many_operations_over_all_logits_are_bound_by_memory_and_not_by_their_number() -> None:
    assert told(replace(SIDE, operations=400, passes=4.0)).by == "memory"


def test_the_same_operations_are_bound_by_launches_where_a_launch_takes_longer() -> None:
    assert [told(SIDE, seconds).by for seconds in (1e-6, 1e-4)] == ["computation", "launches"]


def test_only_processors_are_judged() -> None:
    floor, failed = replace(SIDE, kind="floor", host=""), replace(SIDE, apply=None)
    assert [side.bound for side in bound([floor, failed], LOGITS, 1e-6)] == [None, None]


def test_an_operation_with_nothing_to_do_takes_some_time() -> None:
    logits = torch.zeros(2, 1000)
    assert 0 < seconds_per_operation(logits, torch.empty_like(logits)) < 0.1


def test_elements_are_those_of_the_largest_tensor_or_of_what_is_selected() -> None:
    logits, ids = torch.zeros(4, 100), torch.zeros(4, 3, dtype=torch.int64)
    with MeasureOperations() as counter:
        logits[1:].mul_(2)  # 300
        logits.amax(1)  # 400, those it reads
        logits.gather(1, ids)  # 12
        logits.scatter_(1, ids, 1.0)  # 12
        logits.view(-1)  # none
    assert counter.elements == 300 + 400 + 12 + 12
