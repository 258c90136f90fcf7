"""Request-level callables on both runners: easy to write, at the cost of a Python call per row and step."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from lpkit.history.on_host import HostHistories
from lpkit.kernels import fused
from lpkit.portable.base import PortableProcessor
from lpkit.portable.params import Params as BaseParams
from lpkit.portable.spelling import refuse_misspelt

if TYPE_CHECKING:
    from lpkit import v2
    from lpkit.history.rows import HistoryUse, Rows
    from lpkit.sampling_params import SamplingParams
    from lpkit.v1 import RequestLogitsProcessor

Call = Callable[[list[int], list[int], torch.Tensor], torch.Tensor]


class AdapterLogitsProcessor(PortableProcessor):
    """Runs ``(output_ids, logits)`` or ``(prompt_ids, output_ids, logits)`` callables, one per request.

    The callable gets lists of token ids (never mutate them) and one row of float32 logits ``[vocab]``; it edits
    the row in place or returns a new one. It must be a function of its arguments: the engine may call it twice
    for one position, or for a position whose token it discards.

    The number of *positional* parameters decides the form (vLLM's own adapter counts keyword-only parameters as well).
    For a ``functools.partial``, the unbound parameters count. A callable with ``*args`` is refused.

    Declare ``history = "length"`` if the callable uses only ``len(output_ids)``: then placeholders of V1's async
    scheduling do no harm.
    """

    history: ClassVar[HistoryUse] = "tokens"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hook = AdapterLogitsProcessor.new_req_logits_processor
        refuse_misspelt(cls, {hook.__name__: hook})

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        self._calls: dict[int, Call] = {}
        super().__init__(vllm_config, device_or_states, is_pin_memory)
        if self._admission.resolver is not None:
            self.params = self._admission.read  # type: ignore[method-assign]  # only an instance has a tokenizer
        # On V2 the tokens are on the device: the host keeps lists of them and fetches new tokens.
        self._host: HostHistories | None = None
        if self._v2 is not None:
            speculative = getattr(vllm_config, "speculative_config", None) is not None
            self._host = HostHistories(device_or_states, self.history, speculative)

    @abstractmethod
    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Make a new callable for a request. Override it.

        Args:
            params: of the request; ``self.params`` reads this processor's parameters from it.

        Returns:
            The callable, or None if the request does not use the processor.
        """

    @classmethod
    def params(cls, sampling_params: SamplingParams) -> Any:
        """Read this processor's parameters. On an instance, parameters given as words become token ids.

        Args:
            sampling_params: of the request.

        Returns:
            An instance of ``Params``; None if the request gives none of them, or the class declares none.

        Raises:
            ValueError: a parameter is wrong; the message names it, its value and the broken rule.
        """
        return cls.Params.parse(sampling_params.extra_args) if cls.Params is not None else None

    def _take_slot(
        self, slot: int, params: BaseParams | None, sampling_params: SamplingParams, prompt_ids: list[int] | None
    ) -> bool:
        call = self.new_req_logits_processor(sampling_params)
        if call is None:
            self._calls.pop(slot, None)
            return False
        self._calls[slot] = three_arguments(call)
        return True

    def _retire_slot(self, slot: int) -> None:
        self._calls.pop(slot, None)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        admitted = super().add_request(req_idx, sampling_params)
        if self._host is not None:
            if admitted:
                self._host.enter(req_idx, self._calls[req_idx])
            else:
                self._host.decline(req_idx)
        return admitted

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext | None = None) -> torch.Tensor:
        if self._host is None or ctx is None:
            return super().apply(logits, ctx)
        rows = zip(*self._host.rows(ctx), strict=True)
        return _edited(logits, ((index, row.params, row.prompt_ids, row.output_ids) for index, row in rows))

    def _edit_rows(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        calls, entries = self._calls, self._binding.entries(rows)  # the host knows the rows: nothing waits
        return _edited(logits, ((row, calls[it.slot], it.prompt_ids or [], it.output_ids) for row, it in entries))


def _edited(logits: torch.Tensor, rows: Iterable[tuple[int, Call, list[int], list[int]]]) -> torch.Tensor:
    """Edit rows of ``logits``; each row comes as its number, its callable and the callable's token ids."""
    if fused.differentiated(logits):
        # Under autograd each edit of a view copies all rows.
        parts = [row.clone() for row in logits.unbind()]
        for index, call, prompt_ids, output_ids in rows:
            parts[index] = call(prompt_ids, output_ids, parts[index])
        return torch.stack(parts)
    for index, call, prompt_ids, output_ids in rows:
        view = logits[index]
        edited = call(prompt_ids, output_ids, view)
        if edited is not view:
            logits[index] = edited
    return logits


def three_arguments(call: RequestLogitsProcessor) -> Call:
    """Wrap ``call`` as ``(prompt_ids, output_ids, logits)``.

    Raises:
        TypeError: it takes neither two nor three positional arguments.
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
    """Count the positional arguments that ``call`` takes.

    Raises:
        TypeError: the count is unknown, or a keyword-only argument would be missing.
    """
    kinds = inspect.Parameter
    try:
        parameters = inspect.signature(call).parameters.values()
    except ValueError:
        raise TypeError(f"cannot tell what {_name(call)} takes: Python finds no signature") from None
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
