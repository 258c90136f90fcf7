"""The seeded model."""

from __future__ import annotations

import pytest
import torch
from lpkit.runtime import LogitsSource


def test_a_row_is_a_function_of_seed_key_and_position_only() -> None:
    source = LogitsSource(512, seed=3)
    keys = [(f"r{i % 50}", i) for i in range(300)]
    together = source.rows(keys)
    assert together.dtype == torch.float32 and together.shape == (300, 512)
    for i in (0, 7, 131, 299):
        assert torch.equal(source.rows([keys[i]])[0], together[i])
    assert torch.equal(LogitsSource(512, seed=3).rows(keys[::-1]), together.flip(0))


def test_seed_key_kind_of_key_and_position_all_matter() -> None:
    reference = LogitsSource(128).rows([("7", 1)])
    others = [
        LogitsSource(128, seed=1).rows([("7", 1)]),
        LogitsSource(128).rows([(7, 1)]),
        LogitsSource(128).rows([("8", 1)]),
        LogitsSource(128).rows([("7", 2)]),
    ]
    assert all((other != reference).float().mean() > 0.99 for other in others)


def test_results_belong_to_the_caller() -> None:
    source = LogitsSource(128)
    source.rows([("r", 0)]).fill_(0)
    assert source.rows([("r", 0)]).abs().sum() > 0


def test_values_are_bell_shaped_and_bounded() -> None:
    values = LogitsSource(512).rows([("r", i) for i in range(2000)])
    assert values.min() >= -6 and values.max() < 6
    assert abs(float(values.mean())) < 0.02 and abs(float(values.std()) - 2) < 0.02
    tokens = values.argmax(-1)
    assert len(tokens.unique()) > 450, "every token is the argmax sometimes"


def test_likely_tokens_are_often_the_argmax() -> None:
    tokens = LogitsSource(512, likely=(3, 400)).rows([("r", i) for i in range(1000)]).argmax(-1)
    for token in (3, 400):
        assert 0.2 < float((tokens == token).float().mean()) < 0.45


def test_no_request_gives_an_empty_batch() -> None:
    assert LogitsSource(128).rows([]).shape == (0, 128)


@pytest.mark.parametrize("vocab_size", [0, -128, 100, 1000])
def test_vocabularies_with_a_ragged_end_are_refused(vocab_size: int) -> None:
    with pytest.raises(ValueError, match="multiple of 128"):
        LogitsSource(vocab_size)


@pytest.mark.parametrize("token", [-1, 128])
def test_likely_ids_outside_the_vocabulary_are_refused(token: int) -> None:
    with pytest.raises(ValueError, match="likely"):
        LogitsSource(128, likely=(token,))
