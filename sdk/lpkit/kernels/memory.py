"""Rows a few at a time, with scratch memory that is used again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from lpkit.kernels.fused import differentiated, fused_for

WHOLE_BYTES = {"cpu": 2**23, "cuda": 2**27}
"""Logits up to this size are one block."""

BLOCK_BYTES = {"cpu": 2**21, "cuda": 2**26}
"""Size of the blocks of larger ones: on a CPU about what a core's cache holds, on a GPU enough that the launches do
not count. It also bounds the scratch memory."""


def blocks(
    logits: torch.Tensor, *per_row: torch.Tensor, scratch: Sequence[torch.dtype] = (), fused: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Some rows after the others, with scratch memory that all blocks share, so that several passes stay in the cache.

    Args:
        logits: ``[n, vocab]``.
        per_row: tensors ``[n, ...]``, to be split alike.
        scratch: the types of as many tensors shaped like the block; they hold anything, and the last block gets fewer
            rows.
        fused: promise to hand the scratch memory to the functions of this module and do nothing else with it. Where
            these are fused kernels, which need none, the batch is one block and each of the scratch tensors is None.

    Yields:
        ``(block, *per_row, *scratch)``, which are views of ``logits`` and of ``per_row``, then scratch memory. Once,
        and empty, for a batch without rows.
    """
    watched = differentiated(logits)
    if fused and (watched or fused_for(logits) is not None):
        yield (logits, *per_row, *(None for _ in scratch))
        return
    n, vocab = logits.shape
    step = max(1, n)
    kind, row = logits.device.type, max(1, vocab * logits.element_size())
    # Under autograd each block that is edited in place would cost a copy of them all.
    if not watched and n * row > WHOLE_BYTES.get(kind, WHOLE_BYTES["cuda"]):
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
    """Scratch memory of earlier calls; on a CPU, memory that is mapped anew costs more than a pass over it."""

    def __init__(self) -> None:
        self.buffers: list[torch.Tensor] = []


_spare = _Spare()
_MOST_SPARE = 4


def _borrow(size: int, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.empty(size, dtype=torch.uint8, device=device)  # its allocator keeps memory itself
    for index in reversed(range(len(_spare.buffers))):  # the one used last, if it will do
        if _spare.buffers[index].nbytes >= size:
            return _spare.buffers.pop(index)
    with torch.inference_mode(False):  # so that it can be written in and outside of inference mode
        return torch.empty(max(size, WHOLE_BYTES["cpu"]), dtype=torch.uint8)


def _give_back(buffers: list[torch.Tensor]) -> None:
    _spare.buffers.extend(buffer for buffer in buffers if buffer.device.type == "cpu")
    del _spare.buffers[_MOST_SPARE:]
