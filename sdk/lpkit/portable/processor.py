"""The portable base: one class for both of vLLM's runners, without batch bookkeeping in the author's code."""

from __future__ import annotations

import logging
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import torch

from lpkit import kernels, v2
from lpkit._nearest import suggest
from lpkit.columns.column import Declaration, column
from lpkit.columns.ragged import ragged
from lpkit.history.rows import Rows, SparseLogits
from lpkit.kernels import fused
from lpkit.portable.base import PortableProcessor
from lpkit.portable.by_slot import BySlot
from lpkit.portable.spelling import refuse_misspelt

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it; nothing is imported

    from lpkit.portable.params import Params
    from lpkit.sampling_params import SamplingParams

    ParamsT = TypeVar("ParamsT", default=Any)  # so that ``lpkit.Request`` works without a parameter
else:
    ParamsT = typing.TypeVar("ParamsT")

logger = logging.getLogger("lpkit")


@dataclass(slots=True)
class Request(Generic[ParamsT]):
    """A request that asks for admission; read-only.

    Attributes:
        slot: index of its column values, e.g. ``self.bias[request.slot] = 2.0``.
        params: an instance of the processor's ``Params``, or None if it declares none. ``Request[Params]`` tells type
            checkers.
        sampling_params: the engine's object; read-only.
        prompt_token_ids: the prompt on V1; None on V2, and for prompt embeddings. Read-only.
    """

    slot: int
    params: ParamsT
    sampling_params: SamplingParams
    prompt_token_ids: list[int] | None


class LogitsProcessor(PortableProcessor):
    """Base for most processors. Override exactly one of :meth:`process` and :meth:`edit`, and :meth:`admit` if needed.

    State lives in columns (:func:`lpkit.column`), indexed by slot. A column gets the parameter of its name when a
    request enters; :meth:`admit` can do more. The SDK resets a slot when its request leaves.
    Results must depend on the request's parameters and tokens alone: the engine may process a row more than once, or
    discard the token.

    Source of the life cycle: vLLM's V1 ``LogitsProcessor.update_state`` and V2 ``LogitsProcessor.add_request``.
    """

    _sparse: ClassVar[bool] = False
    _condition: ClassVar[tuple[type[LogitsProcessor], tuple[str, ...]] | None] = None
    """A class, and columns by which ``choose_`` of :mod:`lpkit.kernels.triton_texts` chooses the rows to which its step
    is applied; None: the step is applied to all rows."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_misspelt(cls, {"admit": LogitsProcessor.admit})
        dense = cls.process is not LogitsProcessor.process
        sparse = cls.edit is not LogitsProcessor.edit
        if dense and sparse:
            raise TypeError(f"{cls.__qualname__} overrides both process and edit; the engine needs one of them")
        if not dense and not sparse:
            refuse_misspelt(cls, {"process": LogitsProcessor.process, "edit": LogitsProcessor.edit})
        cls._sparse = sparse
        if cls.Params is not None and cls.admit is LogitsProcessor.admit and (dense or sparse):
            for name in cls._declared_columns:
                if name not in (fields := cls.Params.model_fields):
                    raise TypeError(
                        f"{cls.__qualname__} declares the column {name!r}, and no parameter has this name; "
                        f"{suggest(name, fields)} (or override admit, and write the column there)"
                    )

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        if type(self).process is LogitsProcessor.process and not self._sparse:
            raise TypeError(f"{type(self).__qualname__} must override process or edit")
        super().__init__(vllm_config, device_or_states, is_pin_memory)
        fields = () if self.Params is None else self.Params.model_fields
        self._of_params = {name: item for name, item in self._admission.columns.items() if name in fields}
        self._by_slot: BySlot | None = None
        modules: list[Any] = []
        if not self._sparse:
            kernels.prepare(self.device, self.vocab_size)
            modules.append(fused.prepare(self.device))
        if self._sparse or self.history != "none":
            modules.append(fused.prepare_few(self.device))
        if None not in modules:
            self._by_slot = BySlot(self, modules)
            try:
                self._by_slot.rehearse(self._v2 is not None)
            except Exception:
                logger.exception(
                    "%s: its kernel could not be prepared; each step runs its Python", type(self).__qualname__
                )
                self._by_slot = None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        params = cls.Params.parse(sampling_params.extra_args) if cls.Params is not None else None
        if params is not None and cls.admit is LogitsProcessor.admit:
            _refuse_unheld(params, cls._declared_columns)

    def admit(self, request: Request[Any]) -> bool:
        """Write a new request's columns, and decide if it uses the processor.

        Writes each parameter into the column of its name; None leaves the column's default. Override it to compute
        other values, or to decline requests: ``super().admit(request)`` does this part.

        Runs on the host, once per request, and again when it resumes after preemption. A declined request causes no
        further work. An exception is logged and declines the request.

        Args:
            request: slot, parameters and prompt.

        Returns:
            True to process the request's rows, False if it does not use the processor.

        Raises:
            TypeError, ValueError, OverflowError: a column does not take a value; the message names the column.
        """
        for name, item in self._of_params.items():
            value = getattr(request.params, name)
            if value is not None:
                try:
                    item[request.slot] = value
                except (TypeError, ValueError, OverflowError) as error:
                    raise type(error)(f"column {name}: {error}") from error
        return True

    def process(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Edit whole rows of logits. Override this or :meth:`edit`.

        Called at least once per step, but not at all while no admitted request has a row.

        Args:
            logits: float32 ``[rows.n, vocab]`` of admitted requests; may be edited in place.
            rows: the requests behind the rows, and their histories.

        Returns:
            float32 ``[rows.n, vocab]``.
        """
        raise NotImplementedError

    def edit(self, logits: SparseLogits, rows: Rows) -> None:
        """Edit a few elements per row: ``logits[ids] = f(logits[ids])``. Override this or :meth:`process`.

        Args:
            logits: read and written at token ids ``[rows.n, k]``.
            rows: the requests behind the rows, and their histories.
        """
        raise NotImplementedError

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext | None = None) -> torch.Tensor:
        if not self._binding.held:
            return logits
        step = self._by_slot
        if step is not None and step.recorded:
            located = self._binding.by_slot(logits, ctx, step.reads_texts)
            if located is None or step.edit(logits, located[0], located[1]):
                return logits
        return super().apply(logits, ctx)

    def _take_slot(self, slot: int, params: Any, sampling_params: SamplingParams, prompt_ids: list[int] | None) -> bool:
        return self.admit(Request(slot, params, sampling_params, prompt_ids))

    def _edit_rows(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        if self._sparse:
            self.edit(SparseLogits(logits, rows), rows)
            return logits
        if rows.whole:
            return self.process(logits, rows)
        # Authors never see rows of other requests: they can edit only the rows gathered here.
        edited = self.process(logits.index_select(0, rows.index), rows)
        return logits.index_copy_(0, rows.index, edited)


_ENDS = {torch.int32: (-(2**31), 2**31 - 1), torch.uint8: (0, 255)}
"""Least and greatest value of a column, by its type, for types that hold less than ``Params`` lets through."""


def _refuse_unheld(params: Params, columns: Mapping[str, Declaration[Any]]) -> None:
    """Raise ``ValueError`` for a number or a list that the column of its parameter does not hold."""
    for key, name in params.keys().items():
        item, value = columns.get(name), getattr(params, name)
        several = isinstance(value, list | tuple | set | frozenset)
        if several and isinstance(item, ragged) and len(value) > item.limit:
            raise ValueError(f"{key}: should have at most {item.limit} items, not {len(value)}")
        if isinstance(item, column | ragged) and item.dtype in _ENDS:
            low, high = _ENDS[item.dtype]
            for number in value if several else (value,):
                if isinstance(number, int | float) and not low <= number <= high:
                    raise ValueError(f"{key}: {number} does not fit in its column ({low} to {high})")
