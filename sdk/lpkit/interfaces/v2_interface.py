"""vLLM's V2 logits processor interface (``vllm.v1.worker.gpu.sample.logits_processor``), rewritten for lpkit.

Each request has a *slot*, which never changes while the request runs. State is kept by slot, and :class:`LogitsContext`
maps the rows of a step to slots. Fields and semantics are vLLM's since 0.31.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

    from lpkit.interfaces.sampling_params import SamplingParams


@dataclass(frozen=True)
class LogitsProcRequestState:
    """The engine's per-slot buffers, read-only for processors.

    Attributes:
        device: where logits and token histories live.
        max_num_reqs: number of slots.
        vocab_size: columns of the logits.
        all_token_ids: ``.gpu`` int32 ``[max_num_reqs, max_model_len]``, valid up to ``total_len``.
        prompt_len: ``.np`` int32 ``[max_num_reqs]`` on the host. The engine rebinds ``.gpu`` at every flush, so read it
            on use.
        prefill_len: like ``prompt_len``: the prompt plus the outputs that a resumed request brought.
        total_len: ``.gpu`` int32 ``[max_num_reqs]``; prompt plus committed outputs.
    """

    device: torch.device
    max_num_reqs: int
    vocab_size: int
    all_token_ids: Any
    prompt_len: Any
    prefill_len: Any
    total_len: Any

    @classmethod
    def from_request_state(cls, req_states: Any) -> LogitsProcRequestState:
        """Make the view of a model runner's request state.

        Args:
            req_states: any object with these seven attributes.
        """
        return cls(**{item.name: getattr(req_states, item.name) for item in fields(cls)})


@dataclass(frozen=True)
class LogitsContext:
    """The rows of one ``apply`` call.

    Attributes:
        expanded_idx_mapping: ``[rows]``, row -> slot.
        idx_mapping: ``[num_reqs]``, batch position -> slot.
        idx_mapping_np: the same on the host.
        expanded_local_pos: int32 ``[rows]``, offset of the row among its request's rows.
        input_ids: int32 ``[rows]``, the token fed at the row's position; -1 for a draft placeholder.
        pos: int64 ``[rows]``, the row's position; ``pos + 1`` tokens are visible to it.
        seq_lens_upper_bound_np: int32 ``[num_reqs]`` or longer (zero padded), exact without drafts.
    """

    expanded_idx_mapping: torch.Tensor
    idx_mapping: torch.Tensor
    idx_mapping_np: np.ndarray[Any, Any]
    expanded_local_pos: torch.Tensor
    input_ids: torch.Tensor
    pos: torch.Tensor
    seq_lens_upper_bound_np: np.ndarray[Any, Any]


class LogitsProcessor(ABC):
    """Base of a V2 processor: one instance per engine process.

    Args:
        vllm_config: the engine's configuration.
        req_states: the engine's buffers; keep references to what stays constant.
    """

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:  # noqa: B027
        """Keep references to what stays constant."""

    @classmethod  # noqa: B027
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a request whose arguments are wrong; the engine then refuses that request only.

        Args:
            sampling_params: of the request.

        Raises:
            ValueError: the arguments are wrong; the message says why.
        """

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Take a request into a slot.

        Args:
            req_idx: the slot. Overwrite all state of its last request.
            sampling_params: of the request.

        Returns:
            True if this processor edits the request's logits.
        """
        return True

    def apply_staged_writes(self) -> None:  # noqa: B027
        """Send data staged by :meth:`add_request`; the engine calls this once per step before the forward pass."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Edit the logits of a step.

        Args:
            logits: float32 ``[rows, vocab]``, which may be edited in place.
            ctx: the rows of the step.

        Returns:
            The edited logits, of the same shape, dtype and device.
        """
        raise NotImplementedError
