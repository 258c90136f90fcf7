"""The built-in stages against transformers' warpers and against closed forms."""

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


def test_temperature_divides_and_leaves_greedy_rows(logits: torch.Tensor) -> None:
    temperatures = [0.5, 0.0, 1.0, 2.0, 1e-6, 0.01]
    result = stages.apply_temperature(logits.clone(), each(temperatures))
    for row, t in enumerate(temperatures):
        assert torch.equal(result[row], logits[row] / (t if t >= 1e-5 else 1.0))


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


def test_rows_have_their_own_top_k_and_top_p(logits: torch.Tensor) -> None:
    top_k, top_p = torch.tensor([1, 3, VOCAB, VOCAB, 2, VOCAB]), each([1, 1, 1, 0.5, 0.9, 1e-9])
    together = stages.apply_top_k_top_p(logits.clone(), top_k, top_p)
    for row in range(6):
        alone = stages.apply_top_k_top_p(logits[row : row + 1].clone(), top_k[row, None], top_p[row, None])
        assert torch.equal(together[row], alone[0])
    kept = together.isfinite().sum(-1).tolist()
    assert kept[:3] == [1, 3, VOCAB] and kept[4] <= 2 and kept[5] == 1


def test_top_k_keeps_ties_with_the_kth() -> None:
    logits = each([5.0, 3.0, 3.0, 3.0, 1.0]).unsqueeze(0)
    assert stages.apply_top_k_top_p(logits, torch.tensor([2]), None).isfinite().tolist() == [
        [True, True, True, True, False]
    ]


@pytest.mark.parametrize("p", [0.001, 0.05, 0.3, 1.0])
def test_both_forms_of_min_p_keep_what_transformers_keeps(logits: torch.Tensor, warpers: Any, p: float) -> None:
    expected = warpers.MinPLogitsWarper(p)(None, logits.clone())
    if p == 1.0:  # transformers keeps one token at least, in case rounding dropped all
        assert (expected.isfinite().sum(-1) == 1).all()
    assert torch.equal(stages.min_p_of_probabilities(logits.clone(), torch.full((6,), p)), expected)
    assert torch.equal(stages.min_p_of_logits(logits.clone(), torch.full((6,), p)), expected)


def test_min_p_of_zero_keeps_every_token_of_its_row(logits: torch.Tensor) -> None:
    for stage in (stages.min_p_of_probabilities, stages.min_p_of_logits):
        result = stage(logits.clone(), each([0, 0.5, 0, 0.5, 0, 0.5]))
        assert torch.equal(result[::2], logits[::2]) and result[1::2].isinf().any(-1).all()


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


def test_frequency_and_presence_penalties_follow_the_openai_formula(logits: torch.Tensor) -> None:
    frequency, presence = each([0.5, 0, 1, -1, 0, 2]), each([0, 0.5, 1, 1, 0, -2])
    outputs = [[1, 1, 1], [2, 2], [3], [0, 511, 0], [], [5]]
    result = stages.apply_penalties(
        logits.clone(),
        stages.token_counts([[1, 2, 3]] * 6, VOCAB, logits.device) > 0,
        stages.token_counts(outputs, VOCAB, logits.device),
        torch.ones(6),
        frequency,
        presence,
    )
    expected = logits.clone()
    for row, output in enumerate(outputs):
        for token in set(output):
            expected[row, token] -= frequency[row] * output.count(token) + presence[row]
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)
    untouched = result == logits
    assert all(untouched[row].sum() >= VOCAB - len(set(ids)) for row, ids in enumerate(outputs))


def test_penalties_keep_impossible_tokens_impossible(logits: torch.Tensor) -> None:
    logits[:, :10] = -math.inf
    counts = stages.token_counts([list(range(20))] * 6, VOCAB, logits.device)
    result = stages.apply_penalties(logits, counts > 0, counts, torch.full((6,), 2.0), torch.ones(6), torch.ones(6))
    assert result[:, :10].isneginf().all() and not result.isnan().any()


def test_counts_ignore_placeholders_and_foreign_ids() -> None:
    counts = stages.token_counts([[0, -1, 0], [], [127, 128, 500]], 128, torch.device("cpu"))
    assert counts.sum(-1).tolist() == [2, 0, 1] and counts[0, 0] == 2 and counts[2, 127] == 1


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
