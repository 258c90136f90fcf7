"""lpkit-min-p against the definition in float64; transformers' own rule is met in test_in_transformers.py."""

from __future__ import annotations

import math

import pytest
import torch
from lpkit_min_p import MinP
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of


@ON_EVERY_HOST
@pytest.mark.parametrize("threshold", [0.001, 0.05, 0.1, 0.5, 0.999, 1.0])
def test_every_row_keeps_what_the_definition_keeps_at_its_own_temperature(applied: Applied, threshold: float) -> None:
    logits = logits_of(4, 512, 99)
    temperature = torch.tensor([[0.1], [0.7], [1.0], [2.0]])
    asked = [Asked({"min_p_threshold": threshold}, temperature=value) for value in temperature.flatten().tolist()]
    result = applied(MinP, logits / temperature, asked)
    shares = torch.softmax(logits.double() / temperature.double(), -1)
    kept = shares >= threshold * shares.amax(-1, keepdim=True)
    agree(result > -math.inf, kept, "the definition in float64", "which tokens stay")
    assert kept.sum(-1).tolist() == sorted(kept.sum(-1).tolist())  # hotter keeps more
