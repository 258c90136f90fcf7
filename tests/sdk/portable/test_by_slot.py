"""Steps that are repeated by slot, without the author's code, and when they are recorded again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import lpkit
import pytest
import torch
from lpkit import kernels, sequences
from lpkit.columns import token_set
from lpkit.portable.by_slot import BySlot, why_not_recorded
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.instruments.meta_kernels import META, fused_on_meta

FACTOR = 2.0
SEEN: list[int] = []


class Base(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        ids: tuple[int, ...] = ()
        far: float = 0.0

    ids = lpkit.ragged(torch.int64)
    far = lpkit.column(torch.float32)
    chosen = lpkit.token_set()

    def admit(self, request: lpkit.Request[Any]) -> bool:
        self.ids[request.slot] = request.params.ids
        self.chosen[request.slot] = request.params.ids
        self.far[request.slot] = request.params.far
        return True


class Far(Base):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.factor = 2.0

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1), rows.temperature)


class Lengths(Far):
    history = "length"


class Tokens(Far):
    history = "tokens"


class Helped(Base):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if self.far.used:
            self.mask(logits, rows)
        return kernels.keep_ids_(logits, self.ids[rows])

    def mask(self, logits: torch.Tensor, rows: lpkit.Rows) -> None:
        kernels.mask_far_below_top_(logits, *(column[rows].unsqueeze(1) for column in (self.far,)))


class Chosen(Base):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return self.chosen.keep_only_(logits, rows)


class Counts(Far):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        self.calls = 1
        return super().process(logits, rows)


class Plain(Far):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        floor = logits.amax(-1, keepdim=True) - self.far[rows].unsqueeze(1)
        return logits.masked_fill_(logits < floor, -math.inf)


class FallsBack(Far):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        try:
            return kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1) * FACTOR)
        except:  # noqa: E722
            return kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1))


class Shares(Far):
    """Rows have no slots in a tensor that is no column."""

    @cached_property
    def everyones(self) -> torch.Tensor:
        return torch.ones(1, device=META)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.mask_far_below_top_(logits, self.everyones.unsqueeze(1))


class Sparse(Base):
    history = "tokens"
    values = lpkit.ragged(torch.float32, fill=0.0)
    size = lpkit.column(torch.int64)
    window = lpkit.column(torch.int64)
    half = lpkit.column(torch.float64)

    def admit(self, request: lpkit.Request[Any]) -> bool:
        self.values[request.slot] = [1.0] * len(request.params.ids)
        return super().admit(request)


class Biases(Sparse):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]
        logits[ids] = logits[ids] + self.values[rows]


class Writes(Sparse):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.ids[rows]] = self.written(rows)

    def written(self, rows: lpkit.Rows) -> torch.Tensor:
        return self.values[rows]


class BiasesTwice(Sparse):
    """The second read is before the first write."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]
        before = logits[ids]
        logits[ids] = before + self.values[rows]
        logits[ids] = before + self.values[rows]


class Compares(Sparse):
    """Keeps a comparison in a variable, which changes nothing in place."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        values = logits[self.ids[rows]]
        high = values >= self.values[rows]
        logits[self.ids[rows]] = (values + 1).where(high, values)


class Mixes(Sparse):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        ids = self.ids[rows]
        before = logits[ids]
        logits[ids] = before + 1
        logits[ids] = logits[ids] + before


class Counted(Sparse):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[rows.tokens] = logits[rows.tokens] - sequences.counts(rows.tokens, rows.is_output)


class InPlace(Sparse):
    """A tensor with two names."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        values = before = logits[self.ids[rows]]
        values *= 2
        logits[self.ids[rows]] = values + before


class Doubled(Sparse):
    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        values = self.values[rows] + 1
        for _ in range(60):
            values = values + values
        logits[self.ids[rows]] = values


class BiasesIfLong(Biases):
    """A branch by the shape of the histories."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        if rows.tokens.shape[1] > 100:
            logits[self.ids[rows]] = self.values[rows]


class BiasesIfAny(Biases):
    """A branch by a value."""

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        if self.far[rows] == 0:
            logits[self.ids[rows]] = self.values[rows]


class Bans(Sparse):
    """Other tokens than a kernel bans."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        since = rows.prompt_len.maximum(rows.total_len - self.window[rows])
        repeats = sequences.completes_ngram(rows.tokens, rows.total_len, self.size[rows], since)
        return kernels.mask_ids_(logits, rows.tokens.where(repeats, 0))


class BansAndMasks(Sparse):
    """A second function, which reads no histories."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        since = rows.prompt_len.maximum(rows.total_len - self.window[rows])
        repeats = sequences.completes_ngram(rows.tokens, rows.total_len, self.size[rows], since)
        logits = kernels.mask_ids_(logits, rows.tokens.where(repeats, -1))
        return kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1))


class Holds(Sparse):
    @cached_property
    def bits(self) -> torch.Tensor:
        return torch.zeros(200, device=META)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        since = (rows.prompt_len + self.size[rows]).maximum(rows.total_len - self.window[rows])
        text = rows.tokens, rows.is_output, rows.total_len
        seeds = sequences.fresh_context(*text, self.ids[rows], self.size[rows], since)
        return kernels.tournament_(logits, rows.temperature, self.bits, seeds, self.ids[rows])


@pytest.fixture(autouse=True)
def kernels_that_only_count() -> Iterator[None]:
    with fused_on_meta():
        yield


def made(cls: type[lpkit.LogitsProcessor]) -> Any:
    return cls(make_config(max_num_seqs=4, vocab_size=64), META, False)


def enter(processor: Any, row: int, **wanted: Any) -> None:
    update = lpkit.v1.BatchUpdate(row + 1, [], [(row, SamplingParams(extra_args=wanted), [1], [])], [])
    processor.update_state(update)


def calls(processor: Any) -> list[str]:
    assert processor._by_slot.recorded
    return [name for name, *_ in processor._by_slot._calls]


@pytest.mark.parametrize("cls", [Far, Helped, Chosen, Plain, Biases, BiasesTwice, Compares, Holds])
def test_calls_of_kernels_with_columns_are_recorded(cls: type[lpkit.LogitsProcessor]) -> None:
    """Those of the reference plugins, too: their launches are known."""
    assert made(cls)._by_slot.recorded
    assert why_not_recorded(made(cls)) == ""


PROCESSES: list[tuple[type[Far], Any, str]] = [
    (Far, lambda self, logits, rows: SEEN.append(1) or logits, "it uses SEEN"),
    (Far, lambda self, logits, rows: print(FACTOR) or logits, "it uses print"),
    (Far, lambda self, logits, rows, seen=[]: seen.append(1) or logits, "it has a default that it could change"),
    (Far, lambda self, logits, rows: logits if rows.n > 3 else logits + 1, "it reads `rows.n`"),
    (Far, lambda self, logits, rows: logits + self.factor, "it reads factor, which is no column"),
    (
        Far,
        lambda self, logits, rows: kernels.keep_ids_(logits, self.ids[rows], rows.temperature > 1),
        "it calls keep_ids_ in a way that no kernel by slot knows",
    ),
    (
        Far,
        lambda self, logits, rows: kernels.mask_below_(logits, self.far[rows].unsqueeze(1)),
        "it reads `device` of a tensor",
    ),
    (Far, lambda self, logits, rows: logits < logits.sort(-1)[0][:, -2:-1], "it calls `sort` on a tensor"),
    (Far, lambda self, logits, rows: logits - logits.amax(0), "it compares logits of different rows"),
    (Far, lambda self, logits, rows: logits - logits.exp(), "it computes `exp`, which takes a kernel of its own"),
    (
        Far,
        lambda self, logits, rows: logits - logits.gather(1, self.ids[rows]),
        "it computes `gather`, which takes a kernel of its own",
    ),
    (
        Far,
        lambda self, logits, rows: logits.masked_fill_((logits > 1).masked_fill(logits > 2, 0), 1),
        "it computes with 0",
    ),
    (Far, lambda self, logits, rows: logits.masked_fill_(logits < 0, -0.0), "it computes with -0.0"),
    (Far, lambda self, logits, rows: logits.add_(self.far[rows].unsqueeze(1), alpha=2), "it gives options to add_"),
    (Far, lambda self, logits, rows: logits.mul_(2).add_(logits), "it edits the logits more than once"),
    (Far, lambda self, logits, rows: logits.amax(-1, keepdim=True) + 1, "it returns no logits"),
    (Far, lambda self, logits, rows: logits, "it does not return the logits of a kernel"),
    (
        Lengths,
        lambda self, logits, rows: kernels.mask_far_below_top_(logits, rows.output_len.unsqueeze(1)),
        "it calls mask_far_below_top_ in a way that no kernel by slot knows",
    ),
    (Lengths, lambda self, logits, rows: logits * rows.output_len.unsqueeze(1), "its process reads lengths or tokens"),
    (Tokens, lambda self, logits, rows: logits.mul_(2), "it declares a history that it does not read"),
]
VALUES: list[tuple[Any, str]] = [
    (lambda self, rows: self.values[rows].exp(), "it computes `exp`, which takes a kernel of its own"),
    (lambda self, rows: torch.softmax(self.values[rows], -1), "it uses torch.softmax"),
    (
        lambda self, rows: self.values[rows] / 3,
        "it divides by a number, and a GPU would multiply by its rounded inverse",
    ),
    (lambda self, rows: self.far[rows], "it writes values of another shape than its ids"),
    (lambda self, rows: (self.values[rows] > 0) + (self.values[rows] < 1), "it calculates with truth values"),
    (lambda self, rows: self.half[rows].unsqueeze(1), "it reads torch.float64"),
]
"""Computations of the values that a step writes to its ids."""
CLASSES: list[tuple[Any, str]] = [
    (Counts, "it is no plain function, or uses super() or names around it"),
    (FallsBack, "it handles exceptions"),
    (Shares, "it calls mask_far_below_top_ in a way that no kernel by slot knows"),
    (Mixes, "it combines logits from before and after a write"),
    (Counted, "it computes `counts`, which takes a kernel of its own"),
    (InPlace, "it changes a variable in place"),
    (Doubled, "it computes more than 500 operations"),
    (BiasesIfLong, "it reads `shape` of a tensor"),
    (BiasesIfAny, "it looks at the values of a tensor"),
    (Bans, "it calls mask_ids_ in a way that no kernel by slot knows"),
    (BansAndMasks, "it calls mask_ids_ in a way that no kernel by slot knows"),
    *((type("Made", (base,), {"process": process}), why) for base, process, why in PROCESSES),
    *((type("Made", (Writes,), {"written": written}), why) for written, why in VALUES),
]


@pytest.mark.parametrize(("cls", "why"), CLASSES)
def test_a_step_that_does_more_is_not_recorded_and_says_why(cls: type[lpkit.LogitsProcessor], why: str) -> None:
    processor = made(cls)
    assert not processor._by_slot.recorded
    assert why_not_recorded(processor) == why
    assert SEEN == []


def test_lists_of_other_widths_than_their_values_take_the_general_way() -> None:
    processor = made(Biases)
    enter(processor, 0, ids=[1, 2, 3])
    assert calls(processor) == ["edit_ids_"]
    processor.values[0] = [1.0] * 9
    processor._admission.flush()
    assert not processor._by_slot.recorded
    assert processor._by_slot.reason == "its lists have different widths"


def test_a_cached_tensor_is_read_where_it_is_when_columns_change() -> None:
    processor = made(Holds)
    for bits in (processor.bits, torch.ones(300, device=META)):
        processor.bits = bits
        enter(processor, 0, ids=[1])
        assert calls(processor) == ["hold_tournament_"]
        assert len(processor._by_slot._calls[0][1][-2]) == len(bits)


def test_a_kernel_that_does_not_compile_leaves_the_step_to_its_python(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no such function")

    monkeypatch.setattr(BySlot, "rehearse", refuse)
    assert made(Biases)._by_slot is None
    assert "Biases: its kernel could not be prepared" in caplog.text


class OnlyIfUsed(Far):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.mul_(self.far[rows].unsqueeze(1)) if self.far.used else logits


def test_a_branch_of_a_column_that_nobody_uses_yet_is_compiled_at_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    monkeypatch.setattr(BySlot, "_launch", lambda self, *_: launched.extend(name for name, _ in self._calls))
    assert not made(OnlyIfUsed)._by_slot.recorded
    assert {*launched} == {"process_rows_"}


def test_columns_that_change_are_recorded_again() -> None:
    processor = made(Helped)
    enter(processor, 0, ids=[1], far=0.0)
    assert calls(processor) == ["keep_ids_"]
    enter(processor, 1, ids=[1, 2, 3], far=2.0)
    assert calls(processor) == ["mask_far_below_top_", "keep_ids_"]
    (distance, _), (ids, _) = (columns for _, columns in processor._by_slot._calls)
    assert (distance.shape, ids.shape) == ((5, 1), (5, 4))


def test_sets_too_long_for_lists_take_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_set, "SHORT", 4)
    processor = made(Chosen)
    enter(processor, 0, ids=[1, 2])
    assert calls(processor) == ["keep_ids_"]
    enter(processor, 1, ids=list(range(9)))
    assert not processor._by_slot.recorded


def test_rows_have_the_slots_of_their_requests_and_others_the_slot_of_nobody() -> None:
    class Asked(Far):
        class Params(lpkit.Params):
            far: float
            ids: tuple[int, ...] = ()

    processor = Asked(make_config(max_num_seqs=4, vocab_size=64), torch.device("cpu"), False)
    assert processor._v1.held == 0
    enter(processor, 0, far=1.0)
    enter(processor, 1)
    enter(processor, 2, far=2.0)
    assert processor._v1.held == 2
    slots, _ = processor._v1.by_slot(torch.zeros(4, 1), None, False)
    assert slots[1] == 4
    assert processor._admission.active.all[slots].tolist() == [True, False, True, False]
    assert processor.far.all[slots][[0, 2]].tolist() == [1.0, 2.0]
