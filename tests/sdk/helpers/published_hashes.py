"""The published hash functions that ``lpkit.rng`` computes on tensors."""

MASK = 2**64 - 1


def splitmix64(state: int) -> int:
    """SplitMix64's step, in plain Python."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def murmur32(h: int) -> int:
    """MurmurHash3's last step for 32 bits, in plain Python."""
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return h ^ (h >> 16)
