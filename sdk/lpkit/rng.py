"""Random numbers that are a function of what they are asked for: (seed, position), never of a call's turn.

Whatever order or batch the rows come in, on whichever rank or device, the same key gives the same number. Integer
operations alone, so the CPU and a GPU agree to the bit. Not for secrets.
"""

from lpkit.kernels.hashes import context_seeds, mix, mix32_, uniform

__all__ = ["context_seeds", "mix", "mix32_", "uniform"]
