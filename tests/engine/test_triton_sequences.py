"""Kernels answer questions about histories as the torch path does; here under Triton's interpreter, so no GPU is
needed.
"""

from __future__ import annotations

from interpreted import interpret

BOTH = """
import random, sys
import torch
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
    triton_sequences.SIZES = {"POSITIONS": positions, "AT_ONCE": 4, "REACH": 2 * positions, "SPAN": positions}
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

PATTERNS = """
width, kinds = map(int, sys.argv[1:])
triton_sequences.SPAN, triton_sequences.MARKED = 16, 2
rng = random.Random(width)
def text(longest):
    return [rng.randrange(kinds) for _ in range(rng.randint(0, longest))]
texts = [[], [1] * width, *(text(width) for _ in range(28))]
patterns = [[1, 1, 1], [1] * 5, *(text(6) for _ in range(28))]
for ids, pattern in zip(texts[3::4], patterns[3::4]):  # begun
    ids[-len(pattern) + 1 :] = pattern[:-1]
for ids, pattern in zip(texts[4::4], patterns[4::4]):  # complete
    ids[-len(pattern) :] = pattern
tokens, lengths = padded([ids[:width] for ids in texts], width)
pattern, _ = padded(patterns, 7)
since = torch.tensor([rng.randint(0, len(ids)) for ids in texts])
same(lambda: sequences.end_of_last(tokens, pattern))
same(lambda: sequences.end_of_last(strided(tokens), strided(pattern)))
same(lambda: sequences.begun(tokens, lengths, pattern, since))
same(lambda: sequences.begun(strided(tokens), lengths, strided(pattern), since))
found = sequences.begun(tokens, lengths, pattern, since * 0)
assert width == 1 or found.unique().numel() > 2, found
"""

LOOPS = """
width, kinds = map(int, sys.argv[1:])
triton_sequences.SPAN = 16
rng = random.Random(width)
def text():
    before, of = ([rng.randrange(kinds) for _ in range(rng.randint(0, longest))] for longest in (width // 2, 7))
    return (before + (of or [0]) * rng.randint(1, width))[: rng.randint(0, width)]
tokens, lengths = padded([[], [1] * width, *(text() for _ in range(38))], width)
tokens[5:9, -9:] = -1  # unknown drafts, if the history is that long
times, least = (torch.tensor([rng.randint(*ends) for _ in lengths]) for ends in ((2, 4), (1, 9)))
since = torch.tensor([rng.randint(-3, int(length)) for length in lengths])
same(lambda: sequences.next_in_loop(tokens, lengths, times, least))
same(lambda: sequences.next_in_loop(strided(tokens), lengths, *torch.stack((times, least), 1).unbind(1), since))
same(lambda: sequences.next_in_loop(tokens[:0], lengths[:0], times[:0], least[:0]))
found = sequences.next_in_loop(tokens, lengths, times, least)
assert width == 1 or (found >= 0).any() and (found < 0).any()
"""

LARGEST = """
n, width = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
ids, values = (torch.randint(-2, 9, (n, width), generator=generator) for _ in range(2))
ids[:1, : width // 2] = -1
for some in (ids, strided(ids)):
    one, other = both(lambda: torch.stack(sequences.largest_per_id(some, strided(values), 9), 2))
    for row, expected in zip(other.tolist(), one.tolist(), strict=True):
        assert sorted(pair for pair in row if pair[0] >= 0) == sorted(pair for pair in expected if pair[0] >= 0)
        assert all(token >= -1 and value < 9 for token, value in row)
"""


def test_what_stood_before_is_found_however_long_and_periodic() -> None:
    interpret(BOTH + MATCHES, (1, 0), (1100, 0), (7, 4), (100, 8), (150, 32))


def test_patterns_are_found_whole_and_begun() -> None:
    interpret(BOTH + PATTERNS, (1, 2), (40, 2), (100, 3))


def test_loops_go_on_alike() -> None:
    interpret(BOTH + LOOPS, (1, 2), (40, 2), (100, 3))


def test_each_id_keeps_its_largest_value_once() -> None:
    interpret(BOTH + LARGEST, (1, 1), (5, 150), (0, 8))
