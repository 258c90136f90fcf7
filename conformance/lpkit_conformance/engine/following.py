"""Requests that generate a given text, whatever is sampled: vLLM's trace replay on V2, and its like for the rest."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lpkit_conformance.vllm_api.runners import V2, Runner

Texts = Mapping[str, Sequence[int]]
"""Tokens of each text, by request id."""


def replay(runner: Runner) -> dict[str, Any]:
    """``EngineSettings.extra`` with which V2 takes texts with requests; empty where vLLM has no trace replay.

    Import vLLM in a prepared process (``tiny.import_vllm``) first. vLLM refuses texts of requests with drafts.
    """
    arguments = importlib.import_module("vllm.engine.arg_utils").EngineArgs.__dataclass_fields__
    return {"enable_trace_replay": True} if runner == V2 and "enable_trace_replay" in arguments else {}


def follow(model_runner: Any, texts: Texts) -> None:
    """A V1 runner takes tokens from ``texts`` instead of the sampled ones from here on.

    Everything before that is the engine's own: logits are processed and a token is sampled from them, as ever. Under
    asynchronous scheduling a request's list has a placeholder for each token, which is all that is asked here.
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


def follow_drafts(model_runner: Any, texts: Texts) -> Counter[str]:
    """A V2 runner with a drafter takes tokens from ``texts`` from here on, and drafts as far as these say the same.

    As :func:`follow`: logits are processed, a token is sampled and drafts are verified before that. Returns the number
    of drafts so far by request, which grows.
    """
    drafted: Counter[str] = Counter()
    states = model_runner.req_states
    sampler, verifier = model_runner.sampler, model_runner.rejection_sampler
    sample, verify = sampler.sample, verifier._verify

    def rest(slot: int) -> Sequence[int]:
        """The rest of the text, after the tokens that the request in ``slot`` has generated."""
        done = int(states.total_len.gpu[slot]) - int(states.prompt_len.np[slot])
        return texts.get(states.index_to_req_id.get(slot, ""), ())[done:]

    def sample_text(logits: Any, expanded: Any, slots: Any, *args: Any, **kwargs: Any) -> Any:
        sampled, processed = sample(logits, expanded, slots, *args, **kwargs)
        for row, slot in enumerate(slots.tolist()):
            if text := rest(slot):
                sampled[row] = text[0]
        return sampled, processed

    def verify_text(
        logits: Any, draft_logits: Any, inputs: Any, pos: Any, starts: Any, slots: Any, *args: Any
    ) -> tuple[Any, Any, Any]:
        processed, sampled, counts = verify(logits, draft_logits, inputs, pos, starts, slots, *args)
        ends = starts.tolist()
        for row, slot in enumerate(slots.tolist()):
            if text := rest(slot):
                drafts = inputs[ends[row] + 1 : ends[row + 1]].tolist()
                drafted[states.index_to_req_id[slot]] += len(drafts)
                kept = text[: 1 + right(drafts, text)]
                counts[row] = len(kept)
                for n, token in enumerate(kept):
                    sampled[row, n] = token
        return processed, sampled, counts

    sampler.sample, verifier._verify = sample_text, verify_text
    return drafted


def right(drafts: Sequence[int], text: Sequence[int]) -> int:
    """Number of drafts that agree with the text, up to the first that does not."""
    for n, (draft, token) in enumerate(zip(drafts, text, strict=False)):
        if draft != token:
            return n
    return min(len(drafts), len(text))
