"""Sparse edits: padding writes nothing, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lpkit.columns.column import column
from lpkit.columns.memory import Arena
from lpkit.history.rows import HistoryNotDeclaredError, Rows, SparseLogits
from sdk_hosts import logits_of, recorded_ops


def rows_at(*index: int, declared: str = "none", whole: bool = False) -> Rows:
    temperature = Arena({"temperature": column(torch.float32, default=1.0)}, 64, torch.device("cpu")).columns[
        "temperature"
    ]
    return Rows(torch.tensor(index), torch.tensor(index), None, declared, temperature, whole)


def edited_by_hand(
    logits: torch.Tensor, index: list[int], ids: list[list[int]], change: Callable[[float], float]
) -> torch.Tensor:
    result = logits.clone()
    for row, chosen in zip(index, ids, strict=True):
        for token in set(chosen) - {-1}:
            result[row, token] = change(float(logits[row, token]))
    return result


CASES = {
    "no padding": [[1, 2, 3], [4, 5, 6]],
    "padding behind": [[1, 2, -1], [4, -1, -1]],
    "padding in front": [[-1, -1, 3], [-1, 5, 6]],
    "token 0 beside padding": [[0, -1, -1], [-1, 0, -1]],
    "duplicates": [[7, 7, 7], [5, 0, 5]],
    "a row of padding alone": [[-1, -1, -1], [2, -1, 0]],
    "one id": [[4], [0]],
    "one id or none": [[-1], [5]],
    "no id in a column": [[-1], [-1]],
    "padding alone": [[-1, -1, -1], [-1, -1, -1]],
}


HOSTS_LOGITS, OTHERS = torch.float32, torch.float64
"""By their types: the ids are looked at on the host, or stay where they are, as on a device without kernels."""


@pytest.mark.parametrize("dtype", [HOSTS_LOGITS, OTHERS])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("ids", CASES.values(), ids=CASES)
def test_each_real_id_is_written_once_and_padding_never(ids: list[list[int]], whole: bool, dtype: torch.dtype) -> None:
    index = [0, 1] if whole else [1, 3]
    logits = logits_of(2 if whole else 4).to(dtype)
    expected = edited_by_hand(logits, index, ids, lambda value: value - 2.0)
    sparse = SparseLogits(logits, rows_at(*index, whole=whole))
    chosen = torch.tensor(ids)
    sparse[chosen] = sparse[chosen] - 2.0
    torch.testing.assert_close(logits, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [HOSTS_LOGITS, OTHERS])
@pytest.mark.parametrize("whole", [False, True])
def test_padding_never_races_with_a_write_to_token_0(whole: bool, dtype: torch.dtype) -> None:
    """Many paddings beside one real write to id 0: "the old value at 0" would win this race almost surely."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.full((64, 257), -1)
    places = torch.randint(257, (64,), generator=generator)
    ids[torch.arange(64), places] = 0
    logits = torch.zeros(64, 8, dtype=dtype)
    sparse = SparseLogits(logits, rows_at(*range(64), whole=whole))
    sparse[ids] = 5.0
    assert (logits[:, 0] == 5.0).all()
    assert not logits[:, 1:].any()


def test_a_number_and_a_column_of_values_spread_over_the_ids() -> None:
    logits = torch.zeros(2, 8)
    sparse = SparseLogits(logits, rows_at(0, 1))
    sparse[torch.tensor([[1, 2], [3, -1]])] = -torch.inf
    sparse[torch.tensor([[4], [5]])] = torch.tensor([[1.0], [2.0]])
    assert logits[0].tolist() == [0, -torch.inf, -torch.inf, 0, 1, 0, 0, 0]
    assert logits[1].tolist() == [0, 0, 0, -torch.inf, 0, 2, 0, 0]


def test_reading_padding_gives_some_value_of_the_row_and_no_error() -> None:
    logits = logits_of(2)
    read = SparseLogits(logits, rows_at(1))[torch.tensor([[-1, 4]])]
    assert read.tolist() == [[float(logits[1, 0]), float(logits[1, 4])]]


@pytest.mark.parametrize("dtype", [HOSTS_LOGITS, OTHERS])
@pytest.mark.parametrize("whole", [False, True])
def test_ids_outside_the_vocabulary_read_some_value_and_write_nothing(whole: bool, dtype: torch.dtype) -> None:
    logits = logits_of(2).to(dtype)
    before = logits.clone()
    sparse = SparseLogits(logits, rows_at(0, 1, whole=whole))
    size = logits.shape[1]
    ids = torch.tensor([[size, 2, size + 1000], [size, size, size]])
    sparse[ids] = sparse[ids] + 1
    before[0, 2] += 1
    assert torch.equal(logits, before)


def test_no_ids_at_all_is_no_edit() -> None:
    logits = logits_of(2)
    before = logits.clone()
    sparse = SparseLogits(logits, rows_at(0, 1))
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    sparse[nothing] = sparse[nothing] * 2
    assert torch.equal(logits, before)


def test_as_many_operations_are_dispatched_whether_ids_are_padded_or_not() -> None:
    counts = []
    for ids in ([[1, 2], [3, 4]], [[1, -1], [3, 4]]):
        sparse = SparseLogits(logits_of(2), rows_at(0, 1, whole=True))
        with recorded_ops() as names:
            sparse[torch.tensor(ids)] = 1.0
        counts.append(len(names))
    assert len(set(counts)) == 1


def test_non_contiguous_logits_are_written_in_place() -> None:
    wide = torch.zeros(3, 40)
    logits = wide[:, :32]
    assert not logits.is_contiguous()
    sparse = SparseLogits(logits, rows_at(2, 0))
    sparse[torch.tensor([[31], [0]])] = 9.0
    assert wide.nonzero().tolist() == [[0, 0], [2, 31]]


def test_a_row_listed_twice_is_edited_as_once() -> None:
    logits = torch.zeros(3, 8)
    sparse = SparseLogits(logits, rows_at(1, 2, 1))
    ids = torch.tensor([[3, -1], [4, 5], [3, -1]])
    sparse[ids] = sparse[ids] + 1
    assert logits.nonzero().tolist() == [[1, 3], [2, 4], [2, 5]]
    assert logits.max() == 1


def test_double_precision_values_are_written_in_the_logits_type() -> None:
    logits = torch.zeros(1, 4)
    SparseLogits(logits, rows_at(0))[torch.tensor([[2]])] = torch.tensor([[0.5]], dtype=torch.float64)
    assert logits.tolist() == [[0, 0, 0.5, 0]]


@pytest.mark.parametrize("name", ["prompt_len", "total_len", "output_len"])
def test_lengths_must_be_declared(name: str) -> None:
    with pytest.raises(HistoryNotDeclaredError, match="history = 'length'"):
        getattr(rows_at(0), name)


@pytest.mark.parametrize("declared", ["none", "length"])
@pytest.mark.parametrize("name", ["tokens", "is_output"])
def test_tokens_must_be_declared(name: str, declared: str) -> None:
    with pytest.raises(HistoryNotDeclaredError, match="history = "):
        getattr(rows_at(0, declared=declared), name)


def test_the_temperature_to_come_has_a_row_for_each() -> None:
    assert rows_at(0, 1).temperature.tolist() == [[1.0], [1.0]]
