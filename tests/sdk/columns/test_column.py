"""A column keeps one value per request: defaults come back for the next occupant, and clean columns have no cost."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import lpkit
import pytest
import torch
from lpkit.columns.column import Declaration, column
from lpkit.columns.memory import Arena
from lpkit_conformance.instruments.operations import CountOperations


def rows(*slots: int) -> Any:
    return SimpleNamespace(slots=torch.tensor(slots), _gathered=None)


def arena(slots: int = 4, device: str = "cpu", **declared: Declaration[Any]) -> Arena:
    return Arena(declared, slots, torch.device(device), vocab_size=8)


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


def test_a_slot_that_is_reset_has_the_default_of_every_column_and_others_keep_theirs() -> None:
    made = arena(
        bias=column(torch.float32, default=2.0),
        pair=column(torch.bool, default=True, width=2),
        ids=lpkit.ragged(torch.int64),
        chosen=lpkit.token_set(),
    )
    bias, pair, ids, chosen = (made.columns[name] for name in ("bias", "pair", "ids", "chosen"))
    for slot in (0, 1):
        bias[slot], pair[slot], ids[slot], chosen[slot] = 7.0, False, [4, 5, 6], [1, 2]
    made.reset(1)
    made.flush()
    assert bias[rows(0, 1)].tolist() == [7.0, 2.0]
    assert pair[rows(0, 1)].tolist() == [[False, False], [True, True]]
    assert ids[rows(0, 1)].tolist() == [[4, 5, 6, -1], [-1] * 4]
    assert chosen[rows(0, 1)].sum(1).tolist() == [2, 0]
    made.reset(0)
    assert ids[rows(0)].shape == (1, 1)
    assert not any(item.used for item in (bias, pair, ids, chosen))


def test_a_column_is_used_while_a_slot_has_another_value_than_the_default() -> None:
    column_of_fours = arena(value=column(torch.float32, default=4)).columns["value"]
    assert not column_of_fours.used
    column_of_fours[1] = 7
    assert column_of_fours.used
    column_of_fours.reset(1)
    assert not column_of_fours.used


class Copies:
    """Counts copies to a device that is not the host's: the meta device stands in for a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        copy = torch.Tensor.copy_

        def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            self.n += tensor.device.type == "meta"
            return copy(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, "copy_", counted)


def test_one_flush_sends_all_columns_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(device="meta", a=column(torch.float32), b=column(torch.int64, width=4), c=column(torch.bool))
    copies = Copies(monkeypatch)
    for item in made.columns.values():
        item[1] = 1
        item[2] = 1
    made.flush()
    assert copies.n == 1


def test_a_clean_arena_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(device="meta", a=column(torch.float32))
    made.flush()
    copies = Copies(monkeypatch)
    made.flush()
    assert copies.n == 0
    made.columns["a"].reset(0)
    made.flush()
    assert copies.n == 1


def test_what_is_reset_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(device="meta", a=column(torch.float32))
    made.flush()
    copies = Copies(monkeypatch)
    made.reset(0)
    made.flush()
    assert copies.n == 1


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


class Sent:
    """Copies to a device with its own memory; this machine has none, so a separate array stands in."""

    def __init__(self, made: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[list[int]] = []
        self.words = made._host.clone()
        monkeypatch.setattr(torch.Tensor, "index_copy_", lambda *given: self._note(*given))
        to = torch.Tensor.to
        monkeypatch.setattr(
            torch.Tensor, "to", lambda tensor, *args, **kwargs: self._keep(tensor) and to(tensor, *args, **kwargs)
        )

    def _keep(self, tensor: torch.Tensor) -> bool:
        self.packed = tensor
        return True

    def _note(self, tensor: torch.Tensor, dim: int, index: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        slots = self.packed[:, 0]
        self.rows.append(slots.tolist())
        self.words[slots] = self.packed[:, 1:]
        return tensor


def test_of_a_large_arena_the_changed_rows_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arena(5000, device="meta", wide=column(torch.float32, width=5), flag=column(torch.bool))
    made.flush()
    sent = Sent(made, monkeypatch)
    made.columns["wide"][3] = 1.5
    made.columns["flag"][4711] = True
    made.columns["wide"][3] = 2.5
    made.flush()
    assert sent.rows == [[3, 4711]]
    assert torch.equal(sent.words, made._host)


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
