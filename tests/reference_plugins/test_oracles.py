"""What is compared with an oracle is compared in full, and the page names every plugin."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize("plugin", PLUGINS)
def test_every_plugin_has_an_oracle(plugin: str) -> None:
    assert f"\n| {plugin} | " in oracles.PAGE.read_text(encoding="utf-8")
