"""The hash kernels give the bits of the torch path; here under Triton's interpreter, so no GPU is needed."""

from __future__ import annotations

from interpreted import interpret

BOTH = """
import torch
from lpkit import rng
from lpkit.kernels import fused, triton_hashes

generator = torch.Generator().manual_seed(7)
def numbers(*shape, low=-2**63, high=2**63 - 1):
    return torch.randint(low, high, shape, generator=generator)
def same(function):
    results = []
    for found in (None, triton_hashes):
        fused.few_for = lambda tensor, *_: found
        results.append(function())
    one, other = results
    assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, other.dtype, one.shape, other.shape)
    assert torch.equal(one, other), (one, other)
"""

KEYS = """
edges = torch.tensor([0, 1, -1, 2**63 - 1, -2**63, 2**40])
wide = numbers(3, 80)
for keys in (
    (edges,), (edges, edges.flip(0)), (edges.unsqueeze(1), edges), (numbers(), edges), (numbers(),), (numbers(1, 600),),
    (wide[:, :60],), (wide[:, ::3], wide[:, :1]), (wide.t(), numbers(3)), (wide[:0], numbers(1)),
    (numbers(2, 3, 4), numbers(3, 1), numbers(4)), tuple(numbers(6, 7)), (numbers(2, 1, 4).expand(2, 3, 4),),
):
    same(lambda: rng.mix(*keys))
    same(lambda: rng.uniform(*keys))
"""

CONTEXTS = """
import sys
n, width = map(int, sys.argv[1:])
tokens = numbers(n, 2 * width, low=-1, high=200_000)
lengths, keys = numbers(n, low=0, high=width + 1), numbers(n, 3)
for longest in (1, 8, 40):
    count = numbers(n, low=0, high=longest + 1)
    same(lambda: rng.context_seeds(tokens, lengths, count, keys[:, 1], longest))
    same(lambda: rng.context_seeds(tokens[:, ::2], lengths, count, torch.tensor(-5), longest))
"""


def test_any_number_of_keys_of_any_shapes_is_hashed_to_the_same_bits() -> None:
    interpret(BOTH + KEYS)


def test_seeds_of_contexts_are_the_same() -> None:
    interpret(BOTH + CONTEXTS, (1, 1), (5, 40), (0, 8))
