"""Stand-in for machines without vLLM: the fields of vLLM's ``SamplingParams`` that reach a sampler."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

GREEDY_EPSILON: Final = 1e-5
"""vLLM samples greedily when ``temperature`` is below this (``_SAMPLING_EPS``)."""

_LOWEST_TEMPERATURE: Final = 1e-2


class SamplingType(IntEnum):
    """Method of choosing a request's tokens."""

    GREEDY = 0
    RANDOM = 1
    RANDOM_SEED = 2


# vLLM's dataclass is positional and has fields that this class leaves out, so only keywords mean the same in both.
@dataclass(kw_only=True)
class SamplingParams:
    """Per-request sampling options, named and normalised as vLLM does.

    Raises:
        ValueError: a value is outside the range that vLLM accepts. (vLLM 0.27 and later raise ``VLLMValidationError``,
            which is not a ``ValueError``.)
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    bad_words: list[str] | None = None
    structured_outputs: Any = None
    thinking_token_budget: int | None = None
    skip_clone: bool = False
    _all_stop_token_ids: set[int] = field(default_factory=set, repr=False)
    _bad_words_token_ids: list[list[int]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # vLLM raises a tiny temperature before it decides on greediness, so only 0 itself is greedy.
        if 0 < self.temperature < _LOWEST_TEMPERATURE:
            self.temperature = _LOWEST_TEMPERATURE
        if self.seed == -1:
            self.seed = None
        if self.thinking_token_budget == -1:
            self.thinking_token_budget = None
        self.stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        self.stop_token_ids = list(dict.fromkeys(self.stop_token_ids or ()))
        self.bad_words = list(dict.fromkeys(self.bad_words or ()))
        for name, rule, holds in _RULES:
            value = getattr(self, name)
            if not holds(value):
                raise ValueError(f"{name} must be {rule}, got {value}.")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens must be at most max_tokens={self.max_tokens}, got {self.min_tokens}.")
        if self.temperature < GREEDY_EPSILON:
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0
            if self.n > 1:
                raise ValueError(f"n must be 1 when sampling greedily, got {self.n}.")
        self._all_stop_token_ids.update(self.stop_token_ids)

    @property
    def sampling_type(self) -> SamplingType:
        """Greedy, random or seeded, decided by temperature and seed."""
        if self.temperature < GREEDY_EPSILON:
            return SamplingType.GREEDY
        return SamplingType.RANDOM if self.seed is None else SamplingType.RANDOM_SEED

    @property
    def all_stop_token_ids(self) -> set[int]:
        """``stop_token_ids`` and, in an engine, the model's end-of-sequence ids."""
        return self._all_stop_token_ids

    @property
    def bad_words_token_ids(self) -> list[list[int]] | None:
        """Token ids of ``bad_words``; None without a tokenizer."""
        return self._bad_words_token_ids

    def clone(self) -> SamplingParams:
        """Return a deep copy; with ``skip_clone`` a shallow copy."""
        return copy.copy(self) if self.skip_clone else copy.deepcopy(self)


def _fits_the_transport(extra_args: dict[str, Any] | None) -> bool:
    """Return False if an integer needs more than 64 bits, which MessagePack between vLLM's processes cannot carry."""
    pending: list[Any] = [extra_args]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return False
        if isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            pending.extend((*value, *value.values()) if isinstance(value, dict) else value)
    return True


_RULES: Final[tuple[tuple[str, str, Callable[[Any], bool]], ...]] = (
    ("n", "at least 1", lambda v: v >= 1),
    ("extra_args", "free of integers outside -2**63 .. 2**64 - 1", _fits_the_transport),
    ("presence_penalty", "in [-2, 2]", lambda v: -2 <= v <= 2),
    ("frequency_penalty", "in [-2, 2]", lambda v: -2 <= v <= 2),
    ("repetition_penalty", "finite and greater than 0", lambda v: math.isfinite(v) and v > 0),
    ("temperature", "in [0, 2]", lambda v: 0 <= v <= 2),
    ("top_p", "in (0, 1]", lambda v: 0 < v <= 1),
    ("top_k", "an integer: 0 or -1 (disabled), or at least 1", lambda v: isinstance(v, int) and v >= -1),
    ("min_p", "in [0, 1]", lambda v: 0 <= v <= 1),
    ("max_tokens", "at least 1", lambda v: v is None or v >= 1),
    ("min_tokens", "at least 0", lambda v: v >= 0),
    ("thinking_token_budget", "at least 0, or -1 for none", lambda v: v is None or v >= 0),
    ("logprobs", "non-negative or -1", lambda v: v is None or v >= -1),
    ("prompt_logprobs", "non-negative or -1", lambda v: v is None or v >= -1),
    ("stop_token_ids", "integers only", lambda v: all(isinstance(item, int) for item in v)),
    ("stop", "free of empty strings", all),
    ("bad_words", "free of empty strings", all),
)
