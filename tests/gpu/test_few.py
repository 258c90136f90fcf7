"""A few logits of each row, penalties and histories are on a GPU, where each is a kernel, what they are on a CPU."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from device_under_test import DEVICE, INTERPRETED, all_or, on_both, same_bits
from lpkit.history.in_place import V2History
from lpkit.history.rows import Rows, SparseLogits
from lpkit.history.staged import AdmittedRequest, V1History

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


def shown(history: Any, declared: str, index: torch.Tensor, slots: torch.Tensor) -> list[torch.Tensor]:
    rows = Rows(index, slots, history, declared, None)  # type: ignore[arg-type]
    lengths = [rows.prompt_len, rows.total_len]
    return [*lengths, rows.tokens, rows.is_output] if declared == "tokens" else lengths


def test_v1_shows_the_same_histories() -> None:
    lengths = [(3, 0), (1, 70), (100, 5), (2, 2)]

    def compute(device: torch.device) -> list[torch.Tensor]:
        entries = [
            AdmittedRequest(2 * i, list(range(5, 5 + p)), list(range(900, 900 + o))) for i, (p, o) in enumerate(lengths)
        ]
        history = V1History(9, device, True)
        assert history.sync(entries) == [True] * len(entries)
        slots = torch.tensor([entry.slot for entry in entries], device=device)
        return shown(history.of(slots), "tokens", torch.arange(len(entries), device=device), slots)

    assert same_bits(*on_both(compute))


@pytest.mark.parametrize("declared", ["tokens", "length"])
@pytest.mark.parametrize("longest", all_or([100, 300, 40_000], 2))
def test_v2_shows_the_same_histories(longest: int, declared: str) -> None:
    generator = torch.Generator().manual_seed(longest)
    held = torch.randint(0, 999, (9, longest), generator=generator, dtype=torch.int32)
    prompts = torch.randint(1, 50, (9,), generator=generator, dtype=torch.int32)
    positions = torch.randint(50, 99, (4,), generator=generator)

    def compute(device: torch.device) -> list[torch.Tensor]:
        states = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=held.to(device)), prompt_len=SimpleNamespace(gpu=prompts.to(device))
        )
        context: Any = SimpleNamespace(pos=positions.to(device), input_ids=None, idx_mapping_np=np.zeros(4))
        index, slots = torch.tensor([3, 0, 2], device=device), torch.tensor([7, 1, 4], device=device)
        history = V2History(states, context, index, slots, longest, declared == "tokens")  # type: ignore[arg-type]
        return shown(history, declared, index, slots)

    assert same_bits(*on_both(compute))
