"""Sparse rules by slot give the bits of the torch path on the rows alone; here under Triton's interpreter."""

from __future__ import annotations

from interpreted import interpret

# Slots are not in the order of the rows, and some are unused; one row is declined, and one has no complete history.
SETUP = """
import math, sys
import torch
from lpkit import kernels, sequences
from lpkit.history.rows import Rows, SparseLogits
from lpkit.kernels import fused
from lpkit.kernels.triton_rows import Entries
from lpkit.kernels.triton_texts import SlotHistories

few = fused.together(fused.FEW)
rows, vocab, longest, dtype = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), getattr(torch, sys.argv[4])
generator = torch.Generator().manual_seed(longest)
def numbers(low, high, *shape):
    return torch.randint(low, high, shape, generator=generator)
slots = torch.randperm(rows + 2, generator=generator)[:rows]
own = torch.ones(rows + 3, 2, dtype=torch.bool)[:, 1]
own[slots[1]] = False
held = numbers(0, 9, rows + 2, longest + 5).to(dtype)
held[:, 3] = vocab + 5  # a prompt may hold an id beyond the vocabulary
total = numbers(1, longest + 1, rows)
total[0] = longest
prompts = numbers(0, longest, rows + 2).to(dtype)
last = total - 1
last[2] = -1
edited = own[slots] & (last >= 0)
columns = torch.rand(rows + 3, 4, generator=generator) + 0.5
wide = torch.randn(rows, vocab + 3, generator=generator) * 4
wide[0, : vocab // 2], wide[3, vocab - 1] = -math.inf, math.nan

index = edited.nonzero()[:, 0]
here = slots[index]
place = torch.arange(longest)
tokens = held[here, :longest].long().masked_fill_(place >= total[index].unsqueeze(1), -1)
is_output = (place >= prompts[here].unsqueeze(1)) & (tokens >= 0)
entries = Entries(slots.to(dtype), own, own.stride(0), rows + 3)
texts = SlotHistories(held, prompts, last.to(dtype), longest, longest)

def same(expect, by_slot):
    expected, logits = wide.clone()[:, :vocab], wide.clone()
    chosen = expected[index]
    expect(chosen)
    expected[index] = chosen
    found = logits[:, :vocab]
    assert by_slot(found) is found
    assert torch.equal(found.contiguous().view(torch.int32), expected.contiguous().view(torch.int32))
    assert torch.equal(logits[:, vocab:], wide[:, vocab:])
    assert not torch.equal(found, wide[:, :vocab])

def sparse(logits):
    return SparseLogits(logits, Rows(torch.arange(len(index)), here, None, "none", None, True))
"""

PENALTIES = """
lowered = columns[:, :3].unbind(1)
def expect(logits):
    some, count = sparse(logits), sequences.counts(tokens, is_output)
    some[tokens] = kernels.penalized(some[tokens], count, *(item[here] for item in lowered))
def by_slot(logits):
    return few.penalize_(logits, *(item.unsqueeze(1) for item in lowered), entries=entries, texts=texts)
same(expect, by_slot)
"""

NGRAMS = """
wide[3, vocab - 1] = 0.0  # a row with a NaN stays as it is on a CPU only
size, window = numbers(1, 4, rows + 3), numbers(1, 40, rows + 3)
window[slots[0]] = 2**40
def expect(logits):
    since = prompts[here].maximum(total[index] - window[here])
    repeats = sequences.completes_ngram(tokens, total[index], size[here], since)
    kernels.mask_ids_(logits, torch.where(repeats & (tokens < vocab), tokens, -1))
def by_slot(logits):
    return few.ban_ngrams_(logits, size.unsqueeze(1), window.unsqueeze(1), entries=entries, texts=texts)
same(expect, by_slot)
"""

BIASES = """
index = own[slots].nonzero()[:, 0]  # it has nothing to do with histories
here = slots[index]
for k in (1, 7, 64):
    ids = torch.stack([torch.randperm(vocab + 9, generator=generator)[:k] - 1 for _ in range(rows + 3)])
    ids[:, k // 2 + 1 :] = -1
    values = torch.randn(rows + 3, k, generator=generator)
    def expect(logits):
        some = sparse(logits)
        some[ids[here]] = some[ids[here]] + values[here]
    same(expect, lambda logits: few.add_to_ids_(logits, ids, values, entries=entries))
"""

CASES = [(5, 70, 64, "int32"), (6, 3000, 130, "int64"), (6, 200, 600, "int32")]


def test_penalties_by_slot_are_those_of_the_rows_alone() -> None:
    interpret(SETUP + PENALTIES, *CASES)


def test_repeated_ngrams_are_banned_by_slot_as_in_the_rows_alone() -> None:
    interpret(SETUP + NGRAMS, *CASES)


def test_biases_by_slot_are_those_of_the_rows_alone() -> None:
    interpret(SETUP + BIASES, (5, 70, 64, "int32"), (6, 3000, 64, "int64"))
