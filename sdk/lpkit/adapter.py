"""Request-level callables on both runners: the easy way in, at a Python call per row and step."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from lpkit.base import PortableProcessor
from lpkit.params import Params as BaseParams

if TYPE_CHECKING:
    from lpkit.rows import Rows
    from lpkit.sampling_params import SamplingParams
    from lpkit.v1 import RequestLogitsProcessor

Call = Callable[[list[int], list[int], torch.Tensor], torch.Tensor]


class AdapterLogitsProcessor(PortableProcessor):
    """Runs ``(output_ids, logits)`` or ``(prompt_ids, output_ids, logits)`` callables, one per request.

    The callable gets lists of token ids (never mutate them) and one row of float32 logits ``[vocab]``; it edits
    the row in place or returns a new one. It must be a function of its arguments: the engine may call it twice
    for one position, or for a position whose token it throws away.

    Which form a callable has is decided by its *positional* parameters (vLLM's own adapter counts keyword-only
    ones too). A bound ``functools.partial`` counts what is left. A callable that takes ``*args`` is refused.

    Declare ``history = "length"`` if only ``len(output_ids)`` is used: then placeholders of V1's async
    scheduling do no harm.
    """

    history: ClassVar[str] = "tokens"

    def __init__(self, vllm_config: Any, place: Any, is_pin_memory: bool | None = None) -> None:
        self._calls: dict[int, Call] = {}
        super().__init__(vllm_config, place, is_pin_memory)

    @abstractmethod
    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """A fresh callable for the request, or None if it is not concerned."""

    @classmethod
    def params(cls, sampling_params: SamplingParams) -> Any:
        """The request's validated ``Params``, or None if it uses none of them."""
        return cls.Params.parse(sampling_params.extra_args) if cls.Params is not None else None

    def take(
        self, slot: int, params: BaseParams | None, sampling_params: SamplingParams, prompt_ids: list[int] | None
    ) -> bool:
        found = self.new_req_logits_processor(sampling_params)
        if found is None:
            self._calls.pop(slot, None)
            return False
        self._calls[slot] = three_arguments(found)
        return True

    def retire(self, slot: int) -> None:
        self._calls.pop(slot, None)

    def run(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        # A row that is listed twice must not be edited in place twice.
        if self._v1 is not None:  # the host knows the rows: nothing waits for the device
            histories = {
                row: (entry.slot, entry.prompt_ids or [], entry.output_ids) for row, entry in self._v1.entries(rows)
            }
        else:
            histories = dict(zip(rows.index.tolist(), self._histories(rows), strict=True))
        for row, (slot, prompt_ids, output_ids) in histories.items():
            view = logits[row]
            edited = self._calls[slot](prompt_ids, output_ids, view)
            if edited is not view:
                logits[row] = edited
        return logits

    def _histories(self, rows: Rows) -> list[tuple[int, list[int], list[int]]]:
        """V2: (slot, prompt, output) per row."""
        slots = rows.slots.tolist()
        if self.history == "none":
            return [(slot, [], []) for slot in slots]
        # One copy per step for all rows.
        if self.history == "length":
            lengths = torch.stack((rows.prompt_len, rows.output_len)).tolist()
            return [(slot, [-1] * p, [-1] * o) for slot, p, o in zip(slots, *lengths, strict=True)]
        packed = torch.cat((rows.prompt_len[:, None], rows.total_len[:, None], rows.tokens), 1).tolist()
        return [
            (slot, ids[:prompt], ids[prompt:total]) for slot, (prompt, total, *ids) in zip(slots, packed, strict=True)
        ]


def three_arguments(call: RequestLogitsProcessor) -> Call:
    """``call`` as ``(prompt_ids, output_ids, logits)``.

    Raises:
        TypeError: if it takes neither two nor three positional arguments.
    """
    positional = positional_arguments(call)
    if positional == 3:
        return call
    if positional == 2:
        return lambda prompt_ids, output_ids, logits: call(output_ids, logits)
    raise TypeError(
        "a request-level processor takes (output_ids, logits) or (prompt_ids, output_ids, logits), "
        f"but {_name(call)} takes {positional} positional arguments"
    )


def positional_arguments(call: Callable[..., Any]) -> int:
    """How many positional arguments ``call`` takes.

    Raises:
        TypeError: if that cannot be told, or a keyword-only argument would be missing.
    """
    kinds = inspect.Parameter
    try:
        parameters = inspect.signature(call).parameters.values()
    except ValueError:
        raise TypeError(f"cannot tell what {_name(call)} takes: Python knows no signature of it") from None
    for parameter in parameters:
        if parameter.kind is kinds.VAR_POSITIONAL:
            raise TypeError(f"cannot tell what {_name(call)} takes: it has *{parameter.name}")
        if parameter.kind is kinds.KEYWORD_ONLY and parameter.default is kinds.empty:
            raise TypeError(
                f"nothing gives {_name(call)} its keyword {parameter.name!r}; bind it with functools.partial"
            )
    return sum(parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) for parameter in parameters)


def _name(call: Callable[..., Any]) -> str:
    return str(getattr(call, "__qualname__", type(call).__qualname__))
