"""Applies a function to rows, some rows at a time. The backward pass computes rows again instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lpkit.train.batch import Batch, Piece

Rule = Callable[[torch.Tensor, Sequence[Piece]], torch.Tensor]
"""(logits ``[n, vocab]`` to edit, their chunk) -> values ``[n, ...]``."""


def chunked(batch: Batch, chunks: Sequence[Sequence[Piece]], rule: Rule, out: torch.Tensor) -> torch.Tensor:
    """Write the rule's values of all chunks to ``out``, and return it, differentiable in the logits.

    Args:
        rule: function of one chunk; must return the same values when called again.
        out: ``[N, ...]``, values of rows outside of all chunks; overwritten. If it has the logits' width, these rows
            are the logits.
    """
    values: torch.Tensor = _Chunked.apply(batch.rows, batch, chunks, rule, out)  # type: ignore[no-untyped-call]
    return values


def own_rows(rows: torch.Tensor, ranges: Sequence[slice]) -> torch.Tensor:
    """Copy some rows as engines do: to float32, or to float64 if the logits are float64."""
    dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
    if len(ranges) == 1:
        return rows[ranges[0]].to(dtype, copy=True)
    return torch.cat([rows[some].to(dtype) for some in ranges])


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        batch: Batch,
        chunks: Sequence[Sequence[Piece]],
        rule: Rule,
        out: torch.Tensor,
    ) -> torch.Tensor:
        for chunk in chunks:
            ranges = batch.ranges(chunk)
            put(out, ranges, rule(own_rows(rows, ranges), chunk))
        ctx.save_for_backward(rows)
        ctx.batch, ctx.chunks, ctx.rule = batch, chunks, rule
        ctx.mark_dirty(out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (rows,) = ctx.saved_tensors
        total = gradient.to(rows.dtype, copy=True) if gradient.shape == rows.shape else torch.zeros_like(rows)
        for chunk in ctx.chunks:
            ranges = ctx.batch.ranges(chunk)
            leaf = rows[ranges[0]].detach() if len(ranges) == 1 else torch.cat([rows[some] for some in ranges])
            leaf.requires_grad_()
            # Processors edit in place, including tensors that they have read: ``logits /= logits.std()``.
            with torch.enable_grad(), torch.autograd.graph.allow_mutation_on_saved_tensors():
                values = ctx.rule(own_rows(leaf, [slice(None)]), chunk)
                (part,) = torch.autograd.grad(values, leaf, torch.cat([gradient[some] for some in ranges]))
            put(total, ranges, part)
        return total, None, None, None, None


def put(out: torch.Tensor, ranges: Sequence[slice], values: torch.Tensor) -> None:
    """Write consecutive ``values`` to rows of ``out``."""
    start = 0
    for some in ranges:
        end = start + some.stop - some.start
        out[some] = values[start:end]
        start = end
