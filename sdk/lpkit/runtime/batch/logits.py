"""The model of the reference engines: seeded logits for each (request, position)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from lpkit.runtime.batch.noise import element_hashes, row_hashes

VOCAB_MULTIPLE = 128
"""Elementwise kernels round equally for one row and for many only if no row has a ragged end."""

_PART = np.uint64(21)
_PART_MASK = np.uint64((1 << 21) - 1)
_BOOST = np.float32(3.0)
_FAVOUR = np.float32(6.0)


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """Choose a device.

    Args:
        device: a device, its name, or ``"auto"``.

    Returns:
        The device; for ``"auto"`` CUDA when a GPU is present, else the CPU.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


class LogitsSource:
    """Bell-shaped logits in [-6, 6) with standard deviation 2.

    Args:
        vocab_size: a multiple of 128.
        seed: a different seed gives a different model.
        device: device of the result of :meth:`rows`; the values are the same on every device.
        likely: token ids to favour: each gets +3, and in half of the rows one of them gets another +6, which
            usually makes it the argmax.

    Raises:
        ValueError: ``vocab_size`` is not a multiple of 128, or a likely id is outside the vocabulary.
    """

    def __init__(
        self,
        vocab_size: int = 512,
        seed: int = 0,
        device: str | torch.device = "cpu",
        likely: Iterable[int] = (),
    ) -> None:
        if vocab_size <= 0 or vocab_size % VOCAB_MULTIPLE:
            raise ValueError(f"vocab_size must be a positive multiple of {VOCAB_MULTIPLE}, got {vocab_size}")
        self.vocab_size = vocab_size
        self.seed = seed
        self.device = pick_device(device)
        self.likely = tuple(sorted(set(likely)))
        if self.likely and not 0 <= self.likely[0] <= self.likely[-1] < vocab_size:
            raise ValueError(f"likely ids must lie in [0, {vocab_size}), got {self.likely}")
        self._likely = np.array(self.likely, dtype=np.int64)

    def rows(self, keys: Sequence[tuple[int | str, int]]) -> torch.Tensor:
        """Compute logits.

        A row depends only on the seed, its key and its position, bit for bit.

        Args:
            keys: (request key, position) of each row; may be empty.

        Returns:
            float32 ``[len(keys), vocab_size]``, on the device of the source.
        """
        hashes = row_hashes(self.seed, "logits", keys)
        values = np.empty((len(keys), self.vocab_size), dtype=np.float32)
        for part, bits in element_hashes(hashes, self.vocab_size):
            # The sum of three 21-bit numbers is exact in float32, and so is scaling it by a power of two.
            total = bits & _PART_MASK
            bits >>= _PART
            total += bits & _PART_MASK
            bits >>= _PART
            total += bits & _PART_MASK
            values[part] = total
        values *= np.float32(2.0**-19)
        values -= np.float32(6.0)
        if self.likely:
            values[:, self._likely] += _BOOST
            favoured = np.flatnonzero(hashes & np.uint64(1))
            chosen = (hashes[favoured] >> np.uint64(8)) % np.uint64(len(self.likely))
            values[favoured, self._likely[chosen.astype(np.int64)]] += _FAVOUR
        return torch.from_numpy(values).to(self.device)
