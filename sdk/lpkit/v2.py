"""vLLM's V2 interface: vLLM's own objects where vLLM has it, equal definitions elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpkit.interfaces import lookup

if TYPE_CHECKING:
    from lpkit.interfaces.v2_interface import LogitsContext, LogitsProcessor, LogitsProcRequestState
else:
    _module = lookup.find(lookup.V2_MODULE).module
    if _module is None:
        from lpkit.interfaces import v2_interface as _module
    LogitsContext = _module.LogitsContext
    LogitsProcessor = _module.LogitsProcessor
    LogitsProcRequestState = _module.LogitsProcRequestState

__all__ = ["LogitsContext", "LogitsProcRequestState", "LogitsProcessor"]
