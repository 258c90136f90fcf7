"""The functions of :mod:`lpkit.kernels` in few passes over the memory, compiled by ``torch.compile`` for the CPU.

For logits that do not fit into the processor's cache; use them through that module. Compiled once for all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from lpkit import rng

KIND = "compiled"


def _compiled(rule: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(rule, dynamic=True, fullgraph=True)


# What edits in place returns nothing: the compiler would keep a copy of it.


@_compiled
def _mask_below(logits: torch.Tensor, lowest: torch.Tensor) -> None:
    logits.masked_fill_(logits < lowest, -math.inf)


@_compiled
def _mask_above(logits: torch.Tensor, highest: torch.Tensor) -> None:
    logits.masked_fill_(logits > highest, -math.inf)


# Given a transposed view, too: of contiguous logits it would keep a copy of each row nevertheless.
@_compiled
def _mask_far_below_top(columns: torch.Tensor, distance: torch.Tensor) -> None:
    columns.masked_fill_(columns < columns.amax(dim=0, keepdim=True) - distance, -math.inf)


@_compiled
def _least_from(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    return torch.where(logits < lowest, math.inf, logits).amin(dim=1, keepdim=True)


@_compiled
def _log_sum_exp(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    highest = logits.amax(dim=1, keepdim=True)
    shares = torch.exp((logits - highest) / temperature)
    return highest / temperature + shares.sum(dim=1, keepdim=True).log()


@_compiled
def _top_and_deviation(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    highest = logits.amax(dim=1, keepdim=True)
    there = logits > -math.inf
    below = torch.where(there, highest - logits, 0.0)
    count = there.sum(dim=1, keepdim=True).double()
    mean = below.sum(dim=1, keepdim=True).double() / count
    squares = below.square().sum(dim=1, keepdim=True).double()
    return highest, (squares / count - mean.square()).clamp(min=0.0).sqrt()


@_compiled
def _add_where_hashed(logits: torch.Tensor, seeds: torch.Tensor, limit: torch.Tensor, bias: torch.Tensor) -> None:
    ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    logits.add_(torch.where(rng.mix32_(seeds ^ ids) < limit, bias, 0.0))


def mask_below_(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    _mask_below(logits, lowest.contiguous())
    return logits


def mask_above_(logits: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    _mask_above(logits, highest.contiguous())
    return logits


def mask_far_below_top_(logits: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    _mask_far_below_top(logits.t(), distance.contiguous().t())
    return logits


def least_from(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    return _least_from(logits, lowest.contiguous())  # type: ignore[no-any-return]


def log_sum_exp(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return _log_sum_exp(logits, temperature.contiguous())  # type: ignore[no-any-return]


def top_and_deviation(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _top_and_deviation(logits)  # type: ignore[no-any-return]


def add_where_hashed_(
    logits: torch.Tensor, seeds: torch.Tensor, limit: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    _add_where_hashed(logits, seeds.contiguous(), limit.contiguous(), bias.contiguous())
    return logits


LEAST_BYTES = 2**23
"""Smaller logits stay in the cache between two passes, and are cheaper without the checks of compiled code."""


def suits(logits: torch.Tensor) -> bool:
    """Whether these logits are of the kind that was compiled for; anything else would be compiled anew, in seconds.

    Nor while operations are watched: they do not see compiled code, and torch does not return to it afterwards.
    """
    alike = logits.nbytes > LEAST_BYTES and logits.shape[0] > 1 and logits.is_contiguous()
    return alike and _get_current_dispatch_mode() is None
