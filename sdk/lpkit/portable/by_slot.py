"""Edits a whole batch by slot, without the author's code: for classes whose step only calls kernels with columns.

``process`` or ``edit`` is called once with stand-ins for the processor, the logits and the rows, and again when columns
move, or when the step asks if a column is used and the answer has changed. If it only calls functions of
:data:`lpkit.kernels.recording.BY_SLOT` with columns, computes what one of :mod:`lpkit.portable.rules` does, or computes
elementwise (:mod:`lpkit.kernels.elementwise`), each step repeats these calls, and the kernels find each row's values by
its slot.
"""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise, product
from operator import is_
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from lpkit import kernels
from lpkit.columns.column import Column
from lpkit.columns.token_set import TokenSetColumn
from lpkit.history.phrases import PhrasesColumn
from lpkit.kernels.elementwise import OF_COLUMNS, NotRecordableError
from lpkit.kernels.fused import shapes
from lpkit.kernels.launching import LaunchPlan, place, recorded
from lpkit.kernels.recording import (
    OWN_PROCESS,
    Computed,
    Derived,
    Entries,
    OfSlots,
    Recorder,
    Shared,
    SlotHistories,
    StandInRows,
)
from lpkit.portable.rules import rules

logger = logging.getLogger("lpkit")

_MODULES = frozenset({"lpkit", "lpkit.kernels", "lpkit.rng", "lpkit.sequences", "math", "torch"})
_OF_TORCH = OF_COLUMNS.keys() | {"abs", "amax", "clamp", "inf", "maximum", "minimum", "where"}
_BUILTINS = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "range", "tuple", "zip"})
# Read from the code, since a call with stand-ins takes one path of it, and the source may not be there. What is stored
# in an item is a local, or a stand-in, which refuses it or records it.
_EFFECTS = ("STORE_ATTR", "STORE_GLOBAL", "DELETE_", "IMPORT_")
"""Instructions by which a step could depend on earlier steps."""

CHOICE = "choose_"
"""Function that returns the slots of the rows to edit, for a step with a condition."""

MOST_PLANS = 64
"""Most plans that are kept: one for each number of rows, and what else a kernel is compiled for."""

MOST_BYTES = 2**27
"""Most memory that the plans of a processor keep, columns included; the oldest plans go."""


class BySlot:
    """Repeats the calls of a processor's ``process``, recorded for the present columns.

    Args:
        processor: has the step and the columns.
        modules: the kernels.

    Attributes:
        reason: why the step cannot be repeated with the present columns; empty if it can.
        reads_texts: True if the recorded step reads histories.
    """

    def __init__(self, processor: Any, modules: Sequence[ModuleType]) -> None:
        self._processor = processor
        self._owner: Any = type(processor)
        self._admission = processor._admission
        self._kernels = {name: function for module in modules for name, function in vars(module).items()}
        self.reason = ""
        self._version = self._layout = -1
        self._calls: list[tuple[str, tuple[Any, ...]]] = []
        self._derived: list[Derived] = []
        self._pairs: int | None = None
        self.reads_texts = self._all_used = False
        self._asked: list[tuple[Any, str]] = []  # objects and attributes: use of columns, cached tensors
        self._answers: list[Any] = []  # their values when the step was recorded
        self._plans: dict[Any, LaunchPlan] = {}
        self._last_key: tuple[Any, ...] = ()
        self._last_plan: LaunchPlan | None = None
        self._place = place()
        # Of the last step: what it was given; its tensors but the logits, most rows, and numbers that plans depend on.
        self._given: tuple[Any, ...] = (None, None)
        self._others: tuple[torch.Tensor, ...] = ()
        self._room = 0
        self._sizes = (0, 0)

    def rehearse(self, on_v2: bool) -> None:
        """Run the step's kernels on rows of nobody, which compiles them: no request waits. First as if each column was
        used."""
        active, examples_of = self._admission.active.all, self._kernels.get("examples")
        slots = torch.full((3,), active.shape[0] - 1, device=active.device)
        examples = (None,) if examples_of is None else examples_of(active.device, on_v2)
        for self._all_used in (True, False):
            self._version = self._layout = -1
            if not self.recorded or (self.reads_texts and examples_of is None):
                continue
            with torch.inference_mode():
                for logits, texts in product(shapes(active.device, self._processor.vocab_size), examples):
                    self._launch(logits, slots, texts)

    @property
    def recorded(self) -> bool:
        """True if the step can be repeated with the present columns."""
        arena = self._admission.arena
        if arena.version != self._version:
            self._version = arena.version
            if arena.layout != self._layout or not all(map(is_, self._ask(), self._answers)):
                self._layout = arena.layout
                self._calls = self._record()
                self._answers = self._ask()
                self._forget()  # plans read columns where they were
            else:
                for derived in self._derived:
                    derived.refresh()
        return bool(self._calls)

    def _ask(self) -> list[Any]:
        """Return what the step depends on, besides where columns are."""
        return [getattr(of, name) for of, name in self._asked]

    def _forget(self) -> None:
        """Drop all plans: memory that they read has moved."""
        self._plans.clear()
        self._last_key, self._last_plan, self._given = (), None, (None, None)

    def edit(self, logits: torch.Tensor, slots: torch.Tensor, texts: tuple[Any, ...] | None = None) -> bool:
        """Edit a batch; False if the logits or the histories do not suit the kernels.

        Args:
            logits: float32 ``[rows, vocab]``, edited in place.
            slots: int64, the slot of each row, and perhaps of rows behind the batch.
            texts: the fields of the rows' :class:`SlotHistories`, if the step reads them.
        """
        given = self._given
        if slots is not given[0] or texts is not given[1]:
            self._take(slots, texts)
        shape, address = logits.shape, logits.data_ptr()
        if logits.requires_grad or self._room < shape[0]:
            return False
        key = shape, logits.is_contiguous() or logits.stride(), logits.dtype, address & 15, self._place(), self._sizes
        if key != self._last_key:  # comparing is faster than hashing
            self._last_key, self._last_plan = key, self._plans.get(key)
        plan = self._last_plan
        if plan is not None:
            plan.run(logits, self._others, address)
            return True
        if not self._kernels["suits"](logits):
            return False
        try:
            with recorded() as launches:
                self._launch(logits, slots, texts)
        except Exception as error:  # of a compiler: the first launch that writes is not reached
            logger.exception("%s: its kernel could not be launched", self._owner.__qualname__)
            self._calls, self.reason = [], f"its kernel could not be launched ({error})"
            return False
        plan = LaunchPlan(launches, (logits, *self._others))
        while self._plans and (
            len(self._plans) >= MOST_PLANS or plan.bytes + sum(item.bytes for item in self._plans.values()) > MOST_BYTES
        ):
            del self._plans[next(iter(self._plans))]
        self._plans[key] = self._last_plan = plan
        return True

    def _take(self, slots: torch.Tensor, texts: tuple[Any, ...] | None) -> None:
        """Take slots and histories that the last step did not have."""
        before, self._given, self._room = self._others, (slots, texts), slots.numel()
        if texts is None:
            self._others, self._sizes = (slots,), (0, 0)
        else:
            held, prompts, last, drafts, committed, width, outputs, kind = texts
            if len(before) > 1 and held is not before[1] and held.stride() != before[1].stride():
                self._forget()
            self._others = (slots, held, prompts, last, drafts, committed) if kind else (slots, held, prompts, last)
            self._sizes = width, kind
            if self._pairs is not None and width * outputs > self._pairs:
                self._room = 0

    def _launch(self, logits: torch.Tensor, slots: torch.Tensor, texts: tuple[Any, ...] | None) -> None:
        active = self._admission.active.all
        entries = Entries(slots, active, None if texts is None else SlotHistories(*texts))
        for name, columns in self._calls:
            made = self._kernels[name](logits, *columns, entries=entries)
            if name == CHOICE:
                entries = entries._replace(slots=made)

    def _record(self) -> list[tuple[str, tuple[Any, ...]]]:
        recorder, sparse, self._derived = Recorder(), self._owner._sparse, []
        rule, condition = self._owner._condition or (self._owner, ())
        step = rule.edit if sparse else rule.process
        rows = StandInRows(self._owner.history, self._admission.temperature.all)
        self._asked = []
        try:
            _check(step)
            result = step(_Processor(self._processor, self._asked, self._all_used), recorder, rows)
            if isinstance(result, Computed) and not sparse:
                result = recorder.record("return", result)
            if not recorder.made or result is not (None if sparse else recorder):
                raise NotRecordableError("it does not return the logits of a kernel")
            calls, slot_rule = recorder.calls(rules(), sparse)
            if calls[0][0] == OWN_PROCESS and rule.history != "none":
                raise NotRecordableError("it declares a history that it does not read")
        except Exception as error:  # anything that stand-ins cannot do: the step takes the general way
            refused = isinstance(error, NotRecordableError)
            self.reason = str(error) if refused else f"it does what cannot be recorded ({error})"
            return []
        self._derived = recorder.derived
        self.reason, self._pairs = "", None if slot_rule is None or rule.history == "none" else slot_rule.pairs
        self.reads_texts = self._pairs is not None or bool(condition)
        if condition:
            chosen_by = (self._admission.columns[name].all for name in condition)
            calls.insert(0, (CHOICE, tuple(item if item.ndim == 2 else item.unsqueeze(1) for item in chosen_by)))
        return calls


def why_not_recorded(processor: Any) -> str | None:
    """Return why a GPU would run the Python of a processor in each step; empty if it would not, or for documents, whose
    steps differ. None for a class without :class:`lpkit.LogitsProcessor`."""
    if hasattr(processor, "_lanes"):
        return ""
    if not hasattr(processor, "_by_slot"):
        return None
    step = BySlot(processor, ())
    return "" if step.recorded else step.reason


class _Processor:
    """Stands for the processor: it has columns, methods and cached tensors, and cannot be written to. What else
    than columns' values is asked for goes into a list."""

    __slots__ = ("_all_used", "_asked", "_processor")

    def __init__(self, processor: Any, asked: list[tuple[Any, str]], all_used: bool) -> None:
        self._processor = processor
        self._asked = asked
        self._all_used = all_used

    def __getattr__(self, name: str) -> Any:
        columns = self._processor._admission.columns
        if name in columns:
            return _Column(columns[name], self._asked, self._all_used)
        method = inspect.getattr_static(type(self._processor), name, None)
        if isinstance(method, cached_property) and isinstance(made := getattr(self._processor, name), torch.Tensor):
            self._asked.append((self._processor, name))
            return Shared(made)
        if method is None:
            raise NotRecordableError(f"it reads {name}, which is no column")
        _check(method)
        return MethodType(method, self)


class _Column:
    """Stands for a column."""

    def __init__(self, column: Column, asked: list[tuple[Any, str]], all_used: bool) -> None:
        self._column = column
        self._asked = asked
        self._all_used = all_used

    @property
    def used(self) -> bool:
        self._asked.append((self._column, "used"))
        return self._column.used or self._all_used

    def __getitem__(self, rows: StandInRows) -> OfSlots:
        if isinstance(self._column, TokenSetColumn | PhrasesColumn):
            raise NotRecordableError("it reads a set as a mask, or phrases")
        return OfSlots(self._column.all)

    def at(self, rows: StandInRows, positions: Any) -> Any:
        return self[rows].at(positions)

    def contains(self, rows: StandInRows, ids: Any) -> Any:
        assert isinstance(self._column, TokenSetColumn)
        return OfSlots(self._column.all).contains(OfSlots(self._column.set_of), ids)

    def keep_only_(self, logits: torch.Tensor, rows: StandInRows) -> torch.Tensor:
        ids = self._column.short_lists if isinstance(self._column, TokenSetColumn) else None
        if ids is None:
            raise NotRecordableError("it keeps a long set")
        return kernels.keep_ids_(logits, OfSlots(ids))  # type: ignore[arg-type]


@cache
def _check(function: Any) -> None:
    """Refuse a function that could do anything but compute its result from its arguments.

    Raises:
        NotRecordableError: it reads or writes something else.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        raise NotRecordableError("it is no plain function, or uses super() or names around it")
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if not all(isinstance(value, bool | int | float | str | None) for value in defaults):
        raise NotRecordableError("it has a default that it could change")
    for code in _codes(function.__code__):
        for instruction, following in pairwise(dis.get_instructions(code)):
            name = instruction.argval
            if instruction.opname.startswith(_EFFECTS):
                raise NotRecordableError(f"it could have an effect ({instruction.opname})")
            if instruction.opname in ("PUSH_EXC_INFO", "SETUP_FINALLY"):  # it could catch the stand-ins' refusal
                raise NotRecordableError("it handles exceptions")
            binary = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")  # from Python 3.11 on
            in_place = binary or instruction.opname.startswith("INPLACE_")
            if in_place and following.opname.startswith("STORE_"):  # what is no item may have another name
                raise NotRecordableError("it changes a variable in place")
            if instruction.opname == "LOAD_GLOBAL":
                if function.__globals__.get(name) is torch and following.argval not in _OF_TORCH:
                    raise NotRecordableError(f"it uses torch.{following.argval}")
                if not _constant(function, name):
                    raise NotRecordableError(f"it uses {name}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constant(function: FunctionType, name: str) -> bool:
    if name not in function.__globals__:
        return name in _BUILTINS
    value = function.__globals__[name]
    return value.__name__ in _MODULES if isinstance(value, ModuleType) else isinstance(value, bool | int | float | str)
