"""How much memory the kernels of :mod:`lpkit.kernels` move on a GPU: a model in plain numbers, which needs none.

A pass goes over a batch's logits once. The first pass of a function reads them from memory. What lies between two reads
of the same logit decides whether the L2 cache still holds it at the second: the batch, for passes in the same order.
So a batch that fits the cache is read from memory once however many passes there are, and a larger one at each pass,
unless a pass need not read: a mask relative to the row's highest logit writes most spans without it, and goes
backwards for the rest, to begin with what is still in the cache. What excludes likely tokens leaves most spans alone.

``lpkit bench`` multiplies these shares with the measured times of one read and one write of the same logits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FUNCTIONS", "LOGIT", "PASSES", "SPAN", "Pass", "Traffic", "traffic"]

LOGIT = 4
"""Bytes."""

SPAN = 1024
"""Logits of a row with a highest one of their own: if that is to be masked, so are all, without being read."""


@dataclass(frozen=True)
class Pass:
    """One launch of a kernel, in shares of a batch's logits.

    Attributes:
        reads, writes: what it reads and writes of them, at most.
        near: it reads only spans that hold a logit near enough to the row's highest to matter, the last ones first.
        near_writes: what it writes of these spans on top, at most.
    """

    reads: float = 0.0
    writes: float = 0.0
    near: bool = False
    near_writes: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """What moves between a GPU and its memory.

    Attributes:
        read: bytes that come from the memory.
        written: bytes that go there.
    """

    read: float
    written: float

    def seconds(self, read: float, write: float) -> float:
        """The least time that it takes.

        Args:
            read: seconds per byte that is read.
            write: seconds per byte that is written.

        Returns:
            Seconds; launches come on top.
        """
        return self.read * read + self.written * write


PASSES = {
    "tops": Pass(reads=1.0),
    "mask_below_top": Pass(reads=1.0, writes=1.0, near=True),
    **dict.fromkeys(("mask_deviating", "mask_unlikely"), Pass(reads=1.0, writes=1.0, near=True)),
    "least_likely": Pass(reads=1.0, near=True),
    "drop": Pass(reads=1.0, near=True, near_writes=1.0),
    "mask": Pass(reads=1.0, writes=1.0),
    "least": Pass(reads=1.0),
    "exponentials": Pass(reads=1.0),
    "moments": Pass(reads=1.0),
    "add_hashed": Pass(reads=1.0, writes=1.0),
    "shares": Pass(reads=1.0),
    "retemper": Pass(reads=1.0, writes=1.0),
    "keep": Pass(writes=1.0),
    **dict.fromkeys(("kept", "read", "write", "history", "counts", "penalize", "matches", "mix", "context"), Pass()),
    **dict.fromkeys(("sum", "entropy", "deviation"), Pass()),
}
"""By the name of a kernel, as a profiler shows it. Those of a few logits per row move nothing worth counting. A
tournament's are not here: they read their bits more often than the logits."""

FUNCTIONS = {
    "mask_below_": ("mask",),
    "mask_above_": ("mask",),
    "mask_far_below_top_": ("tops", "mask_below_top"),
    "least_from": ("least",),
    "log_sum_exp": ("exponentials", "sum"),
    "log_sum_exp_and_entropy": ("shares", "entropy"),
    "top_and_deviation": ("moments", "deviation"),
    "dynamic_temperature_": ("shares", "retemper"),
    "mask_deviations_below_top_": ("moments", "mask_deviating"),
    "mask_unlikely_": ("shares", "mask_unlikely"),
    "exclude_top_choices_": ("exponentials", "least_likely", "drop"),
    "add_where_hashed_": ("add_hashed",),
    "keep_ids_": ("kept", "keep"),
}
"""The kernels that a function of :mod:`lpkit.kernels` launches."""


def traffic(passes: Iterable[Pass], rows: int, vocab: int, cache: int, near: float = 0.0) -> Traffic:
    """What passes over the same logits, one after the other, move at most.

    Args:
        passes: see :data:`PASSES`.
        rows: of the batch.
        vocab: logits of a row.
        cache: bytes of the L2 cache.
        near: share of the spans that hold a logit near enough to the row's highest to matter: at most as many spans as
            there are such tokens.

    Returns:
        The bytes.
    """
    size = rows * vocab * LOGIT
    read = written = 0.0
    for number, one in enumerate(passes):
        held = 0.0
        if number:  # the first finds nothing in the cache: what came before this processor has used it
            held = min(1.0, cache / size) if one.near else float(size <= cache)
        read += size * one.reads * (near if one.near else 1.0) * (1.0 - held)
        written += size * (one.writes + one.near_writes * near)
    return Traffic(read, written)
