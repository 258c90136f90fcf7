"""lpkit-thinking-budget against a reading of the whole history in plain Python, and in a running batch."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_thinking_budget import ThinkingBudget
from oracles import agree
from plugin_hosts import ON_EVERY_HOST, Applied, Asked
from sdk_hosts import VOCAB, logits_of


def due(asked: Asked) -> int | None:
    """The token to force, from a walk through the text."""
    args = asked.args or {}
    budget, start, end = (args[f"think_{key}"] for key in ("budget", "start", "end"))
    text = [*asked.prompt, *asked.output]
    began = ended = -1
    for i in range(1, len(text) + 1):
        began = i if text[:i][-len(start) :] == start else began
        ended = i if text[:i][-len(end) :] == end else ended
    if began <= ended or len(text) - began < budget:
        return None
    thought = text[began:]
    return int(end[max(k for k in range(len(end)) if k == 0 or thought[-k:] == end[:k])])


def some_requests(rng: random.Random) -> list[Asked]:
    """Texts of few kinds of tokens, in which markers are common."""
    made = []
    for _ in range(40):
        args = {
            "think_budget": rng.randint(0, 6),
            "think_start": [rng.randrange(4) for _ in range(rng.randint(1, 2))],
            "think_end": [rng.randrange(4) for _ in range(rng.randint(2, 4))],
        }
        text = [rng.randrange(4) for _ in range(rng.randint(1, 40))]
        cut = rng.randint(1, len(text))
        made.append(Asked(args, text[:cut], text[cut:]))
    return made


@ON_EVERY_HOST
@pytest.mark.parametrize("seed", range(3))
def test_it_forces_what_a_walk_through_the_text_says(applied: Applied, seed: int) -> None:
    asked = some_requests(random.Random(seed))
    logits = logits_of(len(asked))
    result = applied(ThinkingBudget, logits, asked)
    tokens = [due(request) for request in asked]
    assert 5 < sum(token is not None for token in tokens) < 35
    for row, token in enumerate(tokens):
        expected = logits[row].clone()
        if token is not None:
            expected[torch.arange(VOCAB) != token] = -math.inf
        agree(result[row], expected, "a walk through the text")


@pytest.mark.parametrize("engine", [V1Engine, V2Engine])
def test_no_reply_thinks_longer_than_its_budget(engine: Any) -> None:
    scheduler = Scheduler(engine([ThinkingBudget], device="cpu"), num_blocks=12, block_size=8, new_lists=True)
    start, end = [500, 501], [502, 503, 504]
    for i in range(5):
        args = {"think_budget": 4 * i, "think_start": start, "think_end": end}
        params = SamplingParams(temperature=1.0, extra_args=args)
        scheduler.submit(Request(f"r{i}", params, [9] * i + start, max_tokens=30))
    scheduler.run()
    assert scheduler.num_preemptions > 0
    for i in range(5):
        assert scheduler.finished[f"r{i}"].output_token_ids[4 * i : 4 * i + 3] == end
