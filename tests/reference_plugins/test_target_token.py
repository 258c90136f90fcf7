"""lpkit-target-token against its definition, and against transformers' rule for a forced first token."""

from __future__ import annotations

import math
from typing import Any

import torch
from lpkit_target_token import TargetToken
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import VOCAB, logits_of

TARGETS = [0, None, 7, VOCAB - 1]


ASKED = [Asked(None if target is None else {"target_token": target}) for target in TARGETS]


@ON_EVERY_HOST
def test_the_target_keeps_its_logit_and_others_their_rows(applied: Applied) -> None:
    logits = logits_of(len(TARGETS))
    result = applied(TargetToken, logits, ASKED)
    for row, target in enumerate(TARGETS):
        expected = logits[row].clone()
        if target is not None:
            expected[:target] = expected[target + 1 :] = -math.inf
        agree(result[row], expected, "the definition")


@ON_EVERY_HOST
def test_it_chooses_what_transformers_forces(applied: Applied, transformers_rules: Any) -> None:
    logits = logits_of(len(TARGETS))
    result = applied(TargetToken, logits, ASKED)
    for row, target in enumerate(TARGETS):
        if target is not None:
            # transformers sets the forced token to 0 instead of keeping its logit: the probabilities are the same.
            forced = transformers_rules.ForcedBOSTokenLogitsProcessor(target)(torch.zeros(1, 1), logits[row : row + 1])
            oracle = "transformers' ForcedBOSTokenLogitsProcessor"
            agree(result[row].softmax(-1), forced[0].softmax(-1), oracle, "shares")
