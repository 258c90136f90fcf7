"""The watcher keeps to its share of step time."""

from __future__ import annotations

import pytest
from lpkit_conformance.watch import budget as budgets
from lpkit_conformance.watch.budget import StepBudget


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(budgets, "perf_counter", lambda: now[0])
    return now


def steps(budget: StepBudget, clock: list[float], count: int, seconds: float, cost: float) -> None:
    for _ in range(count):
        if budget.begin():
            budget.own_seconds += cost
            clock[0] += cost
        clock[0] += seconds


def test_it_keeps_to_its_share_whatever_a_sample_costs(clock: list[float]) -> None:
    budget = StepBudget(0.01, 1.0)
    steps(budget, clock, 5000, 0.010, 0.004)
    assert 0.008 < budget.own_seconds / budget.step_seconds <= 0.01
    steps(budget, clock, 5000, 0.010, 0.020)  # it became expensive
    assert budget.own_seconds / budget.step_seconds <= 0.0105


def test_a_first_sample_that_is_slow_does_not_end_sampling(clock: list[float]) -> None:
    """A sample may cost more than the budget ever saves up, for example where a kernel is compiled."""
    budget = StepBudget(0.01, 1.0)
    steps(budget, clock, 100, 0.010, 0.0)
    steps(budget, clock, 1, 0.010, 5.0)
    before = budget.sampled
    steps(budget, clock, 40_000, 0.010, 0.001)
    assert budget.sampled - before > 1000


def test_an_idle_server_earns_no_time(clock: list[float]) -> None:
    budget = StepBudget(0.01, 1.0)
    budget.begin()
    clock[0] += 3600
    budget.begin()
    assert budget.step_seconds == budgets.LONGEST_STEP


def test_the_rate_is_the_most_that_is_sampled(clock: list[float]) -> None:
    budget = StepBudget(1.0, 0.1)
    steps(budget, clock, 5000, 0.010, 0.0)
    assert 400 < budget.sampled < 600
    nothing = StepBudget(0.0, 1.0)
    steps(nothing, clock, 1000, 0.010, 0.0)
    assert nothing.sampled == 0


def test_rows_are_picked_without_repetition() -> None:
    budget = StepBudget(1.0, 1.0)
    assert budget.pick(3, 16) == [0, 1, 2]
    picked = budget.pick(100, 16)
    assert len(set(picked)) == 16
    assert picked == sorted(picked)
