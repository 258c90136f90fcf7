"""Processing of some rows at a time, with reused scratch memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from lpkit.kernels.fused import differentiated

WHOLE_BYTES = {"cpu": 2**23, "cuda": 2**27}
"""Largest logits, in bytes, that form a single block."""

BLOCK_BYTES = {"cpu": 2**21, "cuda": 2**26}
"""Block size of larger logits: about a core's cache on a CPU, and enough on a GPU to make launches negligible. It also
bounds the scratch memory."""


def blocks(
    logits: torch.Tensor, *per_row: torch.Tensor, scratch: Sequence[torch.dtype] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows block by block, with scratch memory shared by all blocks, so that several passes stay in the
    cache.

    Args:
        logits: ``[n, vocab]``.
        per_row: tensors ``[n, ...]``, split like ``logits``.
        scratch: the types of tensors shaped like the block. Their contents are undefined, and the last block has fewer
            rows.

    Yields:
        ``(block, *per_row, *scratch)``: views of ``logits`` and ``per_row``, then scratch memory. One empty block for a
        batch without rows.
    """
    n, vocab = logits.shape
    step = max(1, n)
    kind, row = logits.device.type, max(1, vocab * logits.element_size())
    # Under autograd each block edited in place would cost a copy of all blocks.
    if not differentiated(logits) and n * row > WHOLE_BYTES.get(kind, WHOLE_BYTES["cuda"]):
        step = max(1, BLOCK_BYTES.get(kind, BLOCK_BYTES["cuda"]) // row)
    spare = [_borrow(step * vocab * dtype.itemsize, logits.device) for dtype in scratch]
    try:
        memory = [
            buffer[: step * vocab * dtype.itemsize].view(dtype).view(step, vocab)
            for buffer, dtype in zip(spare, scratch, strict=True)
        ]
        for start in range(0, max(1, n), step):
            end = min(start + step, n)
            yield (
                logits[start:end],
                *(values[start:end] for values in per_row),
                *(part[: end - start] for part in memory),
            )
    finally:
        _give_back(spare)


class _Spare(threading.local):
    """Scratch memory of earlier calls: on a CPU, mapping new memory costs more than a pass over it."""

    def __init__(self) -> None:
        self.buffers: list[torch.Tensor] = []


_spare = _Spare()
_MOST_SPARE = 4


def _borrow(size: int, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.empty(size, dtype=torch.uint8, device=device)  # its allocator keeps memory itself
    for index in reversed(range(len(_spare.buffers))):  # the last used memory first
        if _spare.buffers[index].nbytes >= size:
            return _spare.buffers.pop(index)
    with torch.inference_mode(False):  # writable inside and outside of inference mode
        return torch.empty(max(size, WHOLE_BYTES["cpu"]), dtype=torch.uint8)


def _give_back(buffers: list[torch.Tensor]) -> None:
    _spare.buffers.extend(buffer for buffer in buffers if buffer.device.type == "cpu")
    del _spare.buffers[_MOST_SPARE:]
