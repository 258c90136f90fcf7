"""vLLM's V1 interface: vLLM's own objects where vLLM works, equal definitions elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpkit.interfaces import lookup
from lpkit.interfaces.v1_interface import AddedRequest, MovedRequest, RemovedRequest, RequestLogitsProcessor

if TYPE_CHECKING:
    from lpkit.interfaces.v1_interface import (
        BatchUpdate,
        BatchUpdateBuilder,
        LogitsProcessor,
        LogitsProcessors,
        MoveDirectionality,
        process_dict_updates,
    )
else:
    _module = lookup.find(lookup.V1_MODULE).module
    if _module is None:
        from lpkit.interfaces import v1_interface as _module
        from lpkit.interfaces.v1_interface import process_dict_updates
    else:
        from vllm.v1.sample.logits_processor.builtin import process_dict_updates
        from vllm.v1.sample.logits_processor.interface import AddedRequest, MovedRequest, RemovedRequest
    BatchUpdate = _module.BatchUpdate
    BatchUpdateBuilder = _module.BatchUpdateBuilder
    LogitsProcessor = _module.LogitsProcessor
    LogitsProcessors = _module.LogitsProcessors
    MoveDirectionality = _module.MoveDirectionality
    RequestLogitsProcessor = getattr(_module, "RequestLogitsProcessor", RequestLogitsProcessor)

__all__ = [
    "AddedRequest",
    "BatchUpdate",
    "BatchUpdateBuilder",
    "LogitsProcessor",
    "LogitsProcessors",
    "MoveDirectionality",
    "MovedRequest",
    "RemovedRequest",
    "RequestLogitsProcessor",
    "process_dict_updates",
]
