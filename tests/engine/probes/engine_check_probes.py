"""Plugins with a planted defect, for ``lpkit check --engine vllm``. Imported in the engine's process only."""

from __future__ import annotations

from typing import Any

import torch
from lpkit.v1 import BatchUpdate, LogitsProcessor, MoveDirectionality
from lpkit.v2 import LogitsContext
from lpkit.v2 import LogitsProcessor as V2LogitsProcessor


class LeavesAtMoves(LogitsProcessor):
    """Favours a token. A one-way move copies the state: the old row keeps it, and the next request there gets it.

    V1's interface only, so the V2 runner refuses it.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.tokens: dict[int, int] = {}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        token = (params.extra_args or {}).get("leaves_token")
        if token is not None and (type(token) is not int or not 0 <= token < 512):
            raise ValueError(f"leaves_token must be a token id, not {token!r}")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.tokens.pop(row, None)
        for row, params, _, _ in batch_update.added:
            token = (params.extra_args or {}).get("leaves_token")
            if token is not None:
                self.tokens[row] = token
        for source, target, way in batch_update.moved:
            moving, met = self.tokens.get(source), self.tokens.get(target)
            self._put(target, moving)
            if way is MoveDirectionality.SWAP:
                self._put(source, met)

    def _put(self, row: int, token: int | None) -> None:
        if token is None:
            self.tokens.pop(row, None)
        else:
            self.tokens[row] = token

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, token in self.tokens.items():
            if row < len(logits):
                logits[row, token] += 20.0
        return logits


class WhispersToSampled(V2LogitsProcessor):
    """Favours a token, and very little also in the rows of sampled neighbours that have two tokens already.

    That is less than a real model's logits differ by in another batch, and where a sampled request without a seed went
    another way than alone long ago.
    """

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.states = req_states
        self.tokens = torch.full((req_states.max_num_reqs,), -1, dtype=torch.int64)
        self.drawn = torch.zeros(req_states.max_num_reqs, dtype=torch.bool)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self.tokens[req_idx] = (sampling_params.extra_args or {}).get("whispers_token", -1)
        self.drawn[req_idx] = sampling_params.temperature > 0 and sampling_params.seed is None
        return True

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        tokens = self.tokens[slots]
        rows = (tokens >= 0).nonzero().squeeze(1)
        logits[rows, tokens[rows]] += 2.0
        generated = self.states.total_len.gpu[slots] - torch.from_numpy(self.states.prompt_len.np)[slots]
        if len(rows):
            logits[self.drawn[slots] & (tokens < 0) & (generated >= 2), tokens[rows[0]]] += 1e-4
        return logits


class RoundsItsSums(V2LogitsProcessor):
    """A correct one: scales its rows by a mean, whose last bits depend on how many rows there are."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.uses = torch.zeros(req_states.max_num_reqs, dtype=torch.bool)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self.uses[req_idx] = "rounds" in (sampling_params.extra_args or {})
        return bool(self.uses[req_idx])

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        rows = self.uses[slots].nonzero().squeeze(1)
        order = torch.randperm(logits.shape[1], generator=torch.Generator().manual_seed(len(slots)))
        logits[rows] *= logits[rows].exp()[:, order].mean(1, keepdim=True) / 100
        return logits


class ForgetsDrafts(V2LogitsProcessor):
    """Favours a token until the request has five tokens; all of a request's rows get its length before the drafts."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.states = req_states
        self.tokens = torch.full((req_states.max_num_reqs,), -1, dtype=torch.int64)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self.tokens[req_idx] = (sampling_params.extra_args or {}).get("drafts_token", -1)
        return bool(self.tokens[req_idx] >= 0)

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        generated = self.states.total_len.gpu[slots] - torch.from_numpy(self.states.prompt_len.np)[slots]
        rows = ((self.tokens[slots] >= 0) & (generated < 5)).nonzero().squeeze(1)
        logits[rows, self.tokens[slots[rows]]] += 20.0
        return logits
