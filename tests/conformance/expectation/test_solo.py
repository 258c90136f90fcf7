"""The oracle: what a request should get, and when two rows count as different."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit_conformance.expectation.compare import RELATIVE_TOLERANCE, first_difference

BEFORE = torch.linspace(-4.0, 6.0, 512).repeat(2, 1)


def changed(value: float, rows: torch.Tensor = BEFORE) -> torch.Tensor:
    """The same rows with another logit of row 0, token 3."""
    return rows.index_put((torch.tensor(0), torch.tensor(3)), torch.tensor(value))


EDITED = BEFORE * 2
MASKED = changed(-math.inf)


@pytest.mark.parametrize(
    ("expected", "got", "found"),
    [
        (BEFORE + 1, BEFORE + 1, None),
        # Rounding is forgiven in a row that the plugin edits; a row that it should leave alone comes back as it was.
        (EDITED, EDITED + RELATIVE_TOLERANCE * 3, None),
        (EDITED, EDITED + RELATIVE_TOLERANCE * 60, (0, None, "wrong")),
        (BEFORE, changed(float(BEFORE[0, 3].nextafter(torch.tensor(99.0)))), (0, 3, "stale")),
        (changed(9.0), BEFORE, (0, 3, "lost")),
        (changed(9.0), BEFORE + 5.0, (0, None, "wrong")),
        # A mask and a number differ, NaN equals NaN and nothing else.
        (MASKED, changed(-1e9), (0, 3, "wrong")),
        (MASKED, MASKED.clone(), None),
        (changed(math.nan, EDITED), changed(math.nan, EDITED), None),
        (changed(math.nan, EDITED), EDITED, (0, 3, "wrong")),
    ],
)
def test_the_first_row_that_differs_beyond_rounding_is_reported_with_its_kind(
    expected: torch.Tensor, got: torch.Tensor, found: tuple[int, int | None, str] | None
) -> None:
    difference = first_difference(BEFORE, expected, got)
    if found is None or difference is None:
        assert difference is found
        return
    row, token, kind = found
    assert (difference[0], difference[4]) == (row, kind)
    assert token in (None, difference[1])
