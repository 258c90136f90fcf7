"""lpkit-target-token against its definition, and against transformers' rule for a forced first token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit_target_token import TargetToken
from oracles import agree
from plugin_hosts import Asked, assert_cheap
from sdk_hosts import VOCAB, V1Host, V2Host, logits_of, params

TARGETS = [0, None, 7, VOCAB - 1]


def on_v1(logits: torch.Tensor) -> torch.Tensor:
    host = V1Host(TargetToken)
    requests = [params() if target is None else params(target_token=target) for target in TARGETS]
    host.update(len(requests), added=[(i, sampling, [1], []) for i, sampling in enumerate(requests)])
    return host.apply(logits.clone())


def on_v2(logits: torch.Tensor) -> torch.Tensor:
    host = V2Host(TargetToken)
    for slot, target in enumerate(TARGETS):
        host.add(slot, params() if target is None else params(target_token=target), [1])
    host.flush()
    return host.apply(logits.clone(), host.context(range(len(TARGETS))))


@pytest.mark.parametrize("processed", [on_v1, on_v2])
def test_the_target_keeps_its_logit_and_others_their_rows(processed: Any) -> None:
    logits = logits_of(len(TARGETS))
    result = processed(logits)
    for row, target in enumerate(TARGETS):
        expected = logits[row].clone()
        if target is not None:
            expected[:target] = expected[target + 1 :] = -math.inf
        agree(result[row], expected, "the definition")


@pytest.mark.parametrize("processed", [on_v1, on_v2])
def test_it_chooses_what_transformers_forces(processed: Any, transformers_rules: Any) -> None:
    logits = logits_of(len(TARGETS))
    result = processed(logits)
    for row, target in enumerate(TARGETS):
        if target is not None:
            # transformers sets the forced token to 0 instead of keeping its logit: the probabilities are the same.
            forced = transformers_rules.ForcedBOSTokenLogitsProcessor(target)(torch.zeros(1, 1), logits[row : row + 1])
            oracle = "transformers' ForcedBOSTokenLogitsProcessor"
            agree(result[row].softmax(-1), forced[0].softmax(-1), oracle, "shares")


def test_it_costs_no_second_tensor_and_nothing_per_row() -> None:
    assert_cheap(TargetToken, Asked({"target_token": 7}))
