"""The steps at which a plugin acts are found: in a run, beyond it, and between two lengths of a sparse search."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit_conformance.activity.acting import Activity
from lpkit_conformance.activity.stand import stand_after
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.bases import Late, PortableLate
from zoo.correct.v1_few_steps import EveryTenth, FirstTokenOnly


def subject_of(cls: Any, host: str = "v1") -> Subject:
    return Subject.of("target", cls, host, Case.parse(cls.CASE))


class FromTheHundredAndFiftieth(Late):
    FIRST = 150


class Never(Late):
    FIRST = 10**6


@pytest.mark.parametrize(("cls", "lengths"), [(FirstTokenOnly, {0}), (Late, {20, 480}), (EveryTenth, {9, 39})])
def test_the_first_and_the_last_step_at_which_it_acts_are_judged(cls: Any, lengths: set[int]) -> None:
    assert {stance.length for stance in Activity(subject_of(cls)).stances if stance.variant == 0} == lengths


def test_a_rule_that_starts_between_two_rungs_is_judged_at_its_first_token() -> None:
    found = Activity(subject_of(FromTheHundredAndFiftieth)).stances
    assert min(stance.length for stance in found) == 150


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_a_step_late_in_the_output_stands_on_both_hosts(host: str) -> None:
    (standing,) = Activity(subject_of(PortableLate, host)).standings()
    changed = (standing.logits != standing.after).any(1).tolist()
    assert changed == [stance.variant is not None for stance in standing.stances]


def test_a_plugin_that_acts_nowhere_has_no_step_to_be_judged_at() -> None:
    found = Activity(subject_of(Never))
    assert not found.acts
    assert not list(found.standings())


def test_applying_again_gives_what_the_engine_got() -> None:
    standing = stand_after(subject_of(Late), [Arrive("a", 0)], 25)
    assert standing.acts
    assert torch.equal(standing.again(standing.logits.clone()), standing.after)


def test_a_class_with_slots_is_watched_without_being_changed() -> None:
    class Slotted:
        __slots__ = ("rows",)

        def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
            self.rows = 0

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: Any) -> None:
            self.rows += 1

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            return logits + 1.0

    standing = stand_after(Subject.of("target", Slotted, "v1", Case()), [Arrive("a", 0)])
    assert torch.equal(standing.after, standing.logits + 1.0)
