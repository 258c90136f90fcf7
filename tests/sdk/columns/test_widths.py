"""Rows are as wide as the next power of two."""

from __future__ import annotations

import pytest
from lpkit.columns.widths import padded


@pytest.mark.parametrize(
    ("count", "least", "width"),
    [(0, 1, 1), (1, 1, 1), (2, 1, 2), (3, 1, 4), (4, 1, 4), (5, 1, 8), (0, 64, 64), (64, 64, 64), (65, 64, 128)],
)
def test_a_width_is_a_power_of_two_and_not_below_the_least(count: int, least: int, width: int) -> None:
    assert padded(count, least) == width
