"""Requests, and the token that a greedy request must get at each position."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from lpkit_conformance.checks.engine.asks import Answer, Ask
from plain_rules import ruled

VOCAB = 512
STAIRS = (*range(1, 31), *range(1, 4))
"""A prompt that counts: the drafts of a request that has to go on counting are right."""


def make_ask(
    name: str,
    prompt: int | tuple[int, ...],
    tokens: int,
    at: int = 0,
    temperature: float = 0.0,
    kinds: int = VOCAB,
    **extra_args: Any,
) -> Ask:
    """Return a request for ``tokens`` tokens; a prompt given by its length is random, of ``kinds`` kinds of tokens."""
    seed = random.Random(name)
    ids = prompt if isinstance(prompt, tuple) else tuple(seed.randrange(kinds) for _ in range(prompt))
    params = {"max_tokens": tokens, "temperature": temperature, "extra_args": extra_args or None}
    return Ask(name, ids, params, at=at, logits=True)


def chosen(ask: Ask, answer: Answer) -> list[int]:
    """The best token that the rules of a request leave of the model's logits, at each position."""
    args = ask.params["extra_args"] or {}
    prompt = list(ask.prompt_token_ids)
    return [
        int(ruled(raw.astype(np.float64), args, prompt, answer.token_ids[:position]).argmax())
        for position, raw in enumerate(answer.rows)
    ]
