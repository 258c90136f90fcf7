"""lpkit-cite-from-prompt against plain Python."""

from __future__ import annotations

import random

import pytest
import torch
from lpkit_cite_from_prompt import CiteFromPrompt
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

VOCAB = 64


def boosted(row: torch.Tensor, asked: Asked) -> torch.Tensor:
    args = asked.args or {}
    text = [*asked.prompt, *asked.output]
    row = row.clone()
    for token in {*asked.prompt, *args["cite_also"]}:
        row[token] += args["cite_boost"]
    for token in {after for before, after in zip(asked.prompt, asked.prompt[1:], strict=False) if before == text[-1]}:
        row[token] += args["cite_next_boost"]
    return row


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
def test_it_boosts_what_plain_python_boosts(applied: Applied, seed: int) -> None:
    rng = random.Random(seed)
    asked = []
    for _ in range(12):
        args = {
            "cite_boost": rng.uniform(-9, 9),
            "cite_next_boost": rng.uniform(-9, 9),
            "cite_also": rng.sample(range(VOCAB), rng.randint(0, 3)),
        }
        prompt = [rng.randrange(16) for _ in range(rng.randint(1, 50))]
        asked.append(Asked(args, prompt, [rng.randrange(20) for _ in range(rng.randint(0, 50))]))
    logits = logits_of(len(asked), VOCAB, seed)
    expected = torch.stack([boosted(row, request) for row, request in zip(logits, asked, strict=True)])
    agree(applied(CiteFromPrompt, logits, asked), expected, "a walk through the text")
