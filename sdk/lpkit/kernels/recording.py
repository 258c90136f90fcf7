"""Records what a step computes from columns and histories, to repeat it by slot in each step."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

BY_SLOT = {
    "dynamic_temperature_": torch.float32,
    "keep_ids_": torch.int64,
    "mask_deviations_below_top_": torch.float64,
    "mask_far_below_top_": torch.float32,
    "mask_unlikely_": torch.float32,
}
"""Functions whose kernels read per-row values by slot, and the type of these values."""

_TOKENS, _TOTAL = ("tokens",), ("total_len",)
_SINCE = ("maximum", ("prompt_len",), ("sub", _TOTAL, "column 1"))
_REPEATS = ("completes_ngram", _TOKENS, _TOTAL, "column 0", _SINCE)
_COUNTS = ("counts", _TOKENS, ("is_output",))
_COLUMNS = tuple(f"column {number}" for number in range(3))

PATTERNS: dict[Any, tuple[str, int, tuple[torch.dtype, ...]]] = {
    ("write", "column 0", ("add", ("read", "column 0"), "column 1")): ("add_to_ids_", 2, (torch.int64, torch.float32)),
    ("write", _TOKENS, ("penalized", ("read", _TOKENS), _COUNTS, *_COLUMNS)): ("penalize_", 1, (torch.float32,) * 3),
    ("mask_ids_", ("where", _REPEATS, _TOKENS, -1)): ("ban_ngrams_", 1, (torch.int64, torch.int64)),
}
"""Steps that one function of :mod:`lpkit.kernels.triton_texts` does: its name, and dimensions and types of the
columns."""

MOST_COMPARED = 4096
"""Longest history whose ids are found by comparing each with each in one kernel launch; longer histories are sorted.

At this length a row takes 17 million comparisons. From an H100's integer throughput, 256 such rows take about 0.6 ms.
This is an estimate, not a measurement."""

PAIRS = {"penalize_": MOST_COMPARED**2, "ban_ngrams_": 2**63}
"""Functions that read histories, and for how many pairs of a token and an output token in a row."""


class SlotHistories(NamedTuple):
    """The rows' histories, in the engine's or the SDK's memory.

    Attributes:
        held: int32 or int64 ``[slots, longest]``.
        prompts: int32 or int64 ``[slots]``, lengths of the prompts.
        last: int32 or int64 ``[rows]``, position of the last visible token; -1: the row is not edited.
        width: at least as large as the longest text.
        outputs: at least as large as the longest output.
        committed: int32 or int64 ``[slots]``, number of tokens of each text in ``held``; None: all.
        drafts: int32 or int64 ``[rows]``, the input of each row; the inputs of a text's last rows are its other tokens.
    """

    held: torch.Tensor
    prompts: torch.Tensor
    last: torch.Tensor
    width: int
    outputs: int
    committed: torch.Tensor | None = None
    drafts: torch.Tensor | None = None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The memory; for texts without drafts, other memory takes their place."""
        last = self.last
        if self.drafts is None or self.committed is None:
            return self.held, self.prompts, last, last, last
        return self.held, self.prompts, last, self.drafts, self.committed


class NotRecordableError(Exception):
    """A step does more than what :data:`BY_SLOT` and :data:`PATTERNS` have."""


class StandIn:
    """Stands for a tensor. It has no values: a step that decides anything by them cannot be recorded."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def kernels(self) -> Kernels:
        return Kernels()

    def _refuse(self, *_: Any) -> Any:
        raise NotRecordableError("it looks at the values of a tensor")

    __bool__ = __len__ = __iter__ = __eq__ = __ne__ = _refuse


class OfSlots(StandIn):
    """Stands for the values of some rows: the entries of ``column``, ``[slots + 1, ...]``, at the rows' slots."""

    def __init__(self, column: torch.Tensor) -> None:
        self.column = column

    @property
    def dtype(self) -> torch.dtype:
        return self.column.dtype

    def unsqueeze(self, dim: int) -> OfSlots:
        if dim not in (1, -1) or self.column.ndim != 1:
            raise NotRecordableError("it reshapes a column")
        return OfSlots(self.column.unsqueeze(1))


class Computed(StandIn):
    """Stands for what an operation results in.

    Attributes:
        form: the operation's name, and what it is applied to.
    """

    def __init__(self, *form: Any) -> None:
        self.form = form

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.form[0] == "read" else torch.int64

    def __add__(self, other: Any) -> Computed:
        return Computed("add", self, other)

    def __sub__(self, other: Any) -> Computed:
        return Computed("sub", self, other)

    def maximum(self, other: Any) -> Computed:
        return Computed("maximum", self, other)

    def where(self, condition: Any, other: Any) -> Computed:
        return Computed("where", condition, self, other)


class Kernels:
    """Stands for the kernels that compute a :class:`Computed`, or edit the logits of a :class:`Recorder`."""

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            first, *others = given
            return first.record(name, *others) if isinstance(first, Recorder) else Computed(name, *given)

        return call


class Recorder(StandIn):
    """Stands for the logits of a batch: all of them for ``process``, or those at some ids for ``edit``.

    Attributes:
        calls: name and columns of each call, in order.
    """

    dtype = torch.float32

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[torch.Tensor | None, ...]]] = []

    def record(self, name: str, *values: Any) -> Recorder:
        if name in BY_SLOT:
            if any(earlier not in BY_SLOT for earlier, _ in self.calls):
                raise NotRecordableError(f"it calls {name} after a step that reads histories or ids")
            if name == "keep_ids_" and values[1:] not in ((), (None,)):
                raise NotRecordableError(f"it calls {name} in a way that no kernel by slot knows")
            columns = tuple(None if value is None else _column(value, BY_SLOT[name], 2) for value in values)
            self.calls.append((name, columns))
            return self
        found: list[OfSlots] = []
        known = PATTERNS.get(_form((name, *values), found))
        if known is None or self.calls:  # of several calls, one may read what another wrote
            raise NotRecordableError(f"it calls {name} in a way that no kernel by slot knows")
        name, ndim, dtypes = known
        values = tuple(_column(value, dtype, ndim) for value, dtype in zip(found, dtypes, strict=True))
        if len({column.shape for column in values}) > 1:
            raise NotRecordableError("its columns have different widths")
        self.calls.append((name, values))
        return self

    def __getitem__(self, ids: Any) -> Computed:
        return Computed("read", ids)

    def __setitem__(self, ids: Any, value: Any) -> None:
        self.record("write", ids, value)


def _column(value: Any, dtype: torch.dtype, ndim: int) -> torch.Tensor:
    """Return the column that ``value`` stands for. A copy of another type would keep the values of one step."""
    if type(value) is not OfSlots or value.dtype != dtype or value.column.ndim != ndim:
        raise NotRecordableError("a column has another type or shape than the kernel reads")
    return value.column if value.column.ndim == 2 else value.column.unsqueeze(1)


def _form(value: Any, found: list[OfSlots]) -> Any:
    """Return a comparable form of what was computed, with the columns numbered as they are ``found``."""
    if isinstance(value, Computed):
        return _form(value.form, found)
    if isinstance(value, tuple):
        return tuple(_form(item, found) for item in value)
    if isinstance(value, OfSlots):
        numbers = [number for number, column in enumerate(found) if column is value]
        if not numbers:
            found.append(value)
        return f"column {numbers[0] if numbers else len(found) - 1}"
    return value
