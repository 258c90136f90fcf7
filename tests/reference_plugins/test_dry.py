"""lpkit-dry against the original rule, searched for by brute force over all suffixes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lpkit_dry import Dry
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import logits_of

VOCAB = 64


def brute_force(asked: Asked) -> dict[int, float]:
    """Penalty by token: every token that followed an occurrence of any suffix of the text."""
    args: dict[str, Any] = {"dry_base": 1.75, "dry_allowed_length": 2, "dry_range": 0, "dry_breakers": (), **asked.args}
    text = [*asked.prompt, *asked.output][-args["dry_range"] :]
    lengths: dict[int, int] = {}
    for length in range(args["dry_allowed_length"], len(text)):
        suffix = text[-length:]
        if set(suffix) & set(args["dry_breakers"]):
            break
        for start in range(len(text) - length):
            if text[start : start + length] == suffix and text[start + length] not in args["dry_breakers"]:
                lengths[text[start + length]] = length
    excess = {token: length - args["dry_allowed_length"] for token, length in lengths.items()}
    return {token: min(args["dry_multiplier"] * args["dry_base"] ** n, 1e38) for token, n in excess.items()}


def some_requests(rng: random.Random) -> list[Asked]:
    """Texts that stutter: stretches of few kinds of tokens, copied sometimes."""
    made = []
    for _ in range(40):
        text = [rng.randrange(6) for _ in range(rng.randint(2, 20))]
        while len(text) < 100 and rng.random() < 0.9:
            start = rng.randrange(len(text))
            text += text[start : start + rng.randint(1, 20)] if rng.random() < 0.7 else [rng.randrange(10)]
        cut = rng.randint(1, len(text))
        args = {"dry_multiplier": rng.uniform(0.1, 3), "dry_base": rng.uniform(1, 2)}
        args |= {"dry_allowed_length": rng.randint(1, 4), "dry_range": rng.choice([0, 0, 5, 30, 500])}
        args |= {"dry_breakers": rng.sample(range(10), rng.randint(0, 2))}
        made.append(Asked(args, text[:cut], text[cut:]))
    return made


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(2))
def test_it_penalizes_what_a_brute_force_search_finds(applied: Applied, seed: int) -> None:
    asked = some_requests(random.Random(seed))
    logits = logits_of(len(asked), VOCAB)
    result = applied(Dry, logits, asked)
    found = [brute_force(request) for request in asked]
    assert sum(map(len, found)) > 10
    for row, penalties in enumerate(found):
        expected = logits[row].clone()
        for token, penalty in penalties.items():
            expected[token] -= penalty
        agree(result[row], expected, "a search of every suffix in plain Python", within=1e-5, relative=True)
