"""Defects that show only under a grammar, on a GPU, in memory, in rejected drafts or in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import lpkit
import numpy as np
import torch

from zoo.adapter_defects import Simple
from zoo.arguments import INF
from zoo.late_defects import Late
from zoo.registry import defect, sound

logger = logging.getLogger(__name__)


class Eta(lpkit.LogitsProcessor):
    """Masks what is less likely than the entropy of the row makes it; the best token stays."""

    stage = "sampling"
    CASE = {"extra_args": {"eta_epsilon": 0.02}}

    class Params(lpkit.Params, prefix="eta_"):
        epsilon: float = lpkit.Field(gt=0.0, lt=1.0)

    epsilon = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        self.epsilon[request.slot] = request.params.epsilon
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        log_p = torch.log_softmax(logits / rows.temperature, dim=1)
        epsilon = self.epsilon[rows].unsqueeze(1)
        limit = torch.minimum(epsilon, epsilon.sqrt() * self.entropy(log_p).neg().exp())
        p = log_p.exp()
        return torch.where(p >= torch.minimum(limit, p.amax(1, keepdim=True)), logits, -INF)

    def entropy(self, log_p: torch.Tensor) -> torch.Tensor:
        return -(log_p.exp() * log_p).nan_to_num(0.0).sum(1, keepdim=True)


sound("masks by the entropy of a row, in which masked tokens count nothing", "portable")(Eta)


@defect("LP307", "the entropy of a row with a masked token is NaN, and no token passes", style="portable")
class EtaOfMasked(Eta):
    def entropy(self, log_p: torch.Tensor) -> torch.Tensor:
        return -(log_p.exp() * log_p).sum(1, keepdim=True)


@defect("LP308", "edits the logits in numpy, through a copy on the host", style="v1")
class EditsInNumpy(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        on_host = logits.cpu().numpy()
        for row, (where, bias, _, _) in self.rows.items():
            on_host[row, where] += np.float32(bias)
        return logits


@sound("computes in numpy, from a copy on the host, and writes back", "v1")
class ComputesInNumpy(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        on_host = logits.cpu().numpy().copy()
        for row, (where, bias, _, _) in self.rows.items():
            logits[row, where] = float(on_host[row, where] + np.float32(bias))
        return logits


@defect("LP603", "remembers what it banned after every output that it saw", style="v1")
class RemembersOutputs(Late):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.banned: dict[tuple[int, ...], bool] = {}

    def act(self, row: torch.Tensor, where: int, bias: float) -> None:
        row[where] += bias

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias, _, outputs) in self.rows.items():
            if self.banned.setdefault(tuple(outputs), len(outputs) % 2 == 0):
                self.act(logits[row], where, bias)
        return logits


def count(amount: float, token: int, rejected: bool) -> Callable[..., torch.Tensor]:
    """Lowers a token by how often it came; ``rejected``: and keeps what turned out to be a rejected draft."""
    read = used = 0

    def limit(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        nonlocal read, used
        if rejected:
            used += output_ids[read:].count(token)
            read = len(output_ids)
        else:
            used = output_ids.count(token)
        logits[token] -= amount * used
        return logits

    return limit


class Quotas(Simple):
    CASE = {"extra_args": {"amount": 1.5, "quota": 7}}

    class Params(lpkit.Params):
        amount: float = lpkit.Field(gt=0.0, le=100.0)
        quota: lpkit.TokenId = 7

    def new_req_logits_processor(self, params: Any) -> Any:
        own = self.params(params)
        return None if own is None else count(own.amount, own.quota, isinstance(self, CountsDrafts))


@defect("LP804", "counts a token in drafts that are rejected", style="adapter")
class CountsDrafts(Quotas):
    pass


@sound("counts a token in the outputs as they are now", "adapter")
class CountsOutputs(Quotas):
    pass


@defect("LP704", "logs its requests in every step", style="v1")
class LogsEachStep(Late):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logger.warning("%d requests", len(self.rows))
        return super().apply(logits)


@sound("logs each request once", "v1")
class LogsRequests(Late):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        logger.warning("a request")
        return super().enter(params, prompt, outputs)
