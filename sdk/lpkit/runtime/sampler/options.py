"""The built-in sampling options of the requests in a batch, as tensors by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from lpkit.runtime.batch.noise import exponential, row_hashes
from lpkit.runtime.batch.request import Request
from lpkit.runtime.sampler.stages import apply_penalties, token_counts, write_tokens
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams


class Penalties(NamedTuple):
    rows: list[int]
    prompt_mask: torch.Tensor
    repetition: torch.Tensor
    frequency: torch.Tensor
    presence: torch.Tensor


def has_penalties(params: SamplingParams) -> bool:
    return bool(params.repetition_penalty != 1.0 or params.frequency_penalty or params.presence_penalty)


def has_biases(params: SamplingParams) -> bool:
    """True if allowed ids, a logit bias or a minimum length is in use."""
    min_tokens = params.min_tokens and params.all_stop_token_ids
    return bool(params.allowed_token_ids or params.logit_bias or min_tokens)


def is_greedy(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_EPSILON


@dataclass
class RowOptions:
    """Options by row; None if no request of the batch uses the stage."""

    requests: list[Request]
    device: torch.device
    vocab_size: int
    greedy: list[bool]
    temperature: torch.Tensor
    min_p: torch.Tensor | None
    top_k: torch.Tensor | None
    top_p: torch.Tensor | None
    allowed_mask: torch.Tensor | None
    bias: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    penalties: Penalties | None
    min_tokens: list[tuple[int, Request]] = field(default_factory=list)
    bad_words: list[tuple[int, Request]] = field(default_factory=list)

    @classmethod
    def of(cls, requests: Sequence[Request], vocab_size: int, device: torch.device) -> RowOptions:
        """Collect the options of ``requests``, one per row."""
        params = [request.params for request in requests]

        def column(value: Callable[[SamplingParams], float], neutral: float) -> torch.Tensor | None:
            values = [value(p) for p in params]
            if all(v == neutral for v in values):
                return None
            return torch.tensor(values, dtype=torch.float32).to(device)

        top_k = column(lambda p: p.top_k if 0 < p.top_k < vocab_size else vocab_size, vocab_size)
        return cls(
            requests=list(requests),
            device=device,
            vocab_size=vocab_size,
            greedy=[is_greedy(p) for p in params],
            temperature=torch.tensor([p.temperature for p in params], dtype=torch.float32).to(device),
            min_p=column(lambda p: p.min_p, 0.0),
            top_k=None if top_k is None else top_k.to(torch.int64),
            top_p=column(lambda p: p.top_p, 1.0),
            allowed_mask=_allowed_mask(params, vocab_size, device),
            bias=_bias(params, device),
            penalties=_penalties(requests, vocab_size, device),
            min_tokens=[(i, r) for i, r in enumerate(requests) if r.params.min_tokens],
            bad_words=[(i, r) for i, r in enumerate(requests) if r.params.bad_words_token_ids],
        )

    @property
    def all_greedy(self) -> bool:
        return all(self.greedy)

    @property
    def all_random(self) -> bool:
        return not any(self.greedy)

    def allow(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask every token outside of a request's ``allowed_token_ids``."""
        return logits if self.allowed_mask is None else logits.masked_fill_(self.allowed_mask, -torch.inf)

    def add_bias(self, logits: torch.Tensor) -> torch.Tensor:
        if self.bias is not None:
            rows, ids, values = self.bias
            logits[rows, ids] += values
        return logits

    def hold_back_stops(self, logits: torch.Tensor, output_lens: Sequence[int]) -> torch.Tensor:
        """Mask the stop tokens of requests with fewer outputs than ``min_tokens``.

        With structured outputs, stop tokens stay if no other token is left: the grammar may allow only the end.
        """
        rows: list[int] = []
        ids: list[int] = []
        careful: dict[int, list[int]] = {}
        for row, request in self.min_tokens:
            if output_lens[row] < request.params.min_tokens:
                stops = sorted(request.params.all_stop_token_ids)
                rows += [row] * len(stops)
                ids += stops
                if request.params.structured_outputs is not None and stops:
                    careful[row] = stops
        kept = {row: logits[row, stops] for row, stops in careful.items()}
        logits = write_tokens(logits, rows, ids)
        for row, values in kept.items():
            if bool(torch.isneginf(logits[row]).all()):
                logits[row, careful[row]] = torch.where(values.isfinite(), values, -torch.inf)
        return logits

    def ban_words(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask the last token of each bad word whose other tokens end the output."""
        rows: list[int] = []
        ids: list[int] = []
        for row, request in self.bad_words:
            outputs = request.output_token_ids
            for *head, last in request.params.bad_words_token_ids or ():
                if not head or outputs[-len(head) :] == head:
                    rows.append(row)
                    ids.append(last)
        return write_tokens(logits, rows, ids)

    def penalise(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply repetition, frequency and presence penalties."""
        if self.penalties is None:
            return logits
        rows, *options = self.penalties
        outputs = [self.requests[row].output_token_ids for row in rows]
        counts = token_counts(outputs, self.vocab_size, self.device)
        if len(rows) == len(self.requests):
            return apply_penalties(logits, options[0], counts, *options[1:])
        logits[rows] = apply_penalties(logits[rows], options[0], counts, *options[1:])
        return logits

    def drop_below(
        self, logits: torch.Tensor, rule: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Apply a runner's rule of min-p."""
        return logits if self.min_p is None else rule(logits, self.min_p)

    def noise(self, seed: int) -> torch.Tensor:
        """Compute exponential noise ``[n, vocab]`` for sampling.

        It depends on each request's seed (or on ``seed`` and its id) and on its length. So a request draws the same
        token in any batch."""
        keys = [
            (f"request {r.request_id} of {seed}" if r.params.seed is None else f"seed {r.params.seed}", r.total_len)
            for r in self.requests
        ]
        return torch.from_numpy(exponential(row_hashes(0, "sample", keys), self.vocab_size)).to(self.device)


def _allowed_mask(params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> torch.Tensor | None:
    if not any(p.allowed_token_ids for p in params):
        return None
    mask = torch.zeros(len(params), vocab_size, dtype=torch.bool)
    for row, p in enumerate(params):
        if p.allowed_token_ids:
            mask[row] = True
            mask[row, p.allowed_token_ids] = False
    return mask.to(device)


def _bias(
    params: Sequence[SamplingParams], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    entries = [(row, *item) for row, p in enumerate(params) for item in (p.logit_bias or {}).items()]
    if not entries:
        return None
    rows, ids, values = zip(*entries, strict=True)
    place = torch.tensor([rows, ids], dtype=torch.int64).to(device)
    return place[0], place[1], torch.tensor(values, dtype=torch.float32).to(device)


def _penalties(requests: Sequence[Request], vocab_size: int, device: torch.device) -> Penalties | None:
    rows = [row for row, request in enumerate(requests) if has_penalties(request.params)]
    if not rows:
        return None
    params = [requests[row].params for row in rows]
    prompts = [requests[row].prompt_token_ids or [] for row in rows]
    values = [(p.repetition_penalty, p.frequency_penalty, p.presence_penalty) for p in params]
    columns = torch.tensor(values, dtype=torch.float32).to(device).unbind(1)
    return Penalties(rows, token_counts(prompts, vocab_size, device) > 0, *columns)
