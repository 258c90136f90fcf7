"""What a processor may do to a row of logits, compared on a few rows of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

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
"""By kind of violation, the rule that it breaks."""

_OF_ROWS = (NAN, NO_TOKEN, REVIVED, TOUCHED)


@dataclass(frozen=True)
class Departure:
    """A row that broke a rule. ``column``: the first token at which it shows."""

    kind: str
    row: int
    column: int
    expected: str
    got: str


class Sample:
    """A few rows, kept from before a call of ``apply``.

    Args:
        logits: what the processor is about to be given.
        rows: which to keep.
        places: on V2, the slot and the position of every row, on the device.
    """

    def __init__(self, logits: torch.Tensor, rows: list[int], *places: torch.Tensor) -> None:
        self.rows = rows
        self._all = len(rows) == logits.shape[0]
        self._index = None if self._all else torch.tensor(rows, device=logits.device)
        self._before = self._of(logits).clone()
        self._places = [self._of(values) for values in places]

    def _of(self, values: torch.Tensor) -> torch.Tensor:
        return values if self._index is None else values[self._index]

    def flags(self, logits: torch.Tensor) -> tuple[list[list[int]], list[list[int]]]:
        """By rule of ``nan``, ``no-token``, ``revived`` and changed at all, a flag per row; and the rows' places.

        This is the one wait for the device.
        """
        before, after = self._before, self._of(logits)
        hidden = torch.isneginf(before)
        dead = torch.isneginf(after)
        nan = torch.isnan(after)
        known_nan = torch.isnan(before)
        found = [
            (nan & ~known_nan).any(1),
            (dead | nan).all(1) & ~(hidden | known_nan).all(1) & ~nan.any(1),
            (hidden & ~dead & ~nan).any(1),
            ((before != after) & ~(nan & known_nan)).any(1),
        ]
        table: list[list[int]] = torch.stack([row.to(torch.int64) for row in (*found, *self._places)]).tolist()
        return table[:4], table[4:]

    def departure(self, kind: str, position: int, logits: torch.Tensor) -> Departure:
        """What is wrong with the ``position``-th of the kept rows."""
        before, after = self._before[position], self._of(logits)[position]
        wrong = {
            NAN: torch.isnan(after) & ~torch.isnan(before),
            NO_TOKEN: ~torch.isneginf(before),
            REVIVED: torch.isneginf(before) & ~torch.isneginf(after),
            TOUCHED: (before != after) & ~(torch.isnan(after) & torch.isnan(before)),
        }[kind]
        column = int(wrong.to(torch.int8).argmax())
        old, new = float(before[column]), float(after[column])
        return Departure(kind, self.rows[position], column, _shown(old), _shown(new))


def departures(
    sample: Sample,
    logits: torch.Tensor,
    opted_out: Callable[[int, int | None], bool],
    discarded: Callable[[int, int], bool] = lambda slot, position: False,
) -> list[tuple[str, int, int | None]]:
    """(kind, position among the sample's rows, slot or None) of every broken rule.

    Args:
        sample: from before the call.
        logits: what the processor returned, of the shape it was given.
        opted_out: (row, slot or None) -> whether the row must be as it was.
        discarded: on V2, (slot, position) -> whether the engine throws the row's token away, as it may hold anything.
    """
    table, places = sample.flags(logits)
    found: list[tuple[str, int, int | None]] = []
    for position, row in enumerate(sample.rows):
        *broken, changed = (flags[position] for flags in table)
        slot = places[0][position] if places else None
        if slot is not None and discarded(slot, places[1][position]):
            continue
        if any(broken):
            found += [(kind, position, slot) for kind, flag in zip(_OF_ROWS, broken, strict=False) if flag]
        elif changed and opted_out(row, slot):
            found.append((TOUCHED, position, slot))
    return found


def returned(given: torch.Tensor, got: Any) -> tuple[str, str, str] | None:
    """(kind, expected, got) if what a processor returned cannot be logits; costs no wait for the device."""
    if not isinstance(got, torch.Tensor):
        return SHAPE, f"a tensor of shape {tuple(given.shape)}", type(got).__name__
    if got.shape != given.shape:
        return SHAPE, f"shape {tuple(given.shape)}", f"shape {tuple(got.shape)}"
    if got.dtype != given.dtype:
        return DTYPE, str(given.dtype), str(got.dtype)
    return None


def _shown(value: float) -> str:
    return f"{value:.6g}"
