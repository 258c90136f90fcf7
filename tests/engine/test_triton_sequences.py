"""Kernels answer questions about histories as the torch path does; here under Triton's interpreter, so no GPU is
needed.
"""

from __future__ import annotations

from interpreted import interpret

BOTH = """
import random, sys
import torch
import triton.language as tl
from lpkit import sequences
from lpkit.kernels import fused, triton_sequences

few = fused.together(fused.FEW)
def both(function):
    results = []
    for found in (None, few):
        fused.few_for = lambda tensor, *_: found
        results.append(function())
    return results
def same(function):
    one, other = both(function)
    assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, other.dtype, one.shape, other.shape)
    assert torch.equal(one, other), (one, other)
def padded(texts, width):
    tokens = torch.full((len(texts), width), -1)
    for row, ids in zip(tokens, texts, strict=True):
        row[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return tokens, torch.tensor([len(ids) for ids in texts])
def strided(tensor):
    return tensor.repeat_interleave(2, 1)[:, ::2]
"""

# The sizes of a program may be lowered, so that short histories need several.
MATCHES = """
width, positions = map(int, sys.argv[1:])
if positions:
    triton_sequences.POSITIONS = positions
    sizes = dict(NEAR=4, REACH=2 * positions, FURTHER=positions)
    vars(triton_sequences).update((name, tl.constexpr(size)) for name, size in sizes.items())
rng = random.Random(width)
def span(longest, kinds):
    return [rng.randrange(kinds) for _ in range(rng.randint(1, longest))]
def run(of):
    return (of * width)[: rng.randint(0, width)]
def broken(ids):
    for _ in range(3 if ids else 0):
        ids[rng.randrange(len(ids))] = 9
    return ids
def equal_runs(one):
    return sum(([rng.choice([7, 8]), *one] for _ in range(width)), [])
fibonacci = [[0], [0, 1]]
while len(fibonacci[-1]) < width:
    fibonacci.append(fibonacci[-1] + fibonacci[-2])
texts = [[], [3], [3] * width, span(width, 2), span(width, 50), fibonacci[-1], run(span(9, 3)), run(span(60, 50))]
texts += [broken(run([3])), broken(run(span(9, 2))), equal_runs(run([3])[:70]), equal_runs(run([3, 4])[:90])]
texts += [[*[3, 4] * (width // 4), 8, *[3, 4] * (width // 5)], [*[3] * (width // 3), 8, *[3] * (width // 2)]]
texts = [ids[-(width if len(ids) <= width else rng.randint(width // 2, width)) :] for ids in texts]
tokens, lengths = padded(texts, width)
far = [0, 1, 2, positions, 2 * positions, 2 * positions + 1, 3 * positions, 9 * width]
count, since = (torch.tensor([rng.choice(some) for _ in texts]) for some in (far, [0, 3, width // 2, width]))
same(lambda: sequences.match_lengths(tokens, lengths))
same(lambda: sequences.match_lengths(strided(tokens)[:9], strided(lengths.unsqueeze(1))[:9, 0]))
same(lambda: sequences.match_lengths(tokens, lengths, since - width // 5))
same(lambda: sequences.match_lengths(tokens[:0], lengths[:0]))
same(lambda: sequences.completes_ngram(tokens, lengths, count + 1, since))
"""


def test_what_stood_before_is_found_however_long_and_periodic() -> None:
    interpret(BOTH + MATCHES, (1, 0), (1100, 0), (7, 4), (100, 8), (150, 32))
