"""``SamplingParams``: vLLM's class where vLLM is installed, an equal class elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpkit.interfaces import lookup
from lpkit.interfaces.sampling_params import GREEDY_EPSILON

if TYPE_CHECKING:
    from lpkit.interfaces.sampling_params import SamplingParams
else:
    _module = lookup.find(lookup.SAMPLING_PARAMS_MODULE).module
    if _module is None:
        from lpkit.interfaces.sampling_params import SamplingParams
    else:
        SamplingParams = _module.SamplingParams

__all__ = ["GREEDY_EPSILON", "SamplingParams"]
