"""Both of vLLM's runners without a model: what they tell a logits processor, in their order.

For tests and for the conformance suite; a plugin must not import this at run time.
"""

from lpkit.runtime.config import make_config, pick_device
from lpkit.runtime.engine import Engine
from lpkit.runtime.logits import LogitsSource
from lpkit.runtime.request import Request
from lpkit.runtime.results import Sampled, StepResult, StepRow
from lpkit.runtime.scheduler import Scheduler, generate
from lpkit.runtime.thinking import ThinkingMarkers
from lpkit.runtime.v1_async import V1AsyncEngine
from lpkit.runtime.v1_batch import V1Batch, documented_form
from lpkit.runtime.v1_engine import V1Engine
from lpkit.runtime.v1_sampler import V1Sampler
from lpkit.runtime.v2_context import V2Row, make_context
from lpkit.runtime.v2_engine import V2Engine
from lpkit.runtime.v2_sampler import V2Sampler
from lpkit.runtime.v2_slots import V2Slots

__all__ = [
    "Engine",
    "LogitsSource",
    "Request",
    "Sampled",
    "Scheduler",
    "StepResult",
    "StepRow",
    "ThinkingMarkers",
    "V1AsyncEngine",
    "V1Batch",
    "V1Engine",
    "V1Sampler",
    "V2Engine",
    "V2Row",
    "V2Sampler",
    "V2Slots",
    "documented_form",
    "generate",
    "make_config",
    "make_context",
    "pick_device",
]
