"""Recorded steps on a CPU: plans repeat what the functions by slot compute, by torch's operations instead of Triton's.

All else is as on a GPU: what is recorded, which columns a plan holds, how columns and new tokens are sent, which
addresses move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from lpkit import kernels
from lpkit.columns.memory import Arena
from lpkit.history.reading import History
from lpkit.history.rows import HistoryUse, Rows, SparseLogits
from lpkit.kernels.elementwise import OwnStep, evaluate
from lpkit.kernels.launching import launch
from lpkit.kernels.recording import BY_SLOT, OWN_EDIT, OWN_PROCESS, Entries, OfSlots, SlotHistories
from lpkit.portable.by_slot import CHOICE
from lpkit.portable.rules import steps
from lpkit.rules.when import CONDITION, Conditional


@contextmanager
def recording() -> Iterator[None]:
    """Make processors whose steps are repeated by slot, on the CPU."""
    kernels_by_slot = SimpleNamespace(prepare=lambda *_: functions(), prepare_few=lambda *_: functions())
    with (
        mock.patch("lpkit.portable.processor.fused", kernels_by_slot),
        mock.patch("lpkit.portable.admission.Arena", _ArenaApart),
        mock.patch("lpkit.columns.token_set.delivered", _delivered),
        mock.patch("lpkit.portable.on_v1.delivered", _delivered),
    ):
        yield


def _delivered(values: torch.Tensor, there: torch.Tensor | None, _: torch.device) -> torch.Tensor:
    return values.clone() if there is None else there.copy_(values)


class _ArenaApart(Arena):
    """Columns that are read in other memory than they are written in, which moves with every third change."""

    def lay_out(self) -> None:
        self._on_host = False
        super().lay_out()

    def flush(self) -> None:
        if self.changed and self.version % 3 == 2:
            self.lay_out()
        super().flush()


@cache
def functions() -> ModuleType:
    """The functions by slot."""
    module = ModuleType("by_slot")
    vars(module).update({name: partial(_launched, _Kernel(name)) for name in (*BY_SLOT, *steps(), CHOICE)})
    for name in (OWN_EDIT, OWN_PROCESS):
        vars(module)[name] = partial(_launched_step, name)
    vars(module).update(suits=lambda logits: logits.dtype == torch.float32)
    return module


def _launched_step(name: str, logits: torch.Tensor, step: OwnStep, *columns: Any, entries: Entries) -> torch.Tensor:
    return _launched(_Kernel(name, step.form), logits, *columns, entries=entries)


def _launched(kernel: _Kernel, logits: torch.Tensor, *columns: Any, entries: Entries) -> torch.Tensor:
    texts = entries.texts
    more = () if texts is None else texts[:5]
    options = {} if texts is None else {"width": texts.width, "outputs": texts.outputs, "kind": texts.kind}
    made = logits if kernel.__name__ != CHOICE else torch.empty(len(logits), dtype=torch.int64)
    launch(kernel, (1,), (made, entries.slots, entries.active, *more, *columns), texts=len(more), **options)
    return made


class _Kernel:
    """Stands for the kernels of a function by slot. ``form``: of an author's own step."""

    def __init__(self, name: str, form: tuple[Any, ...] = ()) -> None:
        self.__name__ = name
        self._form = form

    def __getitem__(self, grid: Any) -> Any:
        return self._run

    def _run(
        self, logits: torch.Tensor, slots: torch.Tensor, active: torch.Tensor, *given: Any, texts: int, **sizes: Any
    ) -> None:
        slots = slots[: len(logits)].long()
        index = active[slots].nonzero()[:, 0]
        here, edited, columns = slots[index], logits[index], given[texts:]
        if self.__name__ == CHOICE:
            acts = _acting(_seen(SlotHistories(*given[:texts], **sizes), index, here), [item[here] for item in columns])
            logits.fill_(len(active) - 1)[index[acts]] = here[acts]
            return
        if self.__name__ in BY_SLOT:
            values = [column if column is None else column[here] for column in columns]
            logits[index] = getattr(kernels, self.__name__)(edited, *values)
            return
        rows = _seen(SlotHistories(*given[:texts], **sizes), index, here) if texts else None
        every = _rows(torch.arange(len(here)), here)
        if self._form:
            self._edit(edited, every, rows, [column[here] for column in columns])
            logits[index] = edited
            return
        step, kinds, sparse = steps()[self.__name__]
        values = []
        for column, (dtype, ndim) in zip(columns, kinds, strict=True):
            of_rows = column if dtype == torch.uint8 or not ndim else column[here]  # the first are shared
            values.append(of_rows if ndim == 2 else of_rows.squeeze(1))
        step(SparseLogits(edited, every) if sparse else edited, rows, *values)
        logits[index] = edited

    def _edit(self, edited: torch.Tensor, every: Rows, rows: Rows | None, columns: Sequence[torch.Tensor]) -> None:
        states: list[SparseLogits] = []  # the logits before each write

        def leaf(name: str, *parts: Any) -> Any:
            if name == OfSlots.kind:
                _, dims, number = parts
                return columns[number].squeeze(1) if dims == (1, False) else columns[number]
            if name in ("logits", "amax"):
                return edited.amax(-1, *parts) if parts else edited
            return states[parts[0]][evaluate(parts[1], leaf)] if name == "read" else getattr(rows, name)

        if self.__name__ == OWN_PROCESS:
            edited.copy_(evaluate(self._form, leaf))
            return
        for _, ids, values in self._form:
            states.append(SparseLogits(edited.clone(), every))
            SparseLogits(edited, every)[evaluate(ids, leaf)] = evaluate(values, leaf)


def _acting(rows: Rows, columns: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return True for rows at which a step acts, by the columns of its condition."""
    numbers = (column.squeeze(1) for column in columns[:3])
    read = zip(CONDITION, (*numbers, *columns[3:]), strict=True)
    step: Any = SimpleNamespace(history=rows._declared, **{name: {rows: values} for name, values in read})
    step.since = partial(Conditional.since, step)
    return Conditional.acting(step, rows)


def _seen(texts: SlotHistories, index: torch.Tensor, here: torch.Tensor) -> Rows:
    """Return what a rule reads of the rows ``index`` in the slots ``here``."""
    if texts.kind == 2:
        last, newest = texts.last[index], texts.drafts[index]
        some = last >= 0
        texts.held[here[some], last[some]] = newest[some]
        texts = texts._replace(kind=0)
    tokens = 0 < texts.width <= texts.held.shape[1]
    return _rows(index, here, History(texts, index, here, tokens), "tokens" if tokens else "length")


def _rows(
    index: torch.Tensor, slots: torch.Tensor, history: History | None = None, declared: HistoryUse = "tokens"
) -> Rows:
    return Rows(index, slots, history, declared, None, whole=True)  # type: ignore[arg-type]
