"""Steps that one function of :mod:`lpkit.kernels.triton_texts` does, written as authors write them.

The parameters are the logits, the rows, and the columns that the Triton function takes, in its order. A plugin's step
is recorded if it computes the same, whatever its names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from lpkit import kernels, rng, sequences
from lpkit.columns.ragged import element_at
from lpkit.columns.token_set import in_set
from lpkit.kernels.recording import MOST_COMPARED, OfSlots, Recorder, Shared, SlotRule, StandInRows, form_of

FLOAT, LONG, INT = (torch.float32, 1), (torch.int64, 1), (torch.int32, 1)
FLOATS, LONGS, MASKS = (torch.float32, 2), (torch.int64, 2), (torch.uint8, 2)
SHARED = (torch.float32, 0)
"""A tensor that is the same for all rows."""

Columns = tuple[tuple[torch.dtype, int], ...]
_STEPS: list[tuple[Callable[..., Any], Columns, dict[str, Any]]] = []
"""Steps, types and dimensions of their columns, and the other fields of :class:`SlotRule`."""


def _rule(*columns: tuple[torch.dtype, int], **options: Any) -> Callable[[Callable[..., Any]], None]:
    return lambda step: _STEPS.append((step, columns, options))


@cache
def rules() -> dict[Any, SlotRule]:
    """Return the rules by the form of the step."""
    by_form = {}
    for step, columns, options in _STEPS:
        made, given = _made(step, columns)
        form, read = form_of(made)
        numbers = {item.data_ptr(): number for number, item in enumerate(given)}
        by_form[form] = SlotRule(f"{step.__name__}_", tuple(numbers[item.data_ptr()] for item in read), **options)
    return by_form


@cache
def steps() -> dict[str, tuple[Callable[..., Any], Columns, bool]]:
    """Return the steps by the names of their functions, with their columns, and True if they edit chosen logits."""
    return {
        f"{step.__name__}_": (step, columns, _made(step, columns)[0][0][0] == "write") for step, columns, _ in _STEPS
    }


def _made(step: Callable[..., Any], columns: Columns) -> tuple[tuple[tuple[Any, ...], ...], list[torch.Tensor]]:
    """Return the calls of a step that edit, and the memory that stands for its columns."""
    given = [torch.empty((1,) * max(1, ndim), dtype=dtype) for dtype, ndim in columns]
    logits = Recorder()
    stand_ins = (OfSlots(item) if ndim else Shared(item) for item, (_, ndim) in zip(given, columns, strict=True))
    step(logits, StandInRows("tokens", torch.empty(1)), *stand_ins)
    return tuple(logits.made), given


def _at(lists: Any, positions: Any) -> Any:
    """See :meth:`lpkit.columns.ragged.RaggedColumn.at`."""
    return lists.at(positions) if isinstance(lists, OfSlots) else element_at(lists, positions)


def _in_set(masks: Any, set_of: Any, ids: Any) -> Any:
    """See :meth:`lpkit.columns.token_set.TokenSetColumn.contains`."""
    return masks.contains(set_of, ids) if isinstance(masks, OfSlots) else in_set(masks, set_of, ids)


@_rule(FLOAT, FLOAT, FLOAT, pairs=MOST_COMPARED**2)
def penalize(logits: Any, rows: Any, repetition: Any, presence: Any, frequency: Any) -> None:
    values, count = logits[rows.tokens], sequences.counts(rows.tokens, rows.is_output)
    values = (values / repetition.unsqueeze(1)).where(values > 0, values * repetition.unsqueeze(1))
    logits[rows.tokens] = values - count * frequency.unsqueeze(1) - (count > 0) * presence.unsqueeze(1)


@_rule(LONG, LONG)
def ban_ngrams(logits: Any, rows: Any, size: Any, window: Any) -> None:
    since = rows.prompt_len.maximum(rows.total_len - window)
    repeats = sequences.completes_ngram(rows.tokens, rows.total_len, size, since)
    kernels.mask_ids_(logits, rows.tokens.where(repeats, -1))


@_rule(LONG, LONG, MASKS, LONGS)
def ban_ngrams_except(logits: Any, rows: Any, size: Any, window: Any, sets: Any, set_of: Any) -> None:
    since = rows.prompt_len.maximum(rows.total_len - window)
    repeats = sequences.completes_ngram(rows.tokens, rows.total_len, size, since)
    banned = repeats > _in_set(sets, set_of, rows.tokens)
    kernels.mask_ids_(logits, rows.tokens.where(banned, -1))


@_rule(LONG, LONG, FLOATS, MASKS, LONGS, pairs=MOST_COMPARED**2)
def penalize_repetitions(
    logits: Any, rows: Any, window: Any, allowed: Any, penalties: Any, sets: Any, set_of: Any
) -> None:
    breaks = _in_set(sets, set_of, rows.tokens)
    length = sequences.match_lengths(rows.tokens, rows.total_len, rows.total_len - window, breaks)
    excess = length - allowed.unsqueeze(1)
    ids, excess = sequences.largest_per_id(rows.tokens.masked_fill(breaks, -1), excess)
    logits[ids] = logits[ids] - _at(penalties, excess)


@_rule(LONGS, LONGS, LONG)
def end_thinking(logits: Any, rows: Any, start: Any, end: Any, budget: Any) -> None:
    began = sequences.end_of_last(rows.tokens, start)
    spent = rows.total_len - began
    written = sequences.begun(rows.tokens, rows.total_len, end, since=began)
    forced = (began > sequences.end_of_last(rows.tokens, end)) & (spent >= budget)
    kernels.keep_ids_(logits, end.gather(1, written.unsqueeze(1)), forced.unsqueeze(1))


@_rule(LONGS, LONG)
def force_sequence(logits: Any, rows: Any, due: Any, last: Any) -> None:
    kernels.keep_ids_(logits, _at(due, rows.output_len.minimum(last).unsqueeze(1)))


@_rule(LONG, FLOAT, FLOAT, FLOAT, LONGS)
def exclude_sometimes(
    logits: Any, rows: Any, seed: Any, probability: Any, temperature: Any, log_threshold: Any, keep: Any
) -> None:
    heads = rng.uniform(seed, rows.total_len) < probability
    kernels.exclude_top_choices_(logits, temperature.unsqueeze(1), log_threshold.unsqueeze(1), keep, heads.unsqueeze(1))


@_rule(LONG, LONG, INT, FLOAT)
def bias_by_context(logits: Any, rows: Any, context: Any, key: Any, limit: Any, bias: Any) -> None:
    seeds = rng.context_seeds(rows.tokens, rows.total_len, context, key, 8)
    kernels.add_where_hashed_(logits, seeds, limit.unsqueeze(1), bias.unsqueeze(1))


@_rule(LONGS, LONG, LONG, LONG, FLOAT, SHARED, LONGS)
def hold_tournament(
    logits: Any, rows: Any, weights: Any, size: Any, oldest: Any, first: Any, temperature: Any, bits: Any, shifts: Any
) -> None:
    since = (rows.prompt_len + first).maximum(rows.total_len - oldest)
    seeds = sequences.fresh_context(rows.tokens, rows.is_output, rows.total_len, weights, size, since)
    kernels.tournament_(logits, temperature.unsqueeze(1), bits, seeds, shifts)


@_rule(LONG, LONG, FLOAT, LONG)
def leave_loop(logits: Any, rows: Any, times: Any, least: Any, added: Any, end: Any) -> None:
    token = sequences.next_in_loop(rows.tokens, rows.total_len, times, least, rows.prompt_len).unsqueeze(1)
    looping = token >= 0
    logits.scatter_add_(1, token.clamp(0), added.unsqueeze(1).where(looping, -0.0))
    kernels.keep_ids_(logits, end.unsqueeze(1), looping)
