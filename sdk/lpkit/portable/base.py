"""Common part of the portable base classes: both constructors, both life cycles, admission, and the choice of rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from lpkit import v1, v2
from lpkit.columns.column import Declaration
from lpkit.history.rows import HISTORY_USES, HistoryUse
from lpkit.portable.admission import Admission
from lpkit.portable.on_v1 import V1Binding
from lpkit.portable.on_v2 import V2Binding
from lpkit.portable.params import Params as BaseParams
from lpkit.portable.spelling import one_of, refuse_misspelt
from lpkit.sampling_params import SamplingParams

if TYPE_CHECKING:
    from lpkit.history.rows import Rows

Stage = Literal["logits", "sampling"]

# Hooks that vLLM has announced for its own base classes: a method of this name would change meaning later.
RESERVED = frozenset({"needs_output_token_ids", "supports_spec_decode", "apply_with_spec_decode"})

_DECLARATIONS = {"stage": "", "history": "", "Params": BaseParams}


class PortableProcessor(v1.LogitsProcessor, v2.LogitsProcessor):
    """A processor that vLLM's V1 and V2 runners both accept. Use its subclasses."""

    stage: ClassVar[Stage] = "logits"
    """``"logits"`` edits the model's logits, greedy requests included. ``"sampling"`` edits the logits that the engine
    samples from, and never sees greedy requests."""
    history: ClassVar[HistoryUse] = "none"
    """Part of a request's past that the class reads: ``"none"``, ``"length"`` or ``"tokens"``. Reading more raises."""
    Params: ClassVar[type[BaseParams] | None] = None
    """The request's parameters, a subclass of :class:`lpkit.Params`; None without parameters."""
    vllm_config: Any
    """The engine's configuration."""
    device: torch.device
    """Device of logits and columns."""
    max_num_reqs: int
    """Number of requests that a batch can hold."""
    vocab_size: int
    """Columns of the logits."""
    _declared_columns: ClassVar[dict[str, Declaration[Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_misspelt(cls, _DECLARATIONS)
        one_of(cls, "stage", get_args(Stage))
        one_of(cls, "history", HISTORY_USES)
        params = cls.Params
        if params is not None and not (isinstance(params, type) and issubclass(params, BaseParams)):
            raise TypeError(f"{cls.__qualname__}.Params must subclass lpkit.Params")
        reserved = RESERVED & vars(cls).keys()
        if reserved:
            raise TypeError(f"{cls.__qualname__} defines {sorted(reserved)}, reserved for hooks of future vLLM")
        cls._declared_columns = {
            name: item
            for base in reversed(cls.__mro__)
            for name in vars(base)
            if isinstance(item := getattr(cls, name, None), Declaration)
        }

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        """Take ``(vllm_config, device, is_pin_memory)`` on V1, ``(vllm_config, req_states)`` on V2."""
        self.vllm_config = vllm_config
        on_v2 = hasattr(device_or_states, "all_token_ids")
        self.device = torch.device(device_or_states.device if on_v2 else device_or_states)
        if on_v2:
            self.max_num_reqs = device_or_states.max_num_reqs
            self.vocab_size = device_or_states.vocab_size
        else:
            self.max_num_reqs = vllm_config.scheduler_config.max_num_seqs
            self.vocab_size = vllm_config.model_config.get_vocab_size()
        sampling_only = self.is_argmax_invariant()
        self._admission = Admission(
            type(self).__qualname__,
            self.Params,
            self._declared_columns,
            sampling_only,
            self._take_slot,
            divided=sampling_only and not on_v2,  # V1 divides before its sampling stage, V2 after
            vllm_config=vllm_config,
            slots=self.max_num_reqs,
            device=self.device,
            vocab_size=self.vocab_size,
        )
        for name in self._declared_columns:  # not through vars(self), which would slow down every attribute read
            super().__setattr__(name, self._admission.columns[name])
        given = self._admission, self._retire_slot, self.history
        self._v2 = V2Binding(*given, device_or_states) if on_v2 else None
        self._v1 = None if on_v2 else V1Binding(*given, self.max_num_reqs, self.device)
        self._binding: Any = self._v1 or self._v2

    @property
    def _in_use(self) -> bool:
        """True if a request may use the processor. On V2, which does not say when a request leaves, it is True until
        another request takes the slot."""
        return bool(self._binding.held)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self._declared_columns:
            raise AttributeError(f"write {name}[request.slot] = value; do not replace the column itself")
        super().__setattr__(name, value)

    # -- vLLM calls these ------------------------------------------------------------------------------------

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        if cls.Params is not None:
            cls.Params.parse(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        """Return True if V1 runs the processor after temperature, and not for greedy requests: see ``stage``."""
        return self.stage == "sampling"

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        if batch_update is not None:
            self._binding.update(batch_update)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        assert self._v2 is not None
        return self._v2.add(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        self._admission.flush()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext | None = None) -> torch.Tensor:
        """Edit the rows of admitted requests.

        Args:
            logits: float32 ``[rows, vocab]``.
            ctx: the rows of the step on V2; None on V1.

        Returns:
            The edited logits. Without admitted requests, the same tensor, unchanged.
        """
        rows = self._binding.rows(logits, ctx) if self._binding.held else None
        return logits if rows is None else self._edit_rows(logits, rows)

    # -- subclasses implement these --------------------------------------------------------------------------

    @abstractmethod
    def _take_slot(self, slot: int, params: Any, sampling_params: SamplingParams, prompt_ids: list[int] | None) -> bool:
        """Decide on a request with valid parameters; True to admit it."""

    @abstractmethod
    def _edit_rows(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Edit ``rows`` of the batch's ``logits`` and return the batch's logits."""

    def _retire_slot(self, slot: int) -> None:
        """Handle that the request in ``slot`` left (V1), or that the slot goes to another request (V2)."""


def raise_from_admission(processor: Any) -> None:
    """Make a processor raise its admission errors, which it otherwise logs.

    Args:
        processor: of any class; has no effect on classes without an lpkit base.
    """
    if isinstance(processor, PortableProcessor):
        processor._admission.raises = True


def may_use(processor: Any, sampling_params: Any) -> bool | None:
    """Tell if a request's arguments ask for a processor.

    Args:
        processor: of any class; only lpkit's base classes declare the arguments they need.
        sampling_params: of the request.

    Returns:
        False if the request cannot use the processor; None if unknown.
    """
    if not isinstance(processor, PortableProcessor):
        return None
    return None if processor._admission.asked_by(sampling_params) else False
