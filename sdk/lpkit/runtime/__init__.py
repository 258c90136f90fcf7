"""Both of vLLM's runners without a model: what they tell a logits processor, in their order.

For tests and for the conformance suite; a plugin must not import this at run time.
"""

from lpkit.runtime.config import make_config, pick_device
from lpkit.runtime.logits import LogitsSource
from lpkit.runtime.request import Request
from lpkit.runtime.v1_batch import V1Batch, documented_form
from lpkit.runtime.v2_context import V2Row, make_context
from lpkit.runtime.v2_slots import V2Slots

__all__ = [
    "LogitsSource",
    "Request",
    "V1Batch",
    "V2Row",
    "V2Slots",
    "documented_form",
    "make_config",
    "make_context",
    "pick_device",
]
