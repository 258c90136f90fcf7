"""Requests that generate a given text, whatever is sampled: vLLM's trace replay on V2, and its like for V1."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from lpkit_conformance.vllm_api.runners import V2, Runner


def replay(runner: Runner) -> dict[str, Any]:
    """``EngineSettings.extra`` with which V2 takes texts with requests; empty where vLLM has no trace replay.

    Import vLLM in a prepared process (``tiny.import_vllm``) first.
    """
    known = importlib.import_module("vllm.engine.arg_utils").EngineArgs.__dataclass_fields__
    return {"enable_trace_replay": True} if runner == V2 and "enable_trace_replay" in known else {}


def follow(model_runner: Any, texts: Mapping[str, Sequence[int]]) -> None:
    """A V1 runner takes tokens from ``texts`` (by request id) instead of the sampled ones from here on.

    Everything before that is the engine's own: logits are processed and a token is sampled from them, as ever. Not for
    asynchronous scheduling or drafts.
    """
    sampler = model_runner.sampler
    sample = sampler.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = sample(*args, **kwargs)
        for row, name in enumerate(model_runner.input_batch.req_ids):
            position = len(model_runner.requests[name].output_token_ids)
            if position < len(text := texts.get(name, ())):
                output.sampled_token_ids[row, 0] = text[position]
        return output

    sampler.forward = forward
