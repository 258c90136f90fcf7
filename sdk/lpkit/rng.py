"""Random numbers that depend only on a key (seed, position), never on the order of calls.

The same key gives the same number in every order, batch, rank and device. The functions use integer operations alone,
so the CPU and a GPU agree to the bit. Do not use them for secrets.
"""

from lpkit.kernels.hashes import context_seeds, mix, mix32_, uniform

__all__ = ["context_seeds", "mix", "mix32_", "uniform"]
