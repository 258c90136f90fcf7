"""Every plugin is compared with an oracle, in full."""

from __future__ import annotations

import math
import re
from pathlib import Path

import oracles
import pytest
import torch

PLUGINS = sorted(path.name for path in (oracles.ROOT / "reference_plugins").glob("lpkit-*"))


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


@pytest.mark.parametrize("plugin", PLUGINS)
def test_every_plugin_has_an_oracle(plugin: str) -> None:
    """In plain Python, in a module of its own, or in the plugin's own tests."""
    name, here = plugin.removeprefix("lpkit-"), Path(__file__).parent
    if f'    "{name}": (' in (here / "test_plain_rules.py").read_text(encoding="utf-8"):
        return
    module = here / f"test_{name.replace('-', '_')}.py"
    if module.exists():
        assert re.search(r"^from oracles import .*\bagree\b", module.read_text(encoding="utf-8"), re.M)
        return
    own = oracles.ROOT / "reference_plugins" / plugin / "tests" / "test_behaviour.py"
    assert re.search(r"^def test_\w*oracle", own.read_text(encoding="utf-8"), re.M)
