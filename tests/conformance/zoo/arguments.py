"""Reading ``extra_args`` strictly, so that only the planted defect of a specimen is wrong."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from lpkit.runtime.batch.noise import exponential, row_hashes

INF = math.inf
VOCAB = 512
Way = Literal["up", "down"]
MIN_P = {"extra_args": {"min_p": 0.2}}
REPETITION = {"extra_args": {"rep_penalty": 1.7}}


def number(params: Any, key: str, low: float = -100.0, high: float = 100.0) -> float | None:
    """A finite number in [low, high], or None if the key is absent. Raises ``ValueError`` for anything else."""
    value = (params.extra_args or {}).get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{key} must be a number in [{low}, {high}], not {value!r}")
    return float(value)


def token(params: Any, key: str) -> int | None:
    """A token id of the reference vocabulary, or None if the key is absent."""
    value = (params.extra_args or {}).get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < VOCAB:
        raise ValueError(f"{key} must be a token id, not {value!r}")
    return value


def tokens(params: Any, key: str) -> list[int] | None:
    """A list of token ids, or None if the key is absent."""
    value = (params.extra_args or {}).get(key)
    if value is None:
        return None
    whole = isinstance(value, list) and all(type(item) is int and 0 <= item < VOCAB for item in value)
    if not whole or not value:
        raise ValueError(f"{key} must be a list of token ids, not {value!r}")
    return list(value)


def noise(seed: int, key: int, position: int, vocab_size: int = VOCAB) -> torch.Tensor:
    """``[vocab_size]`` positive random numbers, a pure function of the arguments."""
    return torch.from_numpy(exponential(row_hashes(seed, "zoo", [(key, position)]), vocab_size))[0]
