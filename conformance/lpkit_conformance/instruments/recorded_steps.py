"""Recorded steps on a CPU: plans repeat what the functions by slot compute, by torch's operations instead of Triton's.

All else is as on a GPU: what is recorded, which columns a plan holds, which addresses move, how new tokens are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from lpkit import kernels
from lpkit.history.rows import Rows, SparseLogits
from lpkit.kernels import fused
from lpkit.kernels.launching import launch
from lpkit.kernels.recording import BY_SLOT
from lpkit.portable.rules import steps


@contextmanager
def recording() -> Iterator[None]:
    """Make processors whose steps are repeated by slot, on the CPU."""
    with (
        mock.patch.object(fused, "prepare", lambda *_: None),
        mock.patch("lpkit.portable.processor.fused.prepare", lambda *_: functions()),
        mock.patch("lpkit.portable.processor.fused.prepare_few", lambda *_: functions()),
    ):
        yield


@cache
def functions() -> ModuleType:
    """The functions by slot; ``Entries`` are the slots of a batch's rows, and the column that says who is admitted."""
    found = ModuleType("by_slot")
    vars(found).update({name: partial(_launched, _Kernel(name)) for name in (*BY_SLOT, *steps())})
    vars(found).update(Entries=lambda *given: given, suits=lambda logits: logits.dtype == torch.float32)
    return found


def _launched(kernel: _Kernel, logits: torch.Tensor, *columns: Any, entries: Any, texts: Any = None) -> torch.Tensor:
    slots, own, *_ = entries
    more = () if texts is None else texts[:5]
    options = {} if texts is None else {"width": texts.width, "kind": texts.kind}
    launch(kernel, (1,), (logits, slots, own, *more, *columns), texts=len(more), **options)
    return logits


class _Kernel:
    """Stands for the kernels of a function by slot."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getitem__(self, grid: Any) -> Any:
        return self._run

    def _run(
        self, logits: torch.Tensor, slots: torch.Tensor, own: torch.Tensor, *given: Any, texts: int, **sizes: Any
    ) -> None:
        slots = slots[: len(logits)].long()
        index = own[slots].nonzero()[:, 0]
        here, edited, columns = slots[index], logits[index], given[texts:]
        if self.__name__ in BY_SLOT:
            values = [column if column is None else column[here] for column in columns]
            logits[index] = getattr(kernels, self.__name__)(edited, *values)
            return
        step, kinds, sparse = steps()[self.__name__]
        rows = _seen(given[:texts], index, here, **sizes) if texts else None
        values = [
            column if dtype == torch.uint8 else column[here].squeeze(1) if ndim == 1 else column[here]
            for column, (dtype, ndim) in zip(columns, kinds, strict=True)
        ]
        every = Rows(torch.arange(len(here)), here, None, "none", None, whole=True)  # type: ignore[arg-type]
        step(SparseLogits(edited, every) if sparse else edited, rows, *values)
        logits[index] = edited


def _seen(
    texts: tuple[torch.Tensor, ...], index: torch.Tensor, here: torch.Tensor, width: int, kind: int
) -> SimpleNamespace:
    """Return what a rule reads of the histories of the rows ``index`` in the slots ``here``."""
    held, prompts, last, drafts, committed = texts
    length, prompt = last[index].long() + 1, prompts.flatten()[here].long()
    rows = SimpleNamespace(prompt_len=prompt, total_len=length, output_len=length - prompt)
    if held.shape[1] < width:
        return rows  # only lengths are kept
    place = torch.arange(width)
    tokens = held[here, :width].long()
    if kind:
        behind = length - 1 if kind == 2 else torch.maximum(committed[here].long(), length - 1 - index)
        source = (index + 1 - length).unsqueeze(1) + place
        drafted = drafts[source.clamp(0, len(drafts) - 1)].long()
        tokens = torch.where(place >= behind.unsqueeze(1), drafted, tokens)
    if kind == 2:
        some = length > 0
        held[here[some], length[some] - 1] = drafts[index[some]]
    rows.tokens = tokens.masked_fill(place >= length.unsqueeze(1), -1)
    rows.is_output = (place >= prompt.unsqueeze(1)) & (rows.tokens >= 0)
    return rows
