"""Costs that no rule may have: a wait of the host, an operation per row, a second tensor of the size of the logits."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_hosts import Asked, assert_cheap, watched
from sdk_hosts import HOST_SYNCS
from shipped import PLUGINS, load

CLASSES = {plugin.name.removeprefix("lpkit-"): load(plugin) for plugin in PLUGINS}
OUTPUT = (4, 5, 6, 4, 5)
BIAS = {"logit_bias_ids": [1, 5], "logit_bias_values": [1.0, 2.0]}
CITE = {"cite_boost": 1.0, "cite_next_boost": 1.0}


def truncation(rule: str) -> tuple[str, dict[str, Any]]:
    return "truncation", {"truncation_rule": rule, "truncation_threshold": 0.1}


ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("allowed-tokens", {"allowed_tokens": [4, 5]}),
    ("cite-from-prompt", CITE),
    ("dry", {"dry_multiplier": 1.0, "dry_breakers": [3]}),
    ("forced-sequence", {"forced_sequence": [4, 5, 6, 4, 5, 8]}),
    ("greenlist-watermark", {"greenlist_key": 1}),
    ("logit-bias", BIAS),
    ("loop-breaker", {"loop_times": 2, "loop_tokens": 4}),
    ("min-p", {"min_p_threshold": 0.1}),
    ("no-repeat-ngram", {"no_repeat_ngram_size": 2}),
    ("ocr-ngram", {"ngram_size": 3, "whitelist_token_ids": [5]}),
    ("penalties", {"penalties_repetition": 1.5}),
    ("target-token", {"target_token": 7}),
    ("temperature", {"temperature_high": 2.0}),
    ("temperature", {"temperature_smoothing": 0.3}),
    ("thinking-budget", {"think_budget": 3, "think_start": [4], "think_end": [6, 7]}),
    ("top-n-sigma", {"top_n_sigma": 1.0}),
    *map(truncation, ("epsilon", "eta", "top_a")),
    ("xtc", {"xtc_probability": 0.5}),
]
SORTED = [("synthid", {"synthid_keys": [654, 400, 836]}), *map(truncation, ("typical", "tail_free"))]
"""Rules that hold whole rows beside the logits: ranks, or a tournament."""


def test_every_plugin_is_here() -> None:
    assert {name for name, _ in (*ARGUMENTS, *SORTED)} == CLASSES.keys() - {"rules"}  # a chain costs what its rules do


@pytest.mark.parametrize(("name", "args"), ARGUMENTS)
def test_it_costs_no_second_tensor_and_nothing_per_row(name: str, args: dict[str, Any]) -> None:
    assert_cheap(CLASSES[name], Asked(args, prompt=(4, 5), output=OUTPUT))


@pytest.mark.parametrize(("name", "args"), SORTED)
def test_it_waits_for_nothing_and_has_no_operation_per_row(name: str, args: dict[str, Any]) -> None:
    watched(CLASSES[name], Asked(args, output=OUTPUT), 16)  # the first call makes the scratch memory of all others
    few, many = (watched(CLASSES[name], Asked(args, output=OUTPUT), n) for n in (2, 16))
    assert few.names == many.names
    assert not HOST_SYNCS & set(many.names)


@pytest.mark.parametrize(("name", "args"), [("cite-from-prompt", CITE), ("logit-bias", BIAS)])
def test_a_sparse_rule_costs_the_same_at_every_vocabulary(name: str, args: dict[str, Any]) -> None:
    large, small = (watched(CLASSES[name], Asked(args, (4, 5), OUTPUT), 8, vocab) for vocab in (40_000, 1_000))
    assert large.largest == small.largest
