"""V2's sampler of the reference runtime against vLLM's own, kernels included: random steps, no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.vllm_api.runners import V2, Runner

pytestmark = pytest.mark.engine

Processes = Callable[[Runner], EngineProcess]


STAGES = (
    "allowed_token_ids",
    "logit_bias",
    "min_tokens",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "bad_words",
    "extra_args",
    "thinking_token_budget",
    "temperature",
    "min_p",
    "top_k",
    "top_p",
)


FORCED = 1e9
"""The logit of a token that ends a thought."""
CASES = [
    *((stage, 15, 0) for stage in STAGES),
    *(("some", 40, 0), ("all", 25, 0)),
    *(("thinking_token_budget", 25, markers) for markers in range(1, 5)),
]
FACTS = ("rows", "greedy", "partial", "resumed", "drafted", "accepted", "gate open")


@pytest.mark.parametrize(("stages", "steps", "markers"), CASES)
def test_v2_sampler_processes_logits_and_picks_greedy_tokens_as_vllms(
    processes: Processes, stages: str, steps: int, markers: int
) -> None:
    """Requests come, go, are preempted and resumed; rows of partial prefills and of drafts, right and wrong ones.

    Two custom processors, which do not commute with the stages beside them, run where the gate opens.
    """
    seen: Counter[str] = Counter()
    for step, fact in enumerate(processes(V2).call("sampler_probes:differential", 5, steps, stages, markers)):
        theirs, ours = fact["slots"]
        assert theirs == ours
        if not fact["rows"]:
            continue
        gate, applied = fact["gate"]
        assert gate == applied, step
        theirs, ours = fact["logits"]
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=f"step {step}")
        seen["forced"] += int((theirs == FORCED).sum())
        greedy = fact["greedy"]
        np.testing.assert_array_equal(fact["sampled"][greedy], theirs[greedy].argmax(-1))
        np.testing.assert_array_equal(*fact["lengths"])
        seen.update({name: int(np.sum(fact[name])) for name in FACTS if name in fact})
        seen["gate open" if gate else "gate closed"] += 1
    assert all(seen[name] for name in (("forced",) if markers else FACTS))


@pytest.mark.needs_release("0.31")
def test_the_gate_opens_for_the_options_that_vllm_names(processes: Processes) -> None:
    """Options around their neutral values, alone and together, against the real sampler's ``add_request``."""
    facts = processes(V2).call("sampler_probes:gate", 9, 600)
    assert [fact for fact in facts["answers"] if fact[1] != fact[2]] == []
    opened = [text for text, theirs, _ in facts["answers"] if theirs]
    assert 500 < len(opened) < 2000
    # A stage that is not here may open the gate for an option that nobody has drawn yet.
    assert facts["stages"] == [
        "LogprobTokenIdsState",
        "PenaltiesState",
        "RequestState",
        "SamplingStates",
        "ThinkingBudgetState",
    ]
    assert facts["processors"] == ["LogitBiasState", "PenaltiesState", "BadWordsState"]
