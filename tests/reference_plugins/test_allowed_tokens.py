"""lpkit-allowed-tokens against transformers' rule for a constrained choice."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from lpkit_allowed_tokens import AllowedTokens
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import V1Host, logits_of

VOCAB = 500  # no multiple of 8


@ON_EVERY_HOST
def test_it_leaves_what_transformers_leaves(applied: Applied, transformers_rules: Any) -> None:
    rng = random.Random(0)
    lists = [rng.sample(range(VOCAB), n) for n in (1, 2, 9, 120, VOCAB - 1, VOCAB)]
    lists.append(lists[2][::-1])  # the same set once more
    logits = logits_of(len(lists) + 1, VOCAB)
    asked = [Asked({"allowed_tokens": ids}, output=(1, 2, 3, 4)) for ids in lists]
    result = applied(AllowedTokens, logits, [*asked, Asked(None)])
    for row, ids in enumerate(lists):
        rule = transformers_rules.PrefixConstrainedLogitsProcessor(lambda batch, seen, ids=ids: ids, num_beams=1)
        expected = rule(torch.tensor([[1]]), logits[row : row + 1].clone())[0]
        agree(result[row], expected, "transformers' PrefixConstrainedLogitsProcessor")
    assert torch.equal(result[-1], logits[-1])


def test_a_thousand_requests_with_one_list_hold_one_mask() -> None:
    host = V1Host(AllowedTokens, max_num_seqs=1000, vocab_size=VOCAB)
    asked = Asked({"allowed_tokens": [1, 2]})
    host.update(1000, added=[(i, asked.sampling, [1], []) for i in range(1000)])
    assert host.processor.ids.all.shape[0] == 2


@ON_EVERY_HOST
def test_long_lists_and_short_ones_keep_the_same_tokens(applied: Applied) -> None:
    logits = logits_of(3, VOCAB)
    logits[1, 7] = -math.inf
    long = list(range(300))
    for lists in ([[5], [7, 9, 499], [3]], [[5], [7, 9, 499], long]):
        result = applied(AllowedTokens, logits, [Asked({"allowed_tokens": ids}) for ids in lists])
        for row, ids in enumerate(lists):
            kept = torch.zeros(VOCAB, dtype=torch.bool)
            kept[ids] = True
            assert torch.equal(result[row], logits[row].masked_fill(~kept, -math.inf))
