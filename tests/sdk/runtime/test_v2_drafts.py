"""Draft tokens on the reference V2 engine: its tokens do not show them; recorded traces show its rows."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from lpkit import v2
from lpkit.runtime import Request, ThinkingMarkers, V2Engine
from lpkit.sampling_params import SamplingParams

PARAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalties": {"repetition_penalty": 1.6, "frequency_penalty": 0.7},
    "bias": {"logit_bias": {7: 3.0}},
    "least": {"min_tokens": 6, "stop_token_ids": [3, 4], "ignore_eos": True},
    "thinks": {"thinking_token_budget": 3},
    "random": {"temperature": 0.8, "top_k": 9, "seed": 5},
}
MARKERS = ThinkingMarkers((9,), (2, 4))


class Rows(v2.LogitsProcessor):
    """Raises a token by what each row sees."""

    def __init__(self, config: Any, states: Any) -> None: ...

    def add_request(self, req_idx: int, params: Any) -> bool:
        return True

    def apply_staged_writes(self) -> None: ...

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        return logits.scatter_add_(1, ctx.input_ids.long()[:, None], torch.full_like(logits[:, :1], 2.0))


def engine(**options: Any) -> V2Engine:
    made = V2Engine([Rows], device="cpu", vocab_size=128, thinking=MARKERS, **options)
    for name, fields in PARAMS.items():
        made.add(Request(name, SamplingParams(**{"temperature": 0.0, **fields}), [9, 1, 2]))
    return made


def outputs(made: V2Engine, count: int) -> dict[str, list[int]]:
    return {name: request.output_token_ids[:count] for name, request in made.requests.items()}


@pytest.mark.parametrize("seed", range(3))
def test_the_tokens_are_those_of_a_run_without_drafts(seed: int) -> None:
    rng = random.Random(seed)
    plain = engine()
    for _ in range(12):
        plain.step()
    expected = outputs(plain, 12)
    drafted = engine(num_speculative_tokens=3)
    drafted.step()
    accepted = 0
    while min(len(request.output_token_ids) for request in drafted.requests.values()) < 12:
        drafts = {}
        for name, request in drafted.requests.items():
            at = len(request.output_token_ids)
            right = expected[name][at : at + rng.randint(0, 3)]
            drafts[name] = [token if rng.random() < 0.8 else 63 for token in right]
        result = drafted.step(drafts=drafts)
        accepted += sum(len(ids) - 1 for ids in result.tokens.values())
    assert outputs(drafted, 12) == expected
    assert accepted > 20


def test_behind_a_wrong_draft_nothing_is_committed() -> None:
    made = engine(num_speculative_tokens=2)
    made.step()
    result = made.step(drafts={"plain": [60, 61]})
    assert len(result.tokens["plain"]) == 1
    assert made.requests["plain"].remaining == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"drafts": {"plain": [1, 2, 3]}}, "more than num_speculative_tokens=2"),
        ({"drafts": {"nobody": [1]}}, "cannot have drafts"),
        ({"drafts": {"plain": [1]}, "partial": ["plain"]}, "cannot have drafts"),
        ({"drafts": {"plain": [1]}, "force": {"plain": 3}}, "both drafts and a forced token"),
    ],
)
def test_drafts_that_cannot_be_verified_are_refused(arguments: dict[str, Any], message: str) -> None:
    made = engine(num_speculative_tokens=2)
    with pytest.raises(ValueError, match=message):
        made.step(**arguments)


def test_drafts_that_do_not_fit_the_model_are_refused() -> None:
    made = engine(num_speculative_tokens=2, max_model_len=5)
    made.step()
    with pytest.raises(ValueError, match="do not fit max_model_len 5"):
        made.step(drafts={"plain": [1]})


def test_the_configuration_says_that_there_are_drafts_and_which_drafter_fits() -> None:
    assert engine().config.speculative_config is None
    for options, method in (
        ({}, "ngram"),
        ({"async_scheduling": True}, "ngram_gpu"),
    ):
        found = engine(num_speculative_tokens=2, **options).config.speculative_config
        assert found is not None
        assert (found.method, found.num_speculative_tokens) == (method, 2)
