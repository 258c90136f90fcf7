"""Runs with drafts against the same texts without: a lossy verification is seen, a correct processor is not blamed."""

from __future__ import annotations

import pytest
import torch
import zoo
from lpkit.loading import interfaces_of
from lpkit_conformance.expectation.distributions import ALARM, Departure, compare_counts
from lpkit_conformance.expectation.speculation import Speculation
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.testing import compute_check

CORRECT = {item.name: item for item in zoo.CORRECT if "v2" in interfaces_of(item.target)}
RUNS = 128


def departure(name: str, accept_rate: float | None, seed: int = 0) -> tuple[Departure, bool]:
    """The result of the counts, and whether the processor gave each token the same probabilities."""
    specimen = CORRECT[name]
    subject = Subject.of(name, specimen.target, "v2", specimen.case, seed=seed)
    runs = Speculation(subject, RUNS)
    texts = runs.with_drafts(accept_rate)
    without = runs.without(texts.token_ids)
    before = runs.model[: without.shape[1]].expand_as(without).flatten(0, 1)
    counts = compare_counts(
        texts.token_ids.flatten(), texts.locals.flatten(), without.flatten(0, 1), before, runs.likely
    )
    return counts, torch.equal(texts.target, without)


@pytest.mark.parametrize("name", ["V2MinP", "V2Bias", "PortableRepetition", "PortableXtc", "AdapterReplays"])
def test_counts_show_a_lossy_verification(name: str) -> None:
    assert departure(name, 0.7)[0].alarming


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["V2MinP", "V2LastToken", "PortableRepetition", "PortableXtc", "AdapterReplays"])
def test_counts_of_an_exact_verification_are_chance(name: str, seed: int) -> None:
    counts, equal = departure(name, None, seed)
    assert equal
    assert not counts.alarming
    assert counts.chance * counts.tests > 1e-4, "far from the alarm, too"


def test_a_processor_that_never_acts_is_not_judged() -> None:
    assert compute_check("LP809", CORRECT["V2Bias"].target, case={}).never_active


def test_wrong_probabilities_of_few_tokens_are_an_alarm_and_right_ones_are_not() -> None:
    random = torch.Generator().manual_seed(3)
    right = torch.randn(2000, 64, generator=random).softmax(-1)
    tokens = torch.multinomial(right, 1, generator=random).flatten()
    groups, likely = torch.arange(2000) % 3, list(range(20))
    assert compare_counts(tokens, groups, right, right, likely).chance > 1e-3
    wrong = right.clone()
    wrong[:, 7] *= 5
    found = compare_counts(tokens, groups, wrong / wrong.sum(-1, keepdim=True), right, likely)
    assert found.chance * found.tests < ALARM
