"""The built-in stages against transformers' warpers; ``tests/engine`` compares them with vLLM's."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from lpkit.runtime import LogitsSource
from lpkit.runtime.batch.noise import exponential, row_hashes
from lpkit.runtime.sampler import stages

VOCAB = 512


@pytest.fixture(scope="module")
def warpers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers").generation.logits_process


@pytest.fixture
def logits() -> torch.Tensor:
    return LogitsSource(VOCAB, seed=11).rows([("r", i) for i in range(6)])


def each(values: list[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("k", [1, 5, 200, VOCAB])
def test_top_k_keeps_what_transformers_keeps(logits: torch.Tensor, warpers: Any, k: int) -> None:
    expected = warpers.TopKLogitsWarper(k)(None, logits.clone())
    result = stages.apply_top_k_top_p(logits.clone(), torch.full((6,), k), None)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.999])
def test_top_p_keeps_what_transformers_keeps(logits: torch.Tensor, warpers: Any, p: float) -> None:
    expected = warpers.TopPLogitsWarper(p)(None, logits.clone())
    assert torch.equal(stages.apply_top_k_top_p(logits.clone(), None, torch.full((6,), p)), expected)


def test_top_k_comes_before_top_p(logits: torch.Tensor, warpers: Any) -> None:
    expected = warpers.TopPLogitsWarper(0.7)(None, warpers.TopKLogitsWarper(9)(None, logits.clone()))
    result = stages.apply_top_k_top_p(logits.clone(), torch.full((6,), 9), torch.full((6,), 0.7))
    assert torch.equal(result, expected)


@pytest.mark.parametrize("p", [0.001, 0.05, 0.3, 1.0])
def test_both_forms_of_min_p_keep_what_transformers_keeps(logits: torch.Tensor, warpers: Any, p: float) -> None:
    expected = warpers.MinPLogitsWarper(p)(None, logits.clone())
    if p == 1.0:  # transformers keeps one token at least, in case rounding dropped all
        assert (expected.isfinite().sum(-1) == 1).all()
    assert torch.equal(stages.min_p_of_probabilities(logits.clone(), torch.full((6,), p)), expected)
    assert torch.equal(stages.min_p_of_logits(logits.clone(), torch.full((6,), p)), expected)


def test_repetition_penalty_is_transformers_over_prompt_and_output(logits: torch.Tensor, warpers: Any) -> None:
    prompts = [[1, 2, 3, 3], [4], [0, 511], [9, 9], [17, 30], [2]]
    outputs = [[2, 7], [], [5, 6, 7, 7], [0], [1], [2, 2, 2]]
    result = stages.apply_penalties(
        logits.clone(),
        stages.token_counts(prompts, VOCAB, logits.device) > 0,
        stages.token_counts(outputs, VOCAB, logits.device),
        torch.full((6,), 1.7),
        torch.zeros(6),
        torch.zeros(6),
    )
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        penalty = warpers.RepetitionPenaltyLogitsProcessor(1.7)
        ids = torch.tensor([prompt + output])
        assert torch.equal(result[row], penalty(ids, logits[row : row + 1].clone())[0])


def test_sampling_follows_the_softmax_distribution() -> None:
    logits = torch.zeros(20000, 128).fill_(-math.inf)
    logits[:, :4] = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    noise = torch.from_numpy(exponential(row_hashes(0, "t", [("r", i) for i in range(20000)]), 128))
    shares = stages.sample(logits, noise).bincount(minlength=128) / 20000
    assert shares[4:].sum() == 0
    torch.testing.assert_close(shares[:4], torch.tensor([0.1, 0.2, 0.3, 0.4]), rtol=0, atol=0.015)


def test_noise_is_positive_exponential_and_independent_of_the_batch() -> None:
    hashes = row_hashes(0, "t", [("r", i) for i in range(2000)])
    noise = exponential(hashes, 512)
    assert noise.min() > 0
    assert abs(noise.mean() - 1) < 0.01 and abs(noise.std() - 1) < 0.01
    assert (exponential(hashes[1234:1235], 512) == noise[1234]).all()
