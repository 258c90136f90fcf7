"""What is compared with an oracle is compared in full, and the page names every plugin."""

from __future__ import annotations

import math
from pathlib import Path

import oracles
import pytest
import torch

PLUGINS = sorted(path.name for path in (oracles.PAGE.parents[2] / "reference_plugins").glob("lpkit-*"))


@pytest.mark.parametrize("value", [0.1, math.inf, -math.inf, math.nan])
def test_a_difference_is_seen_in_any_place_and_of_any_kind(value: float) -> None:
    theirs = torch.tensor([1.0, -math.inf, 3.0])
    for place in range(3):
        ours = theirs.clone()
        ours[place] = value
        if not torch.equal(ours, theirs):
            with pytest.raises(AssertionError, match="away from theirs"):
                oracles.agree(ours, theirs, "theirs", within=0.05)


def test_masks_are_compared_token_by_token() -> None:
    assert oracles.largest(torch.tensor([True, False, True]), torch.tensor([True, True, True])) == 1.0


def test_relative_differences_are_of_values_above_one() -> None:
    assert oracles.largest(torch.tensor([101.0]), torch.tensor([100.0]), relative=True) == pytest.approx(0.01)
    assert oracles.largest(torch.tensor([0.2]), torch.tensor([0.1]), relative=True) == pytest.approx(0.1)


def test_nothing_is_not_compared() -> None:
    with pytest.raises(AssertionError, match="nothing is compared"):
        oracles.agree(torch.empty(0), torch.empty(0), "theirs")


def test_differences_are_shown_rounded_up() -> None:
    assert [oracles.shown(value) for value in (0.0, 1.2e-05, 3e-7, 0.0001)] == ["none", "2e-5", "3e-7", "1e-4"]


ROWS = [
    line.split(" | ") for line in oracles.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| lpkit-")
]


def test_every_plugin_has_an_oracle() -> None:
    assert {row[0].removeprefix("| ") for row in ROWS} == set(PLUGINS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_row_of_the_page_is_of_a_comparison_that_is_made(row: list[str]) -> None:
    plugin, oracle = row[0].removeprefix("| lpkit-").replace("-", "_"), row[1]
    assert f'"{oracle}"' in (Path(__file__).parent / f"test_{plugin}.py").read_text(encoding="utf-8")
