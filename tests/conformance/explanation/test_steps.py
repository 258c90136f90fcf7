"""The tokens of the request whose row differs: the model's logits, its row alone, and its row in the batch."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit_conformance.explanation.steps import stage_view
from planted import finding_of

INF = math.inf


@pytest.mark.parametrize(("code", "identity"), [("LP202", "v1-StaleOnDecline"), ("LP211", "v1-StartsLateAtAdd")])
def test_the_last_token_is_the_first_whose_row_in_the_batch_is_not_the_row_alone(code: str, identity: str) -> None:
    found = finding_of(identity, code)
    *before, last = found.steps
    assert [step.stages[-1].moved for step in before] == [0.0] * len(before) and last.stages[-1].moved > 0
    assert str(found.where["token id"]) in last.tokens
    assert last.batch.startswith(f"step {found.where['step']}, row {found.where['row']}, ")


def test_each_token_names_what_happened_to_the_batch_right_before() -> None:
    steps = finding_of("v1-StartsLateAtAdd", "LP211").steps
    assert len(steps) > 5, "the defect shows after five tokens"
    assert "a arrives" in steps[0].batch and "a resumes" in steps[-1].batch
    assert sum("right before" in step.batch for step in steps) < len(steps)


def test_a_row_of_a_recorded_trace_has_its_tokens() -> None:
    found = finding_of("v1-SmallSwaps", "LP220")
    assert found.steps[-1].stages[-1].moved > 0 and "other requests" in found.steps[-1].batch


def test_a_stage_is_told_by_the_probability_that_it_moved_its_entropy_and_its_bans() -> None:
    before, after = torch.tensor([0.0, 0.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, -INF, -INF])
    stage = stage_view("half", 0, before, after, [1, 2], str)
    assert (stage.moved, stage.entropy, stage.banned, set(stage.examples)) == (0.5, 1.0, 2, {"2", "3"})
    assert stage.probabilities == (0.5, 0.0) and stage.ranks == (1, 0)
    nothing = stage_view("all", 0, before, torch.full((4,), -INF), [0], str)
    assert (nothing.moved, nothing.entropy, nothing.banned, nothing.ranks) == (1.0, 0.0, 4, (0,))
