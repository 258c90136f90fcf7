"""Correct plugins pass, however unusual: module caches, idle cost, bounded windows."""

from __future__ import annotations

import lpkit
import pytest
import torch
from lpkit_conformance.checks.lp6_determinism import held
from lpkit_conformance.testing import compute_check
from zoo.correct.v1_odd import CachesInTheModule, CapsEveryRow


class BridgedFromElsewhere(lpkit.Bridged):
    wraps = CachesInTheModule


BIAS = {"extra_args": {"bias": 2.5, "token": 7}}


@pytest.mark.parametrize("cls", [CachesInTheModule, BridgedFromElsewhere])
def test_tensors_that_a_module_keeps_are_made_anew_for_another_device(cls: type) -> None:
    for _ in range(2):  # the second run finds what the first one left in the module
        assert compute_check("LP301", cls, case=BIAS).status == "passed"
        assert compute_check("LP308", cls, case=BIAS).status == "passed"


def test_advice_about_idle_cost_is_not_for_a_plugin_that_acts_on_every_request() -> None:
    found = compute_check("LP702", CapsEveryRow, case={"extra_args": {"cap": 20.0}})
    assert (found.status, found.message) == ("skipped", "the plugin acts on every request")


class Entry:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class Keeps:
    def __init__(self) -> None:
        self.entries: list[object] = []


@pytest.mark.parametrize(("entry", "size"), [(3, 1), ((4, 5), 3), (Entry([6, 7]), 4), (torch.zeros(5), 6)])
def test_what_an_instance_holds_is_counted_also_in_objects_of_its_author(entry: object, size: int) -> None:
    processor = Keeps()
    before = held(processor)
    processor.entries.append(entry)
    assert held(processor) - before == size
