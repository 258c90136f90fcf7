"""The engine that serves a plan's requests: its model, and how much fits into it."""

from __future__ import annotations

from dataclasses import replace

from lpkit_conformance import traces
from lpkit_conformance.engine import traced
from lpkit_conformance.engine.requests import BLOCK, MAX_MODEL_LEN, MAX_NUM_SEQS, ROOMY_MODEL_LEN
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.vllm_api.runners import Runner


def engine_settings(runner: Runner, plan: Plan) -> EngineSettings:
    """Settings of the engine: a model that does not round, and too little room for the longer requests at once.

    The requests of a saved failure have room: its operations do not say that any of them waits. A trace says what
    it was recorded with.
    """
    roomy = EngineSettings(
        runner,
        max_num_seqs=plan.max_num_seqs,
        max_model_len=ROOMY_MODEL_LEN,
        vocab_size=plan.vocab_size,
        logprobs_mode="processed_logits",
        exact=True,
    )
    if plan.trace is not None:
        return traced.recorded_settings(traces.load(plan.trace[0]), roomy)
    if plan.program is not None:
        return replace(roomy, max_num_seqs=max(plan.max_num_seqs, plan.program.max_num_seqs))
    return replace(
        roomy,
        max_num_seqs=MAX_NUM_SEQS,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=32,
        num_gpu_blocks_override=9,  # one is reserved
        block_size=BLOCK,
    )
