"""V1's thinking budget of the reference runtime against vLLM's own: random batches, no model.

V2's is a stage of its sampler: test_sampler_parity.py.
"""

from __future__ import annotations

import random
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing vLLM warns
    from lpkit.runtime import Request, ThinkingMarkers, V1Batch
    from lpkit.runtime.sampler.thinking import Thought, V1ThinkingBudget
    from lpkit.sampling_params import SamplingParams
    from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

CPU = torch.device("cpu")
VOCAB = 8
MARKERS = [
    ThinkingMarkers((1,), (2,)),
    ThinkingMarkers((1, 3), (2, 4)),
    ThinkingMarkers((1,), (2, 4, 2)),
    ThinkingMarkers((1, 1), (2, 2, 4)),
    ThinkingMarkers((1,), ()),
]

FIELDS = {
    "thinking": "in_think",
    "ending": "in_end",
    "left": "check_count_down",
    "thought": "think_count",
    "written": "end_count",
    "seen": "prev_output_length",
    "start": "start_thinking",
    "end": "end_thinking",
    "from_prompt": "continue_thinking",
    "searched": "scan_offset",
    "first_forced": "bonus_token_forced",
}
"""Ours -> vLLM's."""


def vllms(markers: ThinkingMarkers, size: int) -> ThinkingBudgetStateHolder:
    return ThinkingBudgetStateHolder(markers.as_config(), size, 0, CPU, False)


def same_state(ours: dict[int, Thought], theirs: dict[int, dict[str, Any]]) -> None:
    assert ours.keys() == theirs.keys()
    for row, thought in ours.items():
        for mine, other in FIELDS.items():
            assert getattr(thought, mine) == theirs[row][other], (row, mine)


def tokens(rng: random.Random, count: int) -> list[int]:
    """Of an alphabet so small that markers occur."""
    return [rng.randrange(1, 6) for _ in range(count)]


@pytest.mark.needs_release("0.29")
@pytest.mark.parametrize("markers", MARKERS, ids=str)
def test_v1_forces_what_vllm_forces_in_every_state(markers: ThinkingMarkers) -> None:
    """Additions, departures, moves, swaps and resumed requests, over 1,000 steps.

    Without drafts: vLLM refuses custom processors with speculative decoding on V1, so no processor meets that half.
    """
    rng = random.Random(f"{markers}")
    size = 6
    ours, theirs = V1ThinkingBudget(markers), vllms(markers, size)
    batch = V1Batch(size)
    forced = steps = 0
    for step in range(1_000):
        for request in list(batch.requests):
            if rng.random() < 0.06:
                batch.remove(request.request_id)
        while len(batch) < size and rng.random() < 0.5:
            params = SamplingParams(temperature=0, thinking_token_budget=rng.choice([None, 0, 1, 2, 4, 7]))
            outputs = tokens(rng, rng.choice([0, 0, 0, 3, 9]))
            prompt = rng.choice([None, tokens(rng, rng.randint(1, 9))])
            batch.add(Request(f"r{step}.{len(batch)}", params, prompt, prompt_len=4, output_token_ids=outputs))
        batch.condense()
        if len(batch) > 1 and rng.random() < 0.2:
            batch.swap(*rng.sample(range(len(batch)), 2))
        update = batch.take_update()
        ours.sync(update)
        theirs.sync_batch(update)
        assert ours.has_tracked_requests == theirs.has_tracked_requests()
        same_state(ours.thoughts, theirs._state)
        outputs_by_row = [request.output_token_ids for request in batch.requests]
        if not batch.requests or not ours.has_tracked_requests:
            continue
        steps += 1
        ours.advance(outputs_by_row)
        theirs.update_state([list(ids) for ids in outputs_by_row], [[] for _ in outputs_by_row])
        same_state(ours.thoughts, theirs._state)
        raw = torch.rand(len(batch), VOCAB, generator=torch.Generator().manual_seed(step))
        mine = ours.apply(raw.clone())
        other = theirs.apply_to_logits(raw.clone(), True, [[] for _ in outputs_by_row])
        assert torch.equal(mine, other)
        same_state(ours.thoughts, theirs._state)
        forced += int((mine != raw).sum())
        for row, request in enumerate(batch.requests):
            # The forced token or something else; a row of a partial prefill gets none.
            if rng.random() < 0.1:
                continue
            thought = ours.thoughts.get(row)
            wanted = markers.end[thought.written] if thought and thought.ending else None
            follows = wanted is not None and rng.random() < 0.8
            request.output_token_ids.append(wanted if follows and wanted is not None else tokens(rng, 1)[0])
    assert steps > 500
    assert forced > 50 or not markers.end


def test_v1_leaves_a_budget_behind_where_a_request_without_one_moves_in() -> None:
    """Reproduce vLLM 0.32: the destination of a move is in no ``removed``, and its state stays.

    The twin has to share this fault of the engine; when vLLM corrects it, so must lpkit.
    """
    markers = ThinkingMarkers((1,), (2,))
    for stage, states, sync in (
        (ours := V1ThinkingBudget(markers), ours.thoughts, ours.sync),
        (theirs := vllms(markers, 2), theirs._state, theirs.sync_batch),
    ):
        assert stage is not None
        batch = V1Batch(2)
        for name, budget in (("thinks", 3), ("plain", None)):
            params = SamplingParams(temperature=0, thinking_token_budget=budget)
            batch.add(Request(name, params, [1]))
        sync(batch.take_update())
        batch.remove("thinks")
        batch.condense()
        sync(batch.take_update())
        assert [request.request_id for request in batch.requests] == ["plain"]
        assert list(states) == [0]


@pytest.mark.needs_release("0.29")
def test_the_configuration_has_the_fields_that_vllm_reads() -> None:
    from vllm.config.reasoning import ReasoningConfig

    for name in vars(ThinkingMarkers((1,), (2,)).as_config()):
        assert hasattr(ReasoningConfig, name)
    assert isinstance(ThinkingMarkers((1,), (2,)).as_config(), SimpleNamespace)
