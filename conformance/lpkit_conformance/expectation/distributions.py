"""Counts of sampled tokens against the probabilities that they should have been sampled with: chi-square."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

LEAST = 16.0
"""Count that is expected of a bin at least; what is rarer is put together, and weighs as if this were expected."""

ALARM = 1e-10
"""Probability, over all tests together, of a result as unlikely as one that is called a departure."""

SHIFTS = (-4.0, -1.0, -0.25, 0.25, 1.0)
"""Edges of the bins of what the plugin did to a token: the logarithm of its probability after over before."""


@dataclass(frozen=True)
class Departure:
    """The least probable of several tests of counts.

    Attributes:
        chance: the probability of these counts, or of less probable counts, if the plugin is correct.
        tests: number of tests.
        group: the row of a request that the tokens are from; None for all rows.
        expected: expected count of the bin that departs most from it.
        got: count of this bin.
        token: the bin's token; None if it holds several tokens.
        total: number of tokens in the group.
    """

    chance: float
    tests: int
    group: int | None
    expected: float
    got: int
    token: int | None
    total: int

    @property
    def alarming(self) -> bool:
        """True if chance does not explain it."""
        return self.chance * self.tests < ALARM


def compare_counts(
    token_ids: torch.Tensor, groups: torch.Tensor, probabilities: torch.Tensor, before: torch.Tensor, likely: list[int]
) -> Departure:
    """Hold tokens against their probabilities: by token and by what was done to them, in all and in each group.

    Each token was sampled with probabilities that its own history gives, so differences of counts and probabilities add
    up to nothing whatever the histories. Pearson's statistic is then at most as large as chi-square has it.

    Args:
        token_ids: ``[n]``.
        groups: ``[n]`` small numbers.
        probabilities: ``[n, vocab]`` what each was to be sampled with.
        before: ``[n, vocab]`` the same without the plugin.
        likely: tokens that are counted one by one; the others together.
    """
    places = torch.arange(len(token_ids))
    rest = probabilities.shape[1]
    columns = torch.full((rest,), len(likely))
    columns[likely] = torch.arange(len(likely))
    shift = (probabilities.clamp(min=1e-30) / before.clamp(min=1e-30)).log()
    kinds = torch.bucketize(shift, torch.tensor(SHIFTS, dtype=shift.dtype))
    kind_count = len(SHIFTS) + 1
    by_token = torch.zeros(len(token_ids), len(likely) + 1).index_add_(1, columns, probabilities)
    by_kind = torch.zeros(len(token_ids), kind_count).scatter_add_(1, kinds, probabilities)
    seen = columns[token_ids], kinds[places, token_ids]
    departures = [
        (*test, group, int(chosen.sum()), labels)
        for group, chosen in _groups(groups)
        for expected, bins, labels in ((by_token, seen[0], likely), (by_kind, seen[1], []))
        for test in [_test(expected[chosen].sum(0).double(), torch.bincount(bins[chosen], minlength=expected.shape[1]))]
    ]
    chance, bin_, expected_count, got, group, total, labels = min(departures, key=lambda item: item[0])
    token = labels[bin_] if bin_ < len(labels) else None
    return Departure(chance, len(departures), group, expected_count, got, token, total)


def _groups(groups: torch.Tensor) -> Iterator[tuple[int | None, torch.Tensor]]:
    yield None, torch.ones_like(groups, dtype=torch.bool)
    for group in sorted(set(groups.tolist())):
        yield group, groups == group


def _test(expected: torch.Tensor, counts: torch.Tensor) -> tuple[float, int, float, int]:
    """Return the probability of these counts, and the bin that departs most: number, expected count, count."""
    rare = expected < LEAST
    bins = torch.cat([expected[~rare], expected[rare].sum().unsqueeze(0)])
    numbers = torch.cat([(~rare).nonzero().flatten(), torch.tensor([len(expected)])])
    got = torch.cat([counts[~rare], counts[rare].sum().unsqueeze(0)])
    parts = (got - bins) ** 2 / bins.clamp(min=LEAST)
    chance = torch.special.gammaincc(torch.tensor(max(len(bins) - 1, 1) / 2.0, dtype=torch.float64), parts.sum() / 2)
    most = int(parts.argmax())
    return float(chance), int(numbers[most]), float(bins[most]), int(got[most])
