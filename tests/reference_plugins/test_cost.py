"""Costs that no rule may have: a wait of the host, an operation per row, a second tensor of the size of the logits."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_hosts import Asked, assert_cheap, watched
from sdk_hosts import HOST_SYNCS
from shipped import PLUGINS, load, settings

CLASSES = {plugin.name: load(plugin) for plugin in PLUGINS}
OUTPUT = (4, 5, 6, 4, 5)
WHOLE_ROWS = ("lpkit-synthid", "typical", "tail_free")
"""Rules that need whole rows beside the logits, for ranks or a tournament; no other rule may hold them."""

CASES = [
    *(
        (plugin.name, case["extra_args"])
        for plugin in PLUGINS
        for case in settings(plugin).cases
        if plugin.name != "lpkit-rules"  # a chain costs what its rules do
    ),
    *(("lpkit-truncation", {"truncation_rule": rule, "truncation_threshold": 0.1}) for rule in ("epsilon", "top_a")),
]
SORTED = [(name, args) for name, args in CASES if {name, args.get("truncation_rule")} & {*WHOLE_ROWS}]
ARGUMENTS = [item for item in CASES if item not in SORTED]


@pytest.mark.parametrize(("name", "args"), ARGUMENTS)
def test_it_costs_no_second_tensor_and_nothing_per_row(name: str, args: dict[str, Any]) -> None:
    assert_cheap(CLASSES[name], Asked(args, prompt=(4, 5), output=OUTPUT))


@pytest.mark.parametrize(("name", "args"), SORTED)
def test_it_waits_for_nothing_and_has_no_operation_per_row(name: str, args: dict[str, Any]) -> None:
    watched(CLASSES[name], Asked(args, output=OUTPUT), 16)  # the first call makes the scratch memory of all others
    few, many = (watched(CLASSES[name], Asked(args, output=OUTPUT), n) for n in (2, 16))
    assert few.names == many.names
    assert not HOST_SYNCS & set(many.names)


@pytest.mark.parametrize(("name", "args"), [case for case in CASES if case[0].endswith(("-prompt", "logit-bias"))])
def test_a_sparse_rule_costs_the_same_at_every_vocabulary(name: str, args: dict[str, Any]) -> None:
    large, small = (watched(CLASSES[name], Asked(args, (4, 5), OUTPUT), 8, vocab) for vocab in (40_000, 1_000))
    assert large.largest == small.largest
