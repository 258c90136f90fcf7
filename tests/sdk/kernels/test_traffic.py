"""Memory traffic of kernels: a logit is read from memory once while the batch fits the cache, else in each pass."""

from __future__ import annotations

import pytest
from lpkit.kernels.traffic import FUNCTIONS, PASSES, Pass, Traffic, traffic

VOCAB, CACHE = 1_000, 64_000  # 16 rows fit


def shares(passes: list[Pass], rows: int, near: float = 0.0) -> tuple[float, float]:
    """Read and written, in sizes of the logits."""
    found = traffic(passes, rows, VOCAB, CACHE, near)
    return found.read / (rows * VOCAB * 4), found.written / (rows * VOCAB * 4)


def test_passes_in_the_same_order_find_a_batch_in_the_cache_or_nothing_of_it() -> None:
    passes = [Pass(reads=1.0), Pass(reads=1.0), Pass(reads=1.0, writes=1.0)]
    assert shares(passes, 16) == (1.0, 1.0)
    assert shares(passes, 17) == (3.0, 1.0)


def test_a_mask_from_the_top_reads_again_what_holds_a_token_that_stays_and_is_not_in_the_cache() -> None:
    passes = [PASSES[name] for name in FUNCTIONS["mask_far_below_top_"]]
    assert shares(passes, 16, near=1.0) == (1.0, 1.0)
    assert shares(passes, 64) == (1.0, 1.0)
    assert shares(passes, 64, near=0.5) == (1.0 + 0.5 * 0.75, 1.0)
    assert shares(passes, 64, near=1.0) == (1.75, 1.0)


def test_what_excludes_likely_tokens_reads_and_writes_again_only_spans_that_hold_one() -> None:
    passes = [PASSES[name] for name in FUNCTIONS["exclude_top_choices_"]]
    assert shares(passes, 64) == (1.0, 0.0)
    assert shares(passes, 64, near=0.5) == (1.0 + 2 * 0.5 * 0.75, 0.5)


def test_kernels_of_a_few_logits_move_nothing_worth_counting() -> None:
    assert shares([PASSES["read"], PASSES["write"]], 64) == (0.0, 0.0)
    assert shares([PASSES[name] for name in FUNCTIONS["keep_ids_"]], 64) == (0.0, 1.0)


def test_time_is_that_of_reading_and_of_writing() -> None:
    assert Traffic(3e9, 1e9).seconds(1e-12, 2e-12) == pytest.approx(5e-3)
