"""Rules that every processor must keep, compared on rows from before and after a call of ``apply``."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lpkit_conformance.results import Failed, Finding

NAN, NO_TOKEN, REVIVED, TOUCHED = "nan", "no-token", "revived", "touched"
SHAPE, DTYPE, EXCEPTION = "shape", "dtype", "exception"

RULES = {
    NAN: "no logit becomes NaN",
    NO_TOKEN: "every row keeps a token that can be sampled",
    REVIVED: "tokens that were ruled out before the processor stay ruled out",
    TOUCHED: "the row of a request that does not use the processor stays as it was",
    SHAPE: "the processor returns logits of the shape it was given",
    DTYPE: "the processor returns logits of the dtype it was given",
    EXCEPTION: "the processor raises nothing",
}
"""The rule by kind of violation."""


@dataclass(frozen=True)
class BrokenRow:
    """A row that breaks a rule. ``column``: the first token that shows it."""

    kind: str
    row: int
    column: int
    expected: str
    got: str


class RowSample:
    """A few rows, copied before a call of ``apply``; on V2, with every row's slot and position, on the device."""

    def __init__(
        self,
        logits: torch.Tensor,
        rows: list[int],
        slots: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
    ) -> None:
        self.rows = rows
        self._index = None if len(rows) == logits.shape[0] else torch.tensor(rows, device=logits.device)
        self._before = self._of(logits).clone()
        self._slots = [self._of(values) for values in (slots, positions) if values is not None]

    def _of(self, values: torch.Tensor) -> torch.Tensor:
        return values if self._index is None else values[self._index]

    def flags(self, logits: torch.Tensor) -> tuple[list[list[int]], list[list[int]]]:
        """Compare with the output, in one wait for the device.

        Returns:
            Flags per row for ``nan``, ``no-token``, ``revived`` and any change; on V2, the rows' slots and positions.
        """
        flags = [wrong.any(1) for wrong in _wrong(self._before, self._of(logits)).values()]
        table: list[list[int]] = torch.stack([row.to(torch.int64) for row in (*flags, *self._slots)]).tolist()
        return table[: len(flags)], table[len(flags) :]

    def broken_row(self, kind: str, position: int, logits: torch.Tensor) -> BrokenRow:
        """Describe how the row at ``position`` of the sample breaks the rule of this kind."""
        before, after = self._before[position], self._of(logits)[position]
        column = int(_wrong(before, after)[kind].to(torch.int8).argmax())
        old, new = float(before[column]), float(after[column])
        return BrokenRow(kind, self.rows[position], column, f"{old:.6g}", f"{new:.6g}")


def _wrong(before: torch.Tensor, after: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the entries that break each rule of rows, as bools of the shape of the rows ``[..., vocab]``."""
    hidden, nan, nan_before = torch.isneginf(before), torch.isnan(after), torch.isnan(before)
    dead = torch.isneginf(after)
    lost = (dead | nan).all(-1, keepdim=True) & ~nan.any(-1, keepdim=True)
    return {
        NAN: nan & ~nan_before,
        NO_TOKEN: lost & ~hidden & ~nan_before,
        REVIVED: hidden & ~dead & ~nan,
        TOUCHED: (before != after) & ~(nan & nan_before),
    }


def broken(
    sample: RowSample,
    logits: torch.Tensor,
    opted_out: Callable[[int, int | None], bool],
    discarded: Callable[[int, int], bool] = lambda slot, position: False,
) -> list[tuple[str, int, int | None]]:
    """Return (kind, position in the sample, slot or None) for every broken rule.

    Args:
        sample: rows from before the call.
        logits: the output, of the input's shape.
        opted_out: (row, slot or None) -> True if the row must stay unchanged.
        discarded: on V2, (slot, position) -> True if the engine discards the row's token: such a row may hold anything.
    """
    table, slots = sample.flags(logits)
    kinds: list[tuple[str, int, int | None]] = []
    for position, row in enumerate(sample.rows):
        *flags, changed = (column[position] for column in table)
        slot = slots[0][position] if slots else None
        if slot is not None and discarded(slot, slots[1][position]):
            continue
        if any(flags):
            kinds += [(kind, position, slot) for kind, flag in zip(RULES, flags, strict=False) if flag]
        elif changed and opted_out(row, slot):
            kinds.append((TOUCHED, position, slot))
    return kinds


def described(error: BaseException, text: bool) -> str:
    """Return an exception's type and the line that raised it; its ``text`` too if asked: it may quote users."""
    frames = traceback.extract_tb(error.__traceback__)
    line = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + line + (f": {str(error)[:300]}" if text else "")


def not_logits(given: torch.Tensor, got: Any) -> tuple[str, str, str] | None:
    """Return (kind, expected, got) if the output cannot be logits. Does not wait for the device."""
    if not isinstance(got, torch.Tensor):
        return SHAPE, f"a tensor of shape {tuple(given.shape)}", type(got).__name__
    if got.shape != given.shape:
        return SHAPE, f"shape {tuple(given.shape)}", f"shape {tuple(got.shape)}"
    if got.dtype != given.dtype:
        return DTYPE, str(given.dtype), str(got.dtype)
    return None


def judge_replay(observations: Iterable[Any], where: dict[str, str], scenario: dict[str, Any]) -> None:
    """Apply the rules to the calls of ``apply`` in a trace's replay. Raises Failed at the first broken row."""
    for observation in observations:
        sample = RowSample(observation.before, list(range(len(observation.rows))))
        for kind, position, _ in broken(sample, observation.after, lambda row, slot: False):
            row = sample.broken_row(kind, position, observation.after)
            at = {"step": str(observation.step), "request": observation.rows[position].request}
            raise Failed(
                Finding(
                    f"broken as in the server: {RULES[kind]}",
                    {**where, **at, "token": str(row.column)},
                    row.expected,
                    row.got,
                    scenario=scenario,
                )
            )
