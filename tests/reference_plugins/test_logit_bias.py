"""lpkit-logit-bias against transformers' bias for sequences of one token."""

from __future__ import annotations

import random
from typing import Any

import torch
from lpkit_logit_bias import LogitBias
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

VOCAB = 512


def biases(rng: random.Random, n: int) -> dict[int, float]:
    return {token: rng.choice([-100.0, rng.uniform(-100, 100), 0.5]) for token in rng.sample(range(VOCAB), n)}


def asking(bias: dict[int, float]) -> Asked:
    return Asked({"logit_bias_ids": [*bias], "logit_bias_values": [*bias.values()]}, output=(1, 2, 3, 4))


@ON_EVERY_HOST
def test_it_adds_what_transformers_adds(applied: Applied, transformers_rules: Any) -> None:
    rng = random.Random(0)
    wanted = [biases(rng, n) for n in (1, 2, 7, 300, VOCAB)]
    logits = logits_of(len(wanted) + 1, VOCAB)
    result = applied(LogitBias, logits, [*map(asking, wanted), Asked(None)])
    for row, bias in enumerate(wanted):
        rule = transformers_rules.SequenceBiasLogitsProcessor([[[token], value] for token, value in bias.items()])
        expected = rule(torch.tensor([[1]]), logits[row : row + 1].clone())
        agree(result[row], expected[0], "transformers' SequenceBiasLogitsProcessor")
    assert torch.equal(result[-1], logits[-1])
