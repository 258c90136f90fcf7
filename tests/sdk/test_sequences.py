"""Vectorized searches in token histories; tests/reference_plugins compares rules that search with plain Python."""

from __future__ import annotations

import random

import pytest
import torch
from lpkit import sequences
from lpkit.kernels import fused, sorting
from sdk_hosts import HOST_SYNCS, recorded_ops


def padded(histories: list[list[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.full((len(histories), width), -1)
    for row, ids in zip(rows, histories, strict=True):
        row[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return rows, torch.tensor([len(ids) for ids in histories])


def few_kinds(rng: random.Random, width: int, kinds: int) -> list[list[int]]:
    fixed = [[], [3], [3] * width, [0, 1] * (width // 2), list(range(width))]
    return fixed + [[rng.randrange(kinds) for _ in range(rng.randint(0, width))] for _ in range(30)]


def test_where_numpy_cannot_look_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, lengths = padded(few_kinds(random.Random(9), 40, 3), 40)
    size = torch.randint(1, 6, (len(lengths),), generator=torch.Generator().manual_seed(0))
    chosen = tokens % 2 == 1

    def asked() -> list[torch.Tensor]:
        return [
            sequences.match_lengths(tokens, lengths),
            sequences.completes_ngram(tokens, lengths, size, lengths - 30),
            sequences.counts(tokens, chosen),
        ]

    here = asked()
    monkeypatch.setattr(fused, "on_host", lambda values: False)
    monkeypatch.setattr(sorting, "on_host", lambda values: False)
    for one, other in zip(here, asked(), strict=True):
        assert torch.equal(one, other)


def test_a_pattern_that_has_begun_is_recognized_by_its_longest_beginning() -> None:
    rng = random.Random(2)
    histories = few_kinds(rng, 32, 2) * 4
    patterns = [[rng.randrange(3) for _ in range(rng.randint(0, 4))] for _ in histories]
    since = [rng.randint(-2, len(ids)) for ids in histories]
    given = *padded(histories, 32), padded(patterns, 4)[0], torch.tensor(since)
    found = sequences.begun(*given).tolist()
    for ids, pattern, start, length in zip(histories, patterns, since, found, strict=True):
        fitting = [k for k in range(1, len(pattern)) if len(ids) - k >= start and ids[-k:] == pattern[:k]]
        assert length == max(fitting, default=0)
    assert max(found) == 3


def test_each_id_keeps_its_largest_value_once() -> None:
    rng = random.Random(4)
    ids = torch.tensor([[rng.randint(-3, 5) for _ in range(12)] for _ in range(40)])
    values = torch.tensor([[rng.randint(-2, 8) for _ in range(12)] for _ in range(40)])
    found_ids, found_values = sequences.largest_per_id(ids, values)
    for row in range(40):
        expected: dict[int, int] = {}
        for token, value in zip(ids[row].tolist(), values[row].tolist(), strict=True):
            if token >= 0 and value >= 0:
                expected[token] = max(value, expected.get(token, 0))
        found = [
            (token, value)
            for token, value in zip(found_ids[row].tolist(), found_values[row].tolist(), strict=True)
            if token >= 0
        ]
        assert sorted(found) == sorted(expected.items())


def test_no_search_waits_for_the_device_or_works_row_by_row() -> None:
    used = []
    for n in (2, 16):
        tokens, lengths = padded([[1, 2, 1, 2]] * n, 64)
        pattern = torch.tensor([[1, 2]] * n)
        with recorded_ops() as names:
            sequences.match_lengths(tokens, lengths)
            sequences.completes_ngram(tokens, lengths, lengths, lengths)
            sequences.end_of_last(tokens, pattern)
            sequences.begun(tokens, lengths, pattern, lengths)
            sequences.next_in_loop(tokens, lengths, lengths, lengths)
            sequences.counts(tokens, tokens >= 0)
            sequences.largest_per_id(tokens, tokens.clamp(min=0))
        used.append(names)
    assert used[0] == used[1]
    assert not HOST_SYNCS & set(used[0])


def test_short_and_empty_histories_and_empty_patterns_match_nothing() -> None:
    tokens, lengths = padded([[], [1, 2], [1, 2, 1, 2]], 4)
    zero = torch.zeros(3, dtype=torch.int64)
    empty, longer = torch.full((3, 2), -1), torch.tensor([[1, 2, 1, 2, 1]] * 3)
    assert sequences.match_lengths(tokens, lengths).tolist() == [[0] * 4, [0] * 4, [0, 0, 2, 0]]
    assert sequences.end_of_last(tokens, empty).tolist() == [-1] * 3
    assert sequences.end_of_last(tokens, longer).tolist() == [-1] * 3
    assert sequences.begun(tokens, lengths, empty, zero).tolist() == [0] * 3
    assert sequences.begun(tokens, lengths, longer, zero).tolist() == [0, 2, 4]
    same = torch.full((3, 5), 1)  # no token stands before the history, however early `since` is
    assert sequences.begun(tokens[:, :1], lengths.clamp(max=1), same, zero - 9).tolist() == [0, 1, 1]
    assert not sequences.completes_ngram(tokens, lengths, torch.full((3,), 9), zero).any()
    assert torch.equal(sequences.completes_ngram(tokens, lengths, torch.ones_like(zero), zero), tokens >= 0)
    assert sequences.counts(tokens, tokens >= 0).tolist()[:2] == [[0] * 4, [1, 1, 0, 0]]


def test_no_rows_are_no_accident() -> None:
    tokens, lengths, pattern = torch.empty(0, 4).long(), torch.empty(0).long(), torch.empty(0, 2).long()
    assert sequences.match_lengths(tokens, lengths).shape == (0, 4)
    assert sequences.end_of_last(tokens, pattern).shape == (0,)
    assert sequences.begun(tokens, lengths, pattern, lengths).shape == (0,)
    assert sequences.next_in_loop(tokens, lengths, lengths, lengths).shape == (0,)
    assert sequences.counts(tokens, tokens >= 0).shape == (0, 4)
