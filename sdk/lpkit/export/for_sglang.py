"""SGLang: hooks of an installed plugin around the sampler."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

from lpkit.export.sglang_rows import REQUEST, ForwardRows, ServedProcessor

_SAMPLE = "sglang.srt.model_executor.model_runner.ModelRunner.sample"
_BATCH = "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.from_schedule_batch"
_VERIFY = "sglang.srt.sampling.sampling_params.SamplingParams.verify"
_NAME = hash("lpkit.export")
"""Key of the plugins' entry among the engine's hashes of processors that requests carry."""

_SERVED: dict[type[Any], ServedProcessor] = {}
_step: ForwardRows | None = None


def serve(cls: type[Any], tokenizer: Any = None) -> None:
    """Serve a processor in this process; SGLang calls this once per process, through the plugin's entry point."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if not _SERVED:
        for target, hook in ((_SAMPLE, _around_sample), (_BATCH, _around_batch), (_VERIFY, _around_verify)):
            HookRegistry.register(target, hook, HookType.AROUND)
    _SERVED.setdefault(cls, ServedProcessor(cls, tokenizer=tokenizer))


def _around_verify(original: Callable[..., None], params: Any, vocab_size: int) -> None:
    """Refuse a request with wrong arguments in the server's own process, so that the client gets the message."""
    original(params, vocab_size)
    given = params.custom_params if isinstance(params.custom_params, dict) else None
    for served in _SERVED.values():
        served.admit(given, vocab_size)
        if served.is_named_by(given):
            _refuse_modes(served.cls, params)


def _refuse_modes(cls: type[Any], params: Any) -> None:
    from sglang.srt.runtime_context import get_server_args

    algorithm = getattr(get_server_args(), "speculative_algorithm", None)
    if algorithm:
        raise ValueError(
            f"{cls.__qualname__} cannot run in a server that decodes speculatively ({algorithm}): SGLang does not "
            "show processors the draft tokens; start it without --speculative-algorithm"
        )
    if (getattr(params, "beam_width", None) or 1) > 1:
        raise ValueError(f"{cls.__qualname__} cannot run with beams: SGLang does not show processors their tokens")


def _around_batch(original: Callable[..., Any], owner: type[Any], batch: Any, vocab_size: int) -> Any:
    """Put the plugins among the engine's own processors, which the engine filters and merges with its batches."""
    from sglang.srt.sampling.sampling_batch_info import ProcessorEntry

    info = original(owner, batch, vocab_size)
    given = [request.sampling_params.custom_params for request in batch.reqs]
    rows = [
        i for i, custom_params in enumerate(given) if any(served.takes(custom_params) for served in _SERVED.values())
    ]
    if not rows:
        return info
    for i in rows:
        given[i] = {**(given[i] or {}), REQUEST: weakref.proxy(batch.reqs[i])}
    entry = ProcessorEntry(_Plugins(), rows, torch.tensor(rows, dtype=torch.int64, device=batch.device))
    info.custom_params = given
    info.custom_logit_processor = {**(info.custom_logit_processor or {}), _NAME: entry}
    info.has_custom_logit_processor = True
    return info


def _around_sample(original: Callable[..., Any], runner: Any, logits_output: Any, forward_batch: Any) -> Any:
    """Remember the forward pass while the sampler runs."""
    global _step
    _step = ForwardRows(forward_batch) if forward_batch.sampling_info.has_custom_logit_processor else None
    try:
        return original(runner, logits_output, forward_batch)
    finally:
        _step = None


class _Plugins(CustomLogitProcessor):  # type: ignore[misc]
    """All installed plugins, as one of the engine's processors."""

    def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> torch.Tensor:
        requests = [given[REQUEST] for given in custom_param_list or ()]
        for served in _SERVED.values():
            wanted = [i for i, request in enumerate(requests) if served.takes(request.sampling_params.custom_params)]
            if wanted:
                index = torch.tensor(wanted, dtype=torch.int64, device=logits.device)
                edited = served.process(logits.index_select(0, index), [requests[i] for i in wanted], _step)
                logits = logits.index_copy(0, index, edited)
        return logits
