"""A few logits of each row, penalties and histories are on a GPU, where each is a kernel, what they are on a CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from device_under_test import DEVICE, INTERPRETED, all_or, on_both, same_bits
from lpkit.history.reading import History
from lpkit.history.rows import Rows, SparseLogits
from lpkit.kernels.recording import SlotHistories

pytestmark = pytest.mark.gpu

VOCAB = 900 if INTERPRETED or DEVICE.type == "cpu" else 151_936
GIVEN = ("a tensor", "of another type", "one per row", "a number", "minus infinity")


def rows_of(index: torch.Tensor) -> Rows:
    return Rows(index, torch.zeros_like(index), None, "none", None)


def chosen(rows: int, width: int) -> torch.Tensor:
    """Other ids in each row, some of them outside of the vocabulary, and rows with one and with no id."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.stack([torch.randperm(VOCAB + 8, generator=generator)[:width] - 4 for _ in range(rows)])
    ids[ids < 0] = -1
    ids[0, 1:] = -1
    ids[-1] = -1
    return ids


def values_of(kind: str, shape: tuple[int, int]) -> Any:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    return {
        "a tensor": values,
        "of another type": values.double(),
        "one per row": values[:, :1],
        "a number": 1.5,
        "minus infinity": -math.inf,
    }[kind]


@pytest.mark.parametrize("kind", all_or(GIVEN, 5))
@pytest.mark.parametrize(("rows", "width"), all_or([(3, 1), (7, 300), (256, 64)], 2))
def test_chosen_logits_are_read_and_written(rows: int, width: int, kind: str) -> None:
    logits = torch.randn(2 * rows, VOCAB + 5, generator=torch.Generator().manual_seed(5))
    index, ids, values = torch.randperm(2 * rows)[:rows], chosen(rows, width), values_of(kind, (rows, width))

    def compute(device: torch.device) -> list[torch.Tensor]:
        some = logits.clone().to(device)
        sparse = SparseLogits(some[:, 2 : 2 + VOCAB], rows_of(index.to(device)))
        there = ids.to(device)
        seen = sparse[there]
        sparse[there] = values.to(device) if isinstance(values, torch.Tensor) else values
        sparse[there.t().contiguous().t()[:, :1]] = 2.5
        return [seen, some]

    assert same_bits(*on_both(compute))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", all_or([0, 100, 300, 40_000], 2))
def test_histories_are_the_same(width: int, dtype: torch.dtype, kind: int) -> None:
    generator = torch.Generator().manual_seed(width)
    held, inputs = (torch.randint(0, 999, shape, generator=generator).to(dtype) for shape in ((9, 40_000), (4,)))
    prompts = torch.randint(1, 50, (9,), generator=generator).to(dtype)
    committed = torch.randint(52, 90, (9,), generator=generator).to(dtype)
    slots = torch.tensor([7, 7, 7, 4])

    def compute(device: torch.device) -> list[torch.Tensor]:
        last = committed.long()[slots] - 1 + torch.tensor([0, 1, 2, 0]) * kind  # two rows with drafts
        numbers = (item.to(device) for item in (held, prompts, last, inputs, committed))
        texts, found = SlotHistories(*numbers, width=width, outputs=width, kind=kind), []
        for index in (torch.arange(4), torch.tensor([0, 2, 3])):
            here, of = index.to(device), slots[index].to(device)
            rows = Rows(here, of, History(texts, here, of, width > 0), "tokens", None)  # type: ignore[arg-type]
            found += [rows.prompt_len, rows.total_len, *([rows.tokens, rows.is_output] if width else [])]
        return found

    assert same_bits(*on_both(compute))
