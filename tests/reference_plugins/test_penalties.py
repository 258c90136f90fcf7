"""lpkit-penalties against transformers' repetition penalty and vLLM's dense histograms, derived again here."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from lpkit_penalties import Penalties
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

VOCAB = 64


def requests(rng: random.Random, args: list[dict[str, float]]) -> list[Asked]:
    """Few kinds of tokens, so that most of them are repetitions."""
    made = []
    for extra_args in args:
        prompt = [rng.randrange(20) for _ in range(rng.randint(1, 40))]
        made.append(Asked(extra_args, prompt, [rng.randrange(10, 30) for _ in range(rng.randint(0, 90))]))
    return made


def dense(row: torch.Tensor, asked: Asked) -> torch.Tensor:
    """The rule over a whole row, as an engine with dense tables computes it."""
    args = asked.args or {}
    prompt = torch.bincount(torch.tensor(asked.prompt), minlength=VOCAB)
    output = torch.bincount(torch.tensor(asked.output, dtype=torch.int64), minlength=VOCAB)
    factor = torch.where(prompt + output > 0, args.get("penalties_repetition", 1.0), 1.0)
    row = torch.where(row > 0, row / factor, row * factor)
    row = row - args.get("penalties_frequency", 0.0) * output
    return row - args.get("penalties_presence", 0.0) * (output > 0)


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
def test_it_does_what_dense_tables_do(applied: Applied, seed: int) -> None:
    rng = random.Random(seed)
    chosen = [
        {
            "penalties_repetition": rng.uniform(0.5, 2.0),
            "penalties_presence": rng.uniform(-2, 2),
            "penalties_frequency": rng.uniform(-2, 2),
        }
        for _ in range(8)
    ]
    asked = requests(rng, chosen)
    logits = logits_of(8, VOCAB, seed)
    result = applied(Penalties, logits, asked)
    for row, request in enumerate(asked):
        agree(result[row], dense(logits[row], request), "counts over the whole vocabulary", within=1e-6, relative=True)


@ON_EVERY_HOST
def test_the_repetition_penalty_is_that_of_transformers(applied: Applied, transformers_rules: Any) -> None:
    penalties = [0.8, 1.0001, 1.2, 1.5, 5.0]
    asked = requests(random.Random(9), [{"penalties_repetition": penalty} for penalty in penalties])
    logits = logits_of(len(asked), VOCAB)
    result = applied(Penalties, logits, asked)
    for row, request in enumerate(asked):
        rule = transformers_rules.RepetitionPenaltyLogitsProcessor(penalties[row])
        seen = torch.tensor([[*request.prompt, *request.output]])
        expected = rule(seen, logits[row : row + 1].clone())[0]
        agree(result[row], expected, "transformers' RepetitionPenaltyLogitsProcessor")
