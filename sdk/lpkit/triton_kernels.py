"""The masks of :mod:`lpkit.kernels` as fused Triton kernels, for CUDA; use them through that module.

A row is split over several programs while the batch is smaller than the GPU, so that a single request keeps all
multiprocessors busy too. Kept logits are never written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

KIND = "Triton"

BLOCK = 4096
PROGRAMS = 4 * 132
"""Programs that keep a large GPU busy."""

MOST_PARTS = 64


@triton.jit  # type: ignore[untyped-decorator]
def _highest(logits, highest, stride, vocab, parts, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The highest logit of each part of each row."""
    row, part = tl.program_id(0), tl.program_id(1)
    start = logits + row.to(tl.int64) * stride
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for offset in range(part * size, min(part * size + size, vocab), BLOCK):
        place = offset + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.load(start + place, mask=place < vocab, other=float("-inf")))
    tl.store(highest + row * parts + part, tl.max(best, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _mask(  # type: ignore[no-untyped-def]
    logits,
    limits,
    highest,
    stride,
    vocab,
    parts,
    size,
    ABOVE: tl.constexpr,  # noqa: N803
    FROM_TOP: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Mask what is beyond each row's limit, or more than that below its highest logit."""
    row, part = tl.program_id(0), tl.program_id(1)
    limit = tl.load(limits + row)
    if FROM_TOP:
        index = tl.arange(0, PARTS)
        found = tl.load(highest + row * parts + index, mask=index < parts, other=float("-inf"))
        limit = tl.max(found, 0) - limit
    start = logits + row.to(tl.int64) * stride
    for offset in range(part * size, min(part * size + size, vocab), BLOCK):
        place = offset + tl.arange(0, BLOCK)
        inside = place < vocab
        values = tl.load(start + place, mask=inside, other=0.0)
        beyond = values > limit if ABOVE else values < limit
        tl.store(start + place, float("-inf"), mask=inside & beyond)


def mask_below_(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_below_`."""
    return _masked(logits, lowest, above=False, from_top=False)


def mask_above_(logits: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_above_`."""
    return _masked(logits, highest, above=True, from_top=False)


def mask_far_below_top_(logits: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_far_below_top_`."""
    return _masked(logits, distance, above=False, from_top=True)


def suits(logits: torch.Tensor) -> bool:
    """Whether the kernels can take these logits."""
    return logits.dtype == torch.float32 and logits.stride(1) == 1 and logits.numel() > 0


def split(rows: int, vocab: int) -> tuple[int, int]:
    """(parts of a row, tokens of a part)."""
    tiles = _ratio_up(vocab, BLOCK)
    size = _ratio_up(tiles, min(MOST_PARTS, _ratio_up(PROGRAMS, rows))) * BLOCK
    return _ratio_up(vocab, size), size


def _ratio_up(number: int, by: int) -> int:
    return -(-number // by)


def _masked(logits: torch.Tensor, limits: torch.Tensor, above: bool, from_top: bool) -> torch.Tensor:
    rows, vocab = logits.shape
    limits = limits.to(torch.float32).expand(rows, 1).contiguous()
    parts, size = split(rows, vocab)
    highest = limits
    if from_top:
        highest = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
        _highest[(rows, parts)](logits, highest, logits.stride(0), vocab, parts, size, BLOCK=BLOCK)
    _mask[(rows, parts)](
        logits,
        limits,
        highest,
        logits.stride(0),
        vocab,
        parts,
        size,
        ABOVE=above,
        FROM_TOP=from_top,
        PARTS=MOST_PARTS,
        BLOCK=BLOCK,
    )
    return logits
