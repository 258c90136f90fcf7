"""A column keeps one value per request: defaults come back for the next occupant, and clean columns have no cost."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import lpkit
import pytest
import torch
from arenas import arena, rows
from lpkit.columns.column import column
from lpkit_conformance.instruments.operations import CountOperations

DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_unwritten_slots_hold_the_default(dtype: torch.dtype) -> None:
    made = arena(value=column(dtype, default=1), row=column(dtype, width=3))
    assert made.columns["value"].all.tolist() == torch.ones(5, dtype=dtype).tolist()
    assert made.columns["value"].all.dtype == dtype
    assert made.columns["row"].all.tolist() == torch.zeros(5, 3, dtype=dtype).tolist()


def test_mixed_types_do_not_overlap() -> None:
    made = arena(
        5, **{str(i): column(dtype, width=width) for i, dtype in enumerate(DTYPES) for width in [i % 3 or None]}
    )
    for i, item in enumerate(made.columns.values()):
        for slot in range(5):
            item[slot] = (i + slot) % 2
    made.flush()
    for i, item in enumerate(made.columns.values()):
        read = item[rows(0, 1, 2, 3, 4)].to(torch.int64).reshape(5, -1)
        assert (read == torch.tensor([(i + slot) % 2 for slot in range(5)]).unsqueeze(1)).all()


def test_all_columns_of_a_step_are_read_at_once() -> None:
    made = arena(
        bias=column(torch.float32, default=2.0), ids=lpkit.ragged(torch.int64), flag=column(torch.bool, width=2)
    )
    made.columns["ids"][1] = [5, 6, 7]
    made.columns["flag"][0] = (True, False)
    made.flush()
    held = {"bias": [2.0, 2.0], "ids": [[5, 6, 7, -1], [-1] * 4], "flag": [[False, False], [True, False]]}
    for names in permutations(held):  # the first decides on the type of the copy
        step = rows(1, 0)
        with CountOperations() as counter:
            read = {name: made.columns[name][step].tolist() for name in names}
        assert counter.counts["index_select"] == 1
        assert read == held
        assert made.columns["bias"]._unsqueezed(step).tolist() == [[2.0], [2.0]]


def test_what_an_author_does_to_a_column_reaches_no_other_and_no_later_read_of_the_step() -> None:
    made = arena(bias=column(torch.float32, default=2.0), pair=column(torch.int32, width=2), high=column(torch.float64))
    bias, pair, high = made.columns.values()
    step = rows(1, 3)
    first, second = bias[step], bias[step]
    first.mul_(100)
    pair[step].add_(7)
    assert second.tolist() == bias[step].tolist() == [2.0, 2.0]
    assert pair[step].tolist() == [[0, 0], [0, 0]]
    assert high[step].tolist() == [0.0, 0.0]
    assert bias.all.tolist() == [2.0] * 5


def test_columns_of_two_processors_are_read_at_the_same_rows() -> None:
    one, other = (arena(bias=column(torch.float32, default=value)).columns["bias"] for value in (1.0, 2.0))
    step = rows(1, 3)
    assert [item[step].tolist() for item in (one, other, one)] == [[1.0] * 2, [2.0] * 2, [1.0] * 2]


def test_a_wide_column_takes_a_sequence_or_one_value_for_all() -> None:
    made = arena(row=column(torch.int64, width=3, default=-1))
    made.columns["row"][1] = (7, 8, 9)
    made.columns["row"][2] = 5
    made.flush()
    assert made.columns["row"][rows(0, 1, 2)].tolist() == [[-1, -1, -1], [7, 8, 9], [5, 5, 5]]
    with pytest.raises(ValueError, match="broadcast"):
        made.columns["row"][1] = (1, 2)


@pytest.mark.parametrize(
    ("declared", "value"),
    [(column(torch.float32, default=4), 7), (lpkit.ragged(torch.int64), [5]), (lpkit.token_set(), [5])],
)
def test_a_column_is_used_while_a_slot_has_another_value_than_the_default(declared: Any, value: Any) -> None:
    made = arena(held=declared)
    held: Any = made.columns["held"]
    held[0] = 4 if value == 7 else []
    assert not held.used
    for reset in (held.reset, made.reset):
        held[1] = value
        assert held.used
        reset(1)
        assert not held.used


class Copies:
    """Counts copies to a device that is not the host's: the meta device stands in for a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        copy = torch.Tensor.copy_

        def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            self.n += tensor.device.type == "meta"
            return copy(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, "copy_", counted)


def test_all_columns_are_sent_in_one_copy_and_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(device="meta", a=column(torch.float32), b=column(torch.int64, width=4), c=column(torch.bool))
    copies = Copies(monkeypatch)
    for item in made.columns.values():
        item[1] = item[2] = 1
    counts = []
    for change in (lambda: None, lambda: None, lambda: made.columns["a"].reset(0), lambda: made.reset(0)):
        change()
        made.flush()
        counts.append(copies.n)
    assert counts == [1, 1, 2, 3]


def test_a_step_in_flight_keeps_its_own_host_block(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(device="meta", a=column(torch.float32))
    sources: list[torch.Tensor] = []
    copy = torch.Tensor.copy_

    def spied(tensor: torch.Tensor, source: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        if tensor.device.type == "meta":
            sources.append(source)
        return copy(tensor, source, **kwargs)

    monkeypatch.setattr(torch.Tensor, "copy_", spied)
    made.columns["a"][0] = 1.0
    made.flush()
    made.columns["a"][0] = 2.0
    made.flush()
    assert [block.view(torch.float32)[0, 0].item() for block in sources] == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.complex64])
def test_other_types_are_refused_where_they_are_declared(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="a column holds one of"):
        lpkit.column(dtype)


def test_a_width_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="width must be at least 1"):
        lpkit.column(torch.float32, width=0)


def test_a_value_outside_the_type_is_refused() -> None:
    made = arena(a=column(torch.uint8), b=column(torch.int32))
    with pytest.raises(OverflowError):
        made.columns["a"][0] = 256
    with pytest.raises(OverflowError):
        made.columns["b"][0] = 2**31
