"""The fields of vLLM's ``SamplingParams`` that reach a sampler, for machines without vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GREEDY_EPSILON = 1e-5
"""vLLM samples greedily when ``temperature`` is below this (``_SAMPLING_EPS``)."""

_LOWEST_TEMPERATURE = 1e-2


@dataclass
class SamplingParams:
    """Per-request sampling options, named and normalised as vLLM 0.32 does.

    Raises:
        ValueError: if a value is outside the range that vLLM accepts.
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
        if self.temperature < 0:
            raise ValueError(f"temperature must be non-negative, got {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}.")
        if self.top_k < -1:
            raise ValueError(f"top_k must be 0 (disable) or at least 1, got {self.top_k}.")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be in [0, 1], got {self.min_p}.")
        if self.min_tokens < 0:
            raise ValueError(f"min_tokens must be at least 0, got {self.min_tokens}.")
        if self.repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty must be positive, got {self.repetition_penalty}.")
        if self.temperature < GREEDY_EPSILON:
            self.temperature, self.top_p, self.top_k, self.min_p = 0.0, 1.0, 0, 0.0
        elif self.temperature < _LOWEST_TEMPERATURE:
            self.temperature = _LOWEST_TEMPERATURE
        self.top_k = max(self.top_k, 0)
        self._all_stop_token_ids = self._all_stop_token_ids | set(self.stop_token_ids or ())

    @property
    def all_stop_token_ids(self) -> set[int]:
        """``stop_token_ids`` and, in an engine, the model's end-of-sequence ids."""
        return self._all_stop_token_ids

    @property
    def bad_words_token_ids(self) -> list[list[int]] | None:
        """Token ids of ``bad_words``; None without a tokenizer."""
        return self._bad_words_token_ids
