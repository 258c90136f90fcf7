"""A model of the memory that :mod:`lpkit.kernels` moves on a GPU, in plain numbers; it runs without a GPU.

A pass goes over a batch's logits once. The first pass of a function reads them from memory. The L2 cache holds a logit
for the second pass if little was read in between: for passes in the same order, that is the whole batch. So a batch
that fits the cache is read from memory once, for any number of passes. A larger batch is read in each pass, unless the
pass can skip reading. A mask relative to the row's highest logit writes most spans without reading them. It goes
backwards over the others, to begin with logits that are still in the cache. Excluding likely tokens leaves most spans
unchanged.

``benchmarks/kernels_on_gpu.py`` multiplies these shares with the measured times of one read and one
write of the same logits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FUNCTIONS", "LOGIT", "PASSES", "SPAN", "Pass", "Traffic", "traffic"]

LOGIT = 4
"""Bytes per logit."""

SPAN = 1024
"""Logits of a row that share a recorded highest logit: if that is masked, all are, without being read."""


@dataclass(frozen=True)
class Pass:
    """One launch of a kernel, in shares of a batch's logits.

    Attributes:
        reads, writes: largest share that it reads and writes.
        near: True if it reads only spans with a logit near the row's highest, in reverse order.
        near_writes: largest share that it writes in addition, of these spans.
    """

    reads: float = 0.0
    writes: float = 0.0
    near: bool = False
    near_writes: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """Bytes moved between a GPU and its memory.

    Attributes:
        read: bytes read from memory.
        written: bytes written to memory.
    """

    read: float
    written: float

    def seconds(self, read: float, write: float) -> float:
        """Return the least time of the transfers.

        Args:
            read: seconds per byte read.
            write: seconds per byte written.

        Returns:
            Seconds, without launches.
        """
        return self.read * read + self.written * write


PASSES = {
    "tops": Pass(reads=1.0),
    "mask_below_top": Pass(reads=1.0, writes=1.0, near=True),
    **dict.fromkeys(("mask_deviating", "mask_unlikely"), Pass(reads=1.0, writes=1.0, near=True)),
    "least_likely": Pass(reads=1.0, near=True),
    "drop": Pass(reads=1.0, near=True, near_writes=1.0),
    "mask": Pass(reads=1.0, writes=1.0),
    "exponentials": Pass(reads=1.0),
    "moments": Pass(reads=1.0),
    "add_hashed": Pass(reads=1.0, writes=1.0),
    "shares": Pass(reads=1.0),
    "retemper": Pass(reads=1.0, writes=1.0),
    "keep": Pass(writes=1.0),
    **dict.fromkeys(("kept", "read", "write", "history", "counts", "penalize", "matches", "mix", "context"), Pass()),
    **dict.fromkeys(("entropy",), Pass()),
}
"""Passes by name of the kernel, as a profiler shows it. Kernels of a few logits per row move too little to count. A
tournament's kernels are missing: they read their bits more often than the logits."""

FUNCTIONS = {
    "mask_below_": ("mask",),
    "mask_far_below_top_": ("tops", "mask_below_top"),
    "log_sum_exp_and_entropy": ("shares", "entropy"),
    "dynamic_temperature_": ("shares", "retemper"),
    "mask_deviations_below_top_": ("moments", "mask_deviating"),
    "mask_unlikely_": ("shares", "mask_unlikely"),
    "exclude_top_choices_": ("exponentials", "least_likely", "drop"),
    "add_where_hashed_": ("add_hashed",),
    "keep_ids_": ("kept", "keep"),
}
"""The kernels that a function of :mod:`lpkit.kernels` launches."""


def traffic(passes: Iterable[Pass], rows: int, vocab: int, cache: int, near: float = 0.0) -> Traffic:
    """Return the most bytes that consecutive passes over the same logits move.

    Args:
        passes: see :data:`PASSES`.
        rows: of the batch.
        vocab: logits of a row.
        cache: bytes of the L2 cache.
        near: share of the spans with a logit near enough to the row's highest to matter; at most the number of these
            tokens.

    Returns:
        The bytes.
    """
    size = rows * vocab * LOGIT
    read = written = 0.0
    for number, one in enumerate(passes):
        held = 0.0
        if number:  # the first pass finds nothing in the cache: earlier code has used it
            held = min(1.0, cache / size) if one.near else float(size <= cache)
        read += size * one.reads * (near if one.near else 1.0) * (1.0 - held)
        written += size * (one.writes + one.near_writes * near)
    return Traffic(read, written)
