"""Records what a step computes from columns and histories, to repeat it by slot in each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from lpkit.kernels.elementwise import OF_COLUMNS, OF_LISTS, OPERATIONS, NotRecordableError, own_edit, own_process

BY_SLOT = {
    "dynamic_temperature_": torch.float32,
    "keep_ids_": torch.int64,
    "mask_deviations_below_top_": torch.float64,
    "mask_far_below_top_": torch.float32,
    "mask_unlikely_": torch.float32,
}
"""Functions whose kernels read per-row values by slot, and the type of these values."""

MOST_COMPARED = 4096
"""Longest history whose ids are found by comparing each with each in one kernel launch; longer histories are sorted.

At this length a row takes 17 million comparisons. From an H100's integer throughput, 256 such rows take about 0.6 ms.
This is an estimate, not a measurement."""

HASHES = 2**16
"""Number of different hashes that :func:`lpkit.sequences.fresh_context` returns."""


class SlotRule(NamedTuple):
    """A function of :mod:`lpkit.kernels.triton_texts` that does all of a step.

    Attributes:
        function: its name.
        reads: for each column that the step reads, its number among the function's columns.
        pairs: most pairs of a token and an output token in a row.
    """

    function: str
    reads: tuple[int, ...]
    pairs: int = 2**63


class SlotHistories(NamedTuple):
    """The rows' histories, in the engine's or the SDK's memory. The tensors are int32 or int64.

    Attributes:
        held: ``[slots, longest]``.
        prompts: ``[slots]``, lengths of the prompts.
        last: ``[rows]``, position of the last visible token.
        drafts: ``[rows]``; for ``kind`` 1, each row's input: the inputs of a text's last rows are its other tokens;
            for ``kind`` 2, the last token of each row, which the kernels also store in ``held``.
        committed: ``[slots]``, number of tokens of each text in ``held``, for ``kind`` 1.
        width: at least as large as the longest text.
        outputs: at least as large as the longest output.
        kind: 0: all tokens are in ``held``, and ``drafts`` and ``committed`` are ``last``; else some are in ``drafts``;
            -1: no kernel reads a text.
    """

    held: torch.Tensor
    prompts: torch.Tensor
    last: torch.Tensor
    drafts: torch.Tensor
    committed: torch.Tensor
    width: int
    outputs: int
    kind: int = 0


class Entries(NamedTuple):
    """The entry of each row in tensors of per-row values: its slot in columns, or its number.

    Attributes:
        slots: int64 or int32 ``[rows]``, contiguous.
        active: bool ``[entries]`` or ``[entries, 1]``, True for entries whose rows are edited.
        texts: the rows' histories, for functions that read them.
    """

    slots: torch.Tensor
    active: torch.Tensor
    texts: Any = None


OWN_EDIT, OWN_PROCESS = "edit_ids_", "process_rows_"
"""Functions that do what an author's own ``edit`` or ``process`` does, by its text."""

MOST_OPERATIONS = 500  # of a step: longer ones take the general way

_METHODS = OF_COLUMNS.keys() | {
    "abs",
    "at",
    "contains",
    "gather",
    "masked_fill",
    "maximum",
    "minimum",
    "unsqueeze",
    "where",
}

_IN_PLACE = frozenset({"add_", "div_", "masked_fill_", "mul_", "sub_"})


def _operator(name: str, *more: Any) -> Any:
    return lambda *given: Computed(name, *given, *more)


def _reflected(name: str) -> Any:
    return lambda left, right: Computed(name, right, left)


class StandIn:
    """Stands for a tensor. It has no values: a step that decides anything by them cannot be recorded."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def kernels(self) -> Kernels:
        return Kernels()

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            method = callable(getattr(torch.Tensor, name, None))
            raise NotRecordableError(f"it calls `{name}` on a tensor" if method else f"it reads `{name}` of a tensor")
        return partial(Computed, name, self)

    def _refuse(self, *_: Any) -> Any:
        raise NotRecordableError("it looks at the values of a tensor")

    __bool__ = __len__ = __iter__ = _refuse
    __abs__, __neg__ = _operator("abs"), _operator("mul", -1)
    __add__, __sub__, __mul__, __truediv__ = map(_operator, ("add", "sub", "mul", "div"))
    __radd__, __rsub__, __rmul__ = map(_reflected, ("add", "sub", "mul"))
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("lt", "le", "gt", "ge"))
    __eq__, __ne__, __and__, __or__ = map(_operator, ("eq", "ne", "and_", "or_"))
    __pow__ = _operator("pow")

    def __getitem__(self, part: Any) -> Any:
        if part == (slice(None), None):
            return self.unsqueeze(1)
        if part not in ((slice(None), slice(1, None)), (slice(None), slice(None, -1))):
            raise NotRecordableError("it reads a part of a tensor")
        return Computed("later" if part[1].start else "earlier", self)

    def clamp(self, min: float | None = None, max: float | None = None) -> Any:
        least = self if min is None else Computed("at_least", self, min)
        return least if max is None else Computed("at_most", least, max)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        """Record a function of torch as the method of its name."""
        first, *others = given
        if function is torch.where:
            value, other = others
            fills = isinstance(other, Recorder) and not isinstance(value, StandIn)
            return Computed("masked_fill", other, first, value) if fills else Computed("where", value, first, other)
        return getattr(first, function.__name__)(*others, **(options or {}))


class OfSlots(StandIn):
    """Stands for the values of some rows: the entries of ``column``, ``[slots + 1, ...]``, at the rows' slots."""

    kind = "a column"

    def __init__(self, column: torch.Tensor, unsqueezed: bool = False) -> None:
        self.column = column if column.ndim == 2 else column.unsqueeze(1)
        self.dtype = column.dtype
        self.dims = column.ndim, unsqueezed

    def unsqueeze(self, dim: int) -> OfSlots:
        if dim not in (1, -1) or self.dims != (1, False):
            raise NotRecordableError("it reshapes a column")
        return type(self)(self.column[:, 0], unsqueezed=True)


class Shared(OfSlots):
    """Stands for a tensor that the processor made once, ``column``: the same for all rows."""

    kind = "a tensor"


class Computed(StandIn):
    """Stands for what an operation results in.

    Attributes:
        form: the operation's name, and what it is applied to.
    """

    def __init__(self, *form: Any) -> None:
        self.form = form
        self.operations: int = 1 + sum(item.operations for item in form if isinstance(item, Computed))
        if self.operations > MOST_OPERATIONS:
            raise NotRecordableError(f"it computes more than {MOST_OPERATIONS} operations")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.form[0] == "read" else torch.int64


class Kernels:
    """Stands for the kernels that compute a :class:`Computed`, or edit the logits of a :class:`Recorder`."""

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            first, *others = given
            return first.record(name, *others) if isinstance(first, Recorder) else Computed(name, *given)

        return call

    def largest_per_id(self, *given: Any) -> tuple[Computed, Computed]:
        return Computed("largest ids", *given), Computed("largest values", *given)


class StandInRows:
    """Stands for the rows of a batch.

    Args:
        history: how much of it the step may read: "none", "length" or "tokens".
        temperature: column ``[slots + 1]``.
    """

    def __init__(self, history: str, temperature: torch.Tensor) -> None:
        self.temperature = OfSlots(temperature, unsqueezed=True)
        if history == "tokens":
            self.tokens, self.is_output = Computed("tokens"), Computed("is_output")
        if history != "none":
            self.prompt_len, self.total_len = Computed("prompt_len"), Computed("total_len")
            self.output_len = self.total_len - self.prompt_len

    def __getattr__(self, name: str) -> Any:
        raise NotRecordableError(f"it reads `rows.{name}`")


class Largest(NamedTuple):
    """Stands for what ``max`` returns."""

    values: Computed
    indices: Computed


class Recorder(StandIn):
    """Stands for the logits of a batch: all of them for ``process``, or those at some ids for ``edit``.

    Attributes:
        made: name and arguments of each call that edits, in order.
        derived: columns that are computed from other columns, each behind the columns that it needs.
    """

    dtype = torch.float32

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.derived: list[Derived] = []

    def record(self, *call: Any) -> Recorder:
        self.made.append(call)
        return self

    def scatter_add_(self, *given: Any) -> Recorder:
        return self.record("scatter_add_", *given)

    def __getattr__(self, name: str) -> Any:
        return partial(self._change, name[:-1]) if name in _IN_PLACE else super().__getattr__(name)

    def _change(self, name: str, *given: Any, **options: Any) -> Recorder:
        if options:
            raise NotRecordableError(f"it gives options to {name}_")
        return self.record("return", Computed(name, self, *given))

    def amax(self, dim: int | tuple[int, ...], keepdim: bool = False) -> Computed:
        if dim not in (1, -1, (1,), (-1,)):
            raise NotRecordableError("it compares logits of different rows")
        return Computed("amax", keepdim)

    def max(self, dim: int, keepdim: bool = False) -> Largest:
        return Largest(self.amax(dim, keepdim), Computed("argmax", keepdim))

    def __getitem__(self, ids: Any) -> Computed:
        return Computed("read", len(self.made), ids)  # a later read may see what was written before it

    def __setitem__(self, ids: Any, value: Any) -> None:
        self.record("write", ids, value)

    def calls(
        self, rules: Mapping[Any, SlotRule], sparse: bool
    ) -> tuple[list[tuple[str, tuple[Any, ...]]], SlotRule | None]:
        """Return names and columns of the functions that do the same by slot, and the rule if one function does all.
        Before the columns of an author's own step comes its text.

        Raises:
            NotRecordableError: no functions do.
        """
        form, columns_read = form_of(tuple(self.made))
        rule = rules.get(form)
        if rule is not None:
            columns: dict[int, torch.Tensor] = {}
            for number, column in zip(rule.reads, columns_read, strict=True):
                if memory_of(columns.setdefault(number, column)) != memory_of(column):
                    raise NotRecordableError("it reads different columns in place of one")
            return [(rule.function, tuple(columns[number] for number in sorted(columns)))], rule
        if sparse and all(name == "write" for name, *_ in self.made):
            form, columns_read = form_of(self._hoisted(tuple(self.made), {}), numbered=True)
            return [(OWN_EDIT, (own_edit(form, columns_read), *columns_read))], SlotRule(OWN_EDIT, ())
        if not sparse and [name for name, *_ in self.made] == ["return"]:
            form, columns_read = form_of(self._hoisted(self.made[0][1], {}), numbered=True)
            return [(OWN_PROCESS, (own_process(form, columns_read), *columns_read))], None
        if len(self.made) > 1 and any(name == "return" for name, *_ in self.made):
            raise NotRecordableError("it edits the logits more than once")
        calls = []
        for name, *values in self._hoisted(tuple(self.made), {}, everything=True):
            recordable = name in BY_SLOT and {*map(type, values)} <= {OfSlots, Derived, type(None)}
            if not recordable or (name == "keep_ids_" and any(item is not None for item in values[1:])):
                raise NotRecordableError(f"it calls {name} in a way that no kernel by slot knows")
            calls.append((name, tuple(_column(item, BY_SLOT[name]) for item in values)))
        return calls, None

    def _hoisted(self, value: Any, done: dict[int, Any], everything: bool = False) -> Any:
        """Return ``value`` with a column in place of what only torch computes of columns, or of ``everything`` that is
        computed of columns."""
        if isinstance(value, tuple):
            return tuple(self._hoisted(item, done, everything) for item in value)
        if not isinstance(value, Computed):
            return value
        if id(value) not in done:
            name, whole = value.form[0], everything or value.form[0] in OF_COLUMNS
            parts = [self._hoisted(item, done, whole) for item in value.form[1:]]
            columns = [item for item in parts if isinstance(item, StandIn)]
            wanted = everything or any(type(item) is Derived for item in columns)
            wanted = name in OF_COLUMNS or (wanted and name in OPERATIONS and name not in OF_LISTS)
            if wanted and all(type(item) in (OfSlots, Derived) and item.dims[0] == 1 for item in columns):
                self.derived.append(Derived(name, parts))
                done[id(value)] = self.derived[-1]
            else:
                done[id(value)] = Computed(name, *parts)
        return done[id(value)]


class Derived(OfSlots):
    """Stands for what an operation on columns results in. It is computed when requests come, and not in each step.

    Args:
        name: of the operation.
        parts: stand-ins for columns of one value per slot, and numbers.
    """

    def __init__(self, name: str, parts: Sequence[Any]) -> None:
        self._operation = OF_COLUMNS[name] if name in OF_COLUMNS else OPERATIONS[name][0]
        self._parts = [_values(item) if isinstance(item, OfSlots) else item for item in parts]
        with torch.inference_mode():
            self._made = self._operation(*self._parts).clone()
        if self._made.shape not in ((len(self._made),), (len(self._made), 1)):
            raise NotRecordableError("it combines rows with each other")
        super().__init__(self._made.flatten(), unsqueezed=self._made.ndim == 2)

    def refresh(self) -> None:
        """Compute the present values, in the same memory."""
        with torch.inference_mode():
            self._made.copy_(self._operation(*self._parts))


def _values(column: OfSlots) -> torch.Tensor:
    """Return the values of a stand-in for a column of one value per slot, in its shape."""
    return column.column if column.dims[1] else column.column[:, 0]


def _column(value: OfSlots | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Return the column that ``value`` stands for. A copy of another type would keep the values of one step."""
    if value is None:
        return None
    if value.dtype != dtype or value.dims == (1, False):
        raise NotRecordableError("a column has another type or shape than the kernel reads")
    return value.column


def memory_of(column: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that identifies a column while it exists."""
    return column.untyped_storage()._cdata, column.storage_offset(), column.shape, column.stride()


def form_of(value: Any, numbered: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """Return a comparable form of what was computed, and its columns in order, as often as it reads them; ``numbered``:
    once, with their numbers in the form."""
    columns: list[torch.Tensor] = []
    numbers: dict[tuple[Any, ...], int] = {}

    def form(value: Any) -> Any:
        if isinstance(value, Computed):
            return form(value.form)
        if isinstance(value, Recorder):
            return ("logits",)
        if isinstance(value, tuple):
            return tuple(map(form, value))
        if isinstance(value, OfSlots):
            number = numbers.setdefault(memory_of(value.column), len(columns)) if numbered else len(columns)
            if number == len(columns):
                columns.append(value.column)
            leaf = value.kind, value.dtype, value.dims
            return (*leaf, number) if numbered else leaf
        return value

    return form(value), columns
