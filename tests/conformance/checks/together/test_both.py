"""Two plugins on one host: the engine's order, temperature, and greedy rows, as if the engine had loaded both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit_conformance.checks.together.both import Run, apart, carry_out
from lpkit_conformance.checks.together.pair import Pair, PairedPlugin
from lpkit_conformance.programs.generate import Arrive, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.pairs import Add, MinP

GREEDY, SAMPLED = Arrive("greedy", 0, greedy=True), Arrive("sampled", 3)


def pair(host: str) -> Pair:
    first, second = (PairedPlugin(cls.__name__, cls, (Case.parse(cls.CASE),) * 2) for cls in (MinP, Add))
    return Pair.made((first, second), Subject.of("x", MinP, host, Case({})))


def run(host: str, *ops: Any) -> Run:
    found = carry_out(pair(host), (0, 1), ops)
    assert found.failure is None
    return found


def test_v1_applies_an_argmax_invariant_plugin_later_and_behind_temperature() -> None:
    found = run("v1", GREEDY, SAMPLED, Step())
    assert found.sequence == (1, 0)
    summed, floored = found.parts[1].edits[0], found.parts[0].edits[0]
    temperature = found.requests["sampled"].temperature
    assert torch.equal(summed[0], found.seen[0].before)
    assert torch.equal(floored[0], summed[1] / torch.tensor([[1.0], [temperature]]))
    # The greedy request's token is chosen before.
    assert torch.equal(found.seen[0].after, torch.stack([summed[1][0], floored[1][1]]))
    assert [[there.row.request for there in found.rows(which)] for which in (0, 1)] == [
        ["sampled"],
        ["greedy", "sampled"],
    ]


def test_v1_does_not_call_it_for_a_batch_of_greedy_requests() -> None:
    found = run("v1", GREEDY, Step())
    assert (len(found.parts[0].edits), len(found.parts[1].edits)) == (0, 1)


def test_v2_applies_plugins_as_they_were_loaded() -> None:
    found = run("v2", GREEDY, SAMPLED, Step())
    assert found.sequence == (0, 1)
    assert torch.equal(found.parts[0].edits[0][1], found.parts[1].edits[0][0])
    assert torch.equal(found.seen[0].after, found.parts[1].edits[0][1])


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_a_plugin_beside_a_replay_of_the_other_gets_the_same_logits(host: str) -> None:
    both = carry_out(pair(host), (0, 1))
    again = apart(pair(host), both, 1)
    assert [seen.rows for seen in again.seen] == [seen.rows for seen in both.seen]
    assert all(torch.equal(one.after, other.after) for one, other in zip(both.seen, again.seen, strict=True))
    silent = apart(pair(host), both, 1, edits=False)
    assert all(torch.equal(*edit) for edit in silent.parts[0].edits.values())
