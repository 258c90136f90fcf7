"""Both of vLLM's runners without a model: their calls to a logits processor, in their order.

For tests, for the conformance suite and for :mod:`lpkit.train`; a plugin must not import this at run time.
"""

from lpkit.interfaces.config import ThinkingMarkers, make_config
from lpkit.runtime.batch.context import V2Row, make_context
from lpkit.runtime.batch.logits import LogitsSource, pick_device
from lpkit.runtime.batch.persistent import V1Batch
from lpkit.runtime.batch.request import Request
from lpkit.runtime.batch.slots import V2Slots
from lpkit.runtime.engine.base import Engine
from lpkit.runtime.engine.results import StepResult, StepRow
from lpkit.runtime.engine.scheduler import Scheduler, generate
from lpkit.runtime.engine.v1_async import V1AsyncEngine
from lpkit.runtime.engine.v1_engine import V1Engine
from lpkit.runtime.engine.v2_engine import V2Engine
from lpkit.runtime.sampler.results import Sampled
from lpkit.runtime.sampler.v1_sampler import V1Sampler
from lpkit.runtime.sampler.v2_sampler import V2Gate, V2Sampler, needs_processing
from lpkit.runtime.sampler.verification import Verified, verify_drafts

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
    "V2Gate",
    "V2Row",
    "V2Sampler",
    "V2Slots",
    "Verified",
    "generate",
    "make_config",
    "make_context",
    "needs_processing",
    "pick_device",
    "verify_drafts",
]
