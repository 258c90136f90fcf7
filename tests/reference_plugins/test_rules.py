"""A chain of rules against the chain of transformers' processors."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
import torch
from lpkit_rules import Rules
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

VOCAB = 50
STEPS = [
    {"rule": "penalties", "repetition": 1.3},
    {"rule": "ban", "phrases": [3, 7]},
    {"rule": "no_repeat_ngram", "size": 1, "when": {"until": 4}},
    {"rule": "min_p", "threshold": 0.1},
]


@ON_EVERY_HOST
@pytest.mark.parametrize("written", [2, 4])
def test_a_chain_agrees_with_transformers(transformers_rules: ModuleType, applied: Applied, written: int) -> None:
    prompt, output = [], [5, 6, 9, 11][:written]
    logits = logits_of(1, VOCAB)
    theirs = [
        transformers_rules.RepetitionPenaltyLogitsProcessor(1.3),
        transformers_rules.NoBadWordsLogitsProcessor([[3], [7]], eos_token_id=VOCAB - 1),
        *[transformers_rules.NoRepeatNGramLogitsProcessor(1)] * (written < 4),
        transformers_rules.MinPLogitsWarper(0.1),
    ]
    expected = logits.clone()
    for rule in theirs:
        expected = rule(torch.tensor([prompt + output]), expected)
    ours = applied(Rules, logits, [Asked({"rules": json.dumps(STEPS)}, prompt, output)])
    agree(ours, expected, "transformers", within=1e-6)
