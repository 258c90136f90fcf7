"""Features that vLLM's CPU build lacks, switched on in a process that ``tiny.prepare`` prepares.

Each call holds for the engines that are started in this process from then on; making it again changes nothing.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import cache
from typing import Any


@cache
def allow_async_scheduling() -> None:
    """Undo the CPU platform's refusal of asynchronous scheduling."""
    platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform
    refuse = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        wanted = vllm_config.scheduler_config.async_scheduling
        refuse(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = wanted

    platform.check_and_update_config = classmethod(check_and_update_config)


@cache
def hasten_interpreter() -> None:
    """Let Triton's interpreter patch Triton's language once for each function, and not at each launch and each call."""
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    patch = cache(interpreter._patch_lang)
    nothing = getattr(interpreter, "_LangPatchScope", lambda: None)  # older ones undo nothing at a launch's end

    def patch_lang(function: Any) -> Any:
        patch(function)
        return nothing()

    interpreter._patch_lang = patch_lang


@cache
def mend_interpreter() -> None:
    """Let Triton's interpreter run all of V2's kernels as a GPU does.

    It insists on bool masks, which the kernels of speculative sampling do not give it, and looks for overflows, which
    takes a third of a step.
    """
    interpreter = importlib.import_module("triton.runtime.interpreter")
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def as_bool(mask: Any) -> Any:
        return interpreter.TensorHandle(mask.data.astype(bool), mask.dtype)

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        return load(self, pointers, as_bool(mask), *rest)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(self, pointers, value, as_bool(mask), *rest)

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    shared = interpreter.interpreter_builder
    shared.options = replace(shared.options, sanitize_overflow=False)


def cut_in_torch(engine: Any) -> None:
    """Let V2 cut by top-k and top-p in vLLM's own torch code: Triton's interpreter cannot run the kernel."""
    module = importlib.import_module(type(engine.model_runner.sampler).__module__)
    assert module.apply_top_k_top_p
    vars(module)["apply_top_k_top_p"] = importlib.import_module(
        "vllm.v1.sample.ops.topk_topp_sampler"
    ).apply_top_k_top_p_pytorch


def separate_decodes(model_runner: Any) -> None:
    """A V1 runner sorts its batch from here on, decodes before prefills, as some attention backends ask for.

    This is the only reason for which an engine swaps rows; the CPU's backend asks for no order.
    """
    model_runner.reorder_batch_threshold = 1
