"""The fused kernels compute what the torch path does; here under Triton's interpreter, so no GPU is needed."""

from __future__ import annotations

from interpreted import interpret
from lpkit.kernels import triton_rows

HASHED = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels.fused import WHOLE_ROWS, together

fused = together(WHOLE_ROWS)

rows, vocab, extra = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
logits = torch.randn(rows, vocab + extra, generator=generator) * 3 + 100
logits[:, :2] = -math.inf
given = logits[:, :vocab]
seeds = torch.randint(-2**31, 2**31, (rows, 1), generator=generator).to(torch.int32)
share = torch.linspace(0.1, 0.9, rows).unsqueeze(1)
limit, bias = (share * 2**32 - 2**31).to(torch.int32), share * 10
expected = kernels.add_where_hashed_(given.clone(), seeds, limit, bias)
assert torch.equal(fused.add_where_hashed_(given, seeds, limit, bias), expected)
"""

KEEP = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import triton_limits as fused

rows, vocab, extra, k = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
logits = torch.randn(rows, vocab + extra, generator=generator)
ids = torch.stack([torch.randperm(vocab, generator=generator)[:k] for _ in range(rows)])
ids[0, k // 2 + 1 :] = -1
ids[1, 0] = -1  # no token: the row stays
logits[2].scatter_(0, ids[2], -math.inf)  # nothing would be left
logits[3, ids[3, -1]] = math.nan
ids[4, -1] = ids[4, 0]
for where in (None, torch.arange(rows).unsqueeze(1) % 6 != 5):
    for some in (ids, ids.t().contiguous().t()):
        given = logits.clone()[:, :vocab]
        expected = kernels.keep_ids_(given.clone(), some, where)
        assert fused.keep_ids_(given, some, where) is given
        assert torch.equal(given.contiguous().view(torch.int32), expected.view(torch.int32)), (given != expected).sum()
        assert torch.equal(given._base[:, vocab:].nan_to_num(), logits[:, vocab:].nan_to_num())
"""

# A few logits per row: the torch path against the kernels, which take any stride.
FEW = """
import math, sys
import torch
from lpkit import kernels
from lpkit.history.rows import Rows, SparseLogits
from lpkit.kernels import fused, triton_texts

n, vocab, k = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(7)
def numbers(*shape, low, high):
    return torch.randint(low, high, shape, generator=generator)
def both(function):
    results = []
    for found in (None, triton_texts):
        fused.few_for = lambda tensor, *_: found
        results.append(function())
    return results
def same(one, other):
    assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, other.dtype, one.shape, other.shape)
    assert torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)), (one, other)

wide = torch.randn(2 * n, vocab + 5, generator=generator)
wide[0, 0] = -math.inf
rows = Rows(torch.randperm(2 * n, generator=generator)[:n], torch.zeros(n, dtype=torch.int64), None, "none", None)
every = torch.stack([torch.randperm(vocab + 8, generator=generator)[:k] - 4 for _ in range(n)])  # -4 to vocab + 3
every[every < 0] = -1
if k > 2:
    every[0, 1:] = -1  # a row with one token, and one with none
    every[-1] = -1
strided = every.t().contiguous().t()
twice = torch.cat((every, every), 1)
values = torch.randn(n, k, generator=generator)
cases = [
    (every, values), (strided, values.double()), (every, 1.5), (every, -math.inf), (every, torch.tensor(2.0)),
    (every, values[:, :1]), (every, values > 0), (every, numbers(n, k, low=-5, high=9)),
    (twice, torch.cat((values, values), 1)), (every[:, :1].repeat(1, 3), 2.5),
]
for logits in (wide[:, :vocab], wide.clone()[:, 2 : 2 + vocab], wide[:, :vocab].t().contiguous().t()):
    for ids, given in cases:
        def read_and_write():
            copy = logits.clone(memory_format=torch.preserve_format) if logits.is_contiguous() else logits
            before = copy.clone()
            sparse = SparseLogits(copy, rows)
            seen = sparse[ids]
            sparse[ids] = given
            after = copy.clone()
            copy.copy_(before)
            return seen, after
        one, other = both(read_and_write)
        same(one[0], other[0])
        same(one[1], other[1])
"""

MASK = """
import math, sys
import torch
from lpkit import kernels
from lpkit.kernels import masks, triton_texts

n, vocab, k = map(int, sys.argv[1:])
triton_texts.LISTED = 64
generator = torch.Generator().manual_seed(7)
logits = torch.randn(n, vocab + 5, generator=generator)
ids = torch.randint(-1, vocab, (n, k), generator=generator)
ids[0] = -1
logits[1].scatter_(0, ids[1].clamp(min=0), -math.inf)  # masked already
logits[2, :vocab] = -math.inf  # nothing would be left of what is
logits[2].scatter_(0, ids[2].clamp(min=0), 1.5)
logits[2, 0] = -math.inf if (ids[2] != 0).all() else 1.5
logits[3, : vocab - 1] = -math.inf  # all that is left is the last token
logits[4, :vocab] = -math.inf
for given in (logits[:, :vocab], logits[:, :vocab].t().contiguous().t()):
    for some in (ids, ids.t().contiguous().t(), torch.cat((ids, ids), 1), ids[:, :1]):
        masks.few_for = lambda tensor, *_: None
        expected = kernels.mask_ids_(given.clone(), some)
        masks.few_for = lambda tensor, *_: triton_texts
        copy = given.clone(memory_format=torch.preserve_format)
        assert kernels.mask_ids_(copy, some) is copy
        assert torch.equal(copy, expected), (copy != expected).nonzero()
"""

HISTORIES = """
import torch
from lpkit.history.reading import History
from lpkit.history.rows import Rows
from lpkit.kernels import fused
from lpkit.kernels.recording import SlotHistories

few = fused.together(fused.FEW)
def shown(texts, index, slots, keep, found):
    fused.few_for = lambda tensor, *_: found
    rows = Rows(index, slots, History(texts, index, slots, keep), "tokens", None)
    return [rows.prompt_len, rows.total_len] + ([rows.tokens, rows.is_output] if keep else [])
def compare(*given):
    for one, other in zip(shown(*given, None), shown(*given, few), strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other), (given, one, other)

slots = torch.tensor([7, 7, 7, 1, 4])
for dtype in (torch.int64, torch.int32):
    held, inputs = torch.randint(0, 999, (9, 310)).to(dtype), torch.randint(0, 999, (5,)).to(dtype)
    prompts, committed = torch.randint(1, 50, (9,)).to(dtype), torch.randint(52, 90, (9,)).to(dtype)
    for kind in (0, 1):
        last = committed.long()[slots] - 1 + torch.tensor([0, 1, 2, 0, 0]) * kind  # two rows with drafts
        for position in (torch.int64, torch.int32):
            for width in (300, 128):
                texts = SlotHistories(held, prompts, last.to(position), inputs, committed, width, width, kind)
                for index in (torch.arange(5), torch.tensor([0, 2, 4])):
                    for keep in (True, False):
                        compare(texts, index, slots[index], keep)
"""


def test_a_bias_by_hash_is_that_of_the_torch_path() -> None:
    interpret(HASHED, (1, 5, 0), (3, 300, 8), (2, 9000, 0), (1, 40_000, 64))


def test_parts_cover_a_row_and_small_batches_have_many() -> None:
    for rows in (1, 2, 7, 131, 132, 256, 1024):
        for vocab in (1, 5, 4096, 4097, 32000, 128256, 151936):
            parts, size = triton_rows.split(rows, vocab)
            assert size % triton_rows.BLOCK == 0 and 1 <= parts <= triton_rows.MOST_PARTS
            assert (parts - 1) * size < vocab <= parts * size, (rows, vocab)
    assert triton_rows.split(1, 151936)[0] >= 32, "a single request is spread over the GPU"
    assert triton_rows.split(4096, 151936)[0] == 1, "as many rows keep it busy"


def test_a_few_logits_of_each_row_are_read_and_written_as_by_the_torch_path() -> None:
    interpret(FEW, (1, 20, 1), (3, 300, 0), (2, 700, 600), (5, 40, 7))


def test_tokens_that_are_masked_are_those_of_the_torch_path() -> None:
    interpret(MASK, (7, 9, 1), (7, 300, 7), (7, 200, 150))


def test_histories_are_those_of_the_torch_path_with_drafts_and_without() -> None:
    interpret(HISTORIES)


def test_tokens_that_are_kept_alone_are_those_of_the_torch_path() -> None:
    interpret(KEEP, (7, 9, 0, 1), (7, 300, 7, 5), (7, 9001, 2, 100))
