"""SGLang's wheel without a GPU: modules that need CUDA or torchvision are replaced before anything imports them."""

from __future__ import annotations

import os
import sys
import types
import warnings
from typing import Any

RUNNER = "sglang.srt.model_executor.model_runner"
_REPLACED = (
    "sglang.kernels.ops.sampling",
    "sglang.kernels.ops.sampling.murmur_hash",
    "sglang.srt.layers.dp_attention",
    "sglang.srt.layers.logits_processor",
    "sglang.srt.layers.logprob_processor",
    "sglang.srt.managers.schedule_batch",
    RUNNER,
)


class _Stand(types.ModuleType):
    """Has any name: only names are imported of it."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


os.environ["TORCHDYNAMO_DISABLE"] = "1"
for _name in _REPLACED:
    sys.modules[_name] = _Stand(_name)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sglang.srt import plugins, runtime_context
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.sampling import sampling_batch_info as batches
    from sglang.srt.sampling.sampling_params import SamplingParams

__all__ = [
    "RUNNER",
    "HookRegistry",
    "Sampler",
    "SamplingParams",
    "batches",
    "plugins",
    "runtime_context",
]
