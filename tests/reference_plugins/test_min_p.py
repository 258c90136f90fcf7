"""lpkit-min-p against transformers' MinPLogitsWarper and against the definition, on both runners."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lpkit_min_p import MinP
from oracles import agree
from plugin_hosts import Asked, assert_cheap
from sdk_hosts import V1Host, V2Host, params

VOCAB = 512
THRESHOLDS = [0.001, 0.05, 0.1, 0.5, 0.999, 1.0]


def on_v1(logits: torch.Tensor, temperature: torch.Tensor, thresholds: list[float]) -> torch.Tensor:
    host = V1Host(MinP, max_num_seqs=len(thresholds), vocab_size=logits.shape[1])
    host.update(
        len(thresholds),
        added=[
            (i, params(temperature=float(t), min_p_threshold=p), [1], [])
            for i, (t, p) in enumerate(zip(temperature, thresholds, strict=True))
        ],
    )
    return host.apply(logits / temperature)


def on_v2(logits: torch.Tensor, temperature: torch.Tensor, thresholds: list[float]) -> torch.Tensor:
    host = V2Host(MinP, max_num_reqs=len(thresholds), vocab_size=logits.shape[1])
    for slot, (t, p) in enumerate(zip(temperature, thresholds, strict=True)):
        host.add(slot, params(temperature=float(t), min_p_threshold=p), [1])
    host.flush()
    return host.apply(logits.clone(), host.context(range(len(thresholds)))) / temperature


HOSTS = pytest.mark.parametrize("processed", [on_v1, on_v2])


def random_logits(seed: int, rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@HOSTS
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_it_keeps_what_transformers_keeps(
    processed: Any, seed: int, temperature: float, transformers_rules: Any
) -> None:
    logits = random_logits(seed, len(THRESHOLDS))
    result = processed(logits, torch.full((len(THRESHOLDS), 1), temperature), THRESHOLDS)
    for row, threshold in enumerate(THRESHOLDS):
        scaled = logits[row : row + 1] / temperature
        expected = transformers_rules.MinPLogitsWarper(threshold)(None, scaled.clone())[0]
        # Both round; only a token on the very threshold may be seen differently.
        doubtful = (scaled[0] - scaled.max() - math.log(threshold)).abs() < 1e-5
        assert doubtful.sum() <= 1 + (threshold == 1.0)
        agree(result[row][~doubtful], expected[~doubtful], "transformers' MinPLogitsWarper")


@HOSTS
def test_every_row_has_a_temperature_of_its_own(processed: Any) -> None:
    logits = random_logits(99, 4)
    temperature = torch.tensor([[0.1], [0.7], [1.0], [2.0]])
    result = processed(logits, temperature, [0.1] * 4)
    shares = torch.softmax(logits.double() / temperature.double(), -1)
    kept = shares >= 0.1 * shares.amax(-1, keepdim=True)
    agree(result > -math.inf, kept, "the definition in float64", "which tokens stay")
    assert kept.sum(-1).tolist() == sorted(kept.sum(-1).tolist())  # hotter keeps more


@HOSTS
def test_ties_at_the_top_all_stay(processed: Any) -> None:
    logits = torch.tensor([[3.0, 3.0, 1.0, 3.0]])
    assert (processed(logits, torch.ones(1, 1), [1.0]) > -math.inf).tolist() == [[True, True, False, True]]


@HOSTS
def test_rows_with_masked_tokens_never_turn_into_nan(processed: Any) -> None:
    logits = torch.full((2, VOCAB), -math.inf)
    logits[0, 5] = 2.0
    result = processed(logits, torch.ones(2, 1), [0.1, 0.1])
    assert torch.equal(result, logits)


def test_it_costs_no_second_tensor_and_nothing_per_row() -> None:
    assert_cheap(MinP, Asked({"min_p_threshold": 0.1}))
