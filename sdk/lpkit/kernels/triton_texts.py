"""Sparse rules as Triton kernels for CUDA that find columns and histories by slot, as a recorded step repeats them.

Each function does what the step of its name in :mod:`lpkit.portable.rules` does, to the bit, without the tensors
between its operations.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.recording import SlotHistories
from lpkit.kernels.triton_few import WARPS, mask_ids_
from lpkit.kernels.triton_hashes import AT_ONCE, drawn, mixed, seed_of
from lpkit.kernels.triton_limits import exclude_top_choices_
from lpkit.kernels.triton_masks import add_where_hashed_, keep_ids_
from lpkit.kernels.triton_rows import Entries, entry, once, ratio_up
from lpkit.kernels.triton_rows import suits as suits
from lpkit.kernels.triton_sequences import SPAN, begun_of, end_of, matches, member, text_at, text_of

COMPARED = 64
"""Tokens that a program counts, and compares with at a time."""

RIVALS = 32
"""Tokens whose matches a program compares, and compares with at a time."""

LISTED = 1024
"""Ids of a row that a program edits at a time; it has the row to itself."""


@triton.jit
def _lowered(value, count, repetition, presence, frequency, BLOCK: tl.constexpr):
    """Apply the three penalties, in the order and with the rounding of separate operations."""
    divided = tl.div_rn(value, tl.zeros((BLOCK,), tl.float32) + repetition)
    value = tl.where(value > 0, divided, value * repetition)
    value = value - frequency * count.to(tl.float32)
    return value - presence * tl.where(count > 0, 1.0, 0.0)


@once
def _lower(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, repetitions, presences, frequencies, found,
    stride, own_step, text_stride, repetition_step, presence_step, frequency_step, width, vocab,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the penalized logit of each token of a row's text: its output tokens are compared with each."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, edited, total, tokens, drafts, behind = text
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if edited & (tl.program_id(1) * BLOCK < total):
        prompt = tl.load(prompts + slot).to(tl.int32)
        token = text_at(tokens, drafts, behind, place, place < total, -1, DRAFTS).to(tl.int32)
        equal = tl.zeros((BLOCK, BLOCK), tl.int32)
        for start in range(prompt // BLOCK * BLOCK, total, BLOCK):
            other = start + tl.arange(0, BLOCK)
            counted = (other >= prompt) & (other < total)
            theirs = text_at(tokens, drafts, behind, other, counted, -2, DRAFTS).to(tl.int32)
            equal += (token[:, None] == theirs[None, :]).to(tl.int32)
        real = (token >= 0) & (token < vocab)
        value = tl.load(logits + row * stride + token, mask=real, other=0.0)
        repetition = tl.load(repetitions + slot * repetition_step)
        presence = tl.load(presences + slot * presence_step)
        frequency = tl.load(frequencies + slot * frequency_step)
        value = _lowered(value, tl.sum(equal, 1), repetition, presence, frequency, BLOCK)
        tl.store(found + row * width + place, value, mask=real)


@once
def _write_text(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, values,
    stride, own_step, text_stride, width, vocab,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the logits of a row's text; a token that occurs twice has equal values."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    _, _, total, tokens, drafts, behind = text
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (place < total) & (place < width)
    token = text_at(tokens, drafts, behind, place, inside, -1, DRAFTS)
    real = (token >= 0) & (token < vocab)
    value = tl.load(values + row * width + place, mask=real, other=0.0)
    tl.store(logits + row * stride + token, value, mask=real)


@once
def _lower_longest(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, allowed, penalties, sets, set_of, matched,
    stride, own_step, text_stride, allowed_step, penalty_stride, set_stride, set_step, width, vocab, octets, listed,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Lower the logits of tokens by the longest match that they followed: by its excess over the allowed length."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, _, total, tokens, drafts, behind = text
    matched += row * width
    allowed = tl.minimum(tl.load(allowed + slot * allowed_step), 2**31 - 1).to(tl.int32)
    sets += tl.load(set_of + slot * set_step) * set_stride
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    excess = tl.load(matched + place, mask=place < total, other=-1) - allowed
    mine = (place < total) & (excess >= 0)
    if tl.max(mine.to(tl.int32), 0) > 0:
        token = text_at(tokens, drafts, behind, place, mine, -1, DRAFTS).to(tl.int32)
        for start in range(0, total, BLOCK):
            other = start + tl.arange(0, BLOCK)
            against = tl.load(matched + other, mask=other < total, other=-1) - allowed
            rival = (other < total) & (against >= 0)
            if tl.max(rival.to(tl.int32), 0) > 0:
                theirs = text_at(tokens, drafts, behind, other, rival, -2, DRAFTS).to(tl.int32)
                before = (against[None, :] == excess[:, None]) & (other[None, :] < place[:, None])
                better = (theirs[None, :] == token[:, None]) & ((against[None, :] > excess[:, None]) | before)
                mine &= tl.max(better.to(tl.int32), 1) == 0
        mine &= (token >= 0) & (token < vocab) & (member(sets, octets, token) == 0)
        value = tl.load(logits + row * stride + token, mask=mine, other=0.0)
        less = tl.load(penalties + slot * penalty_stride + tl.minimum(excess, listed - 1), mask=mine, other=0.0)
        tl.store(logits + row * stride + token, value - less, mask=mine)


@once
def _leave(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, times, least, added, ends, matched, found,
    stride, own_step, text_stride, times_step, least_step, added_step, end_step, matched_step, width, vocab,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add to the logit of the token that continues the loop at the end of a row's text, and store the row's end token;
    -1 without a loop."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, _, total, tokens, drafts, behind = text
    repeated = tl.load(times + slot * times_step) - 1
    fewest = tl.load(least + slot * least_step)
    last = -1
    start = (total - 1) // BLOCK * BLOCK
    while (start >= 0) & (last < 0):
        place = start + tl.arange(0, BLOCK)
        span = total - place
        before = tl.load(matched + row * matched_step + place, mask=span > 0, other=0)
        loops = (span > 0) & (before >= repeated * span) & (before + span >= fewest)
        known = text_at(tokens, drafts, behind, place, loops, -1, DRAFTS) >= 0
        last = tl.max(tl.where(loops & known, place, -1), 0)
        start -= BLOCK
    end = -1
    if last >= 0:
        token = text_at(tokens, drafts, behind, last, last >= 0, -1, DRAFTS)
        value = tl.load(logits + row * stride + token, mask=token < vocab, other=0.0)
        tl.store(logits + row * stride + token, value + tl.load(added + slot * added_step), mask=token < vocab)
        end = tl.load(ends + slot * end_step).to(tl.int32)
    tl.store(found + row, end)


@once
def _thought(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, starts, ends, budgets, found,
    stride, own_step, text_stride, start_stride, end_stride, budget_step, width, vocab, start_size, end_size,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the next token of the end marker for rows that thought long enough; -1 for others."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, edited, total, tokens, drafts, behind = text
    starts += slot * start_stride
    ends += slot * end_stride
    due = -1
    if edited:
        began = end_of(tokens, drafts, behind, total, starts, start_size, DRAFTS, BLOCK)
        if (began >= 0) & (total - began >= tl.load(budgets + slot * budget_step)):
            ended = end_of(tokens, drafts, behind, total, ends, end_size, DRAFTS, BLOCK)
            if began > ended:
                written = begun_of(tokens, drafts, behind, total, began, ends, end_size, DRAFTS, BLOCK)
                due = tl.load(ends + written).to(tl.int32)
    tl.store(found + row, due)


@once
def _due(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, sequences, ends, found,
    stride, own_step, text_stride, sequence_stride, end_step, width, vocab, sequence_size,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the token of a row's sequence that its output comes to."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, edited, total, _, _, _ = text
    place = tl.minimum(total - tl.load(prompts + slot), tl.load(ends + slot * end_step))
    place = tl.minimum(tl.maximum(place, 0), sequence_size - 1)
    tl.store(found + row, tl.load(sequences + slot * sequence_stride + place, mask=edited, other=-1))


@once
def _heads(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, seeds, probabilities, found,
    stride, own_step, text_stride, seed_step, probability_step, width, vocab, nobody,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store a row's slot, or the slot of nobody: by chance, which depends on its seed and length."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, edited, total, _, _, _ = text
    one = tl.zeros((1,), tl.int64)
    state = mixed(one.to(tl.uint64, bitcast=True), tl.load(seeds + slot * seed_step) + one)
    chance = drawn(mixed(state, total + one))
    heads = edited & (chance < tl.load(probabilities + slot * probability_step))
    tl.store(found + row + tl.arange(0, 1), tl.where(heads, slot, nobody - 1))


@once
def _choose(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, firsts, spans, every, afters, befores, found,
    stride, own_step, text_stride, first_step, span_step, every_step, after_stride, before_stride, width, vocab,
    after_size, before_size, nobody,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store a row's slot, or the slot of nobody: by its position, counted from the prompt's end or from a marker."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, edited, total, tokens, drafts, behind = text
    afters += slot * after_stride
    chosen = slot * 0 + nobody - 1
    if edited:
        since = tl.load(prompts + slot).to(tl.int32)
        if tl.load(afters) >= 0:
            since = end_of(tokens, drafts, behind, total, afters, after_size, DRAFTS, BLOCK)
        ended = end_of(tokens, drafts, behind, total, befores + slot * before_stride, before_size, DRAFTS, BLOCK)
        place = (total - since).to(tl.int64) - tl.load(firsts + slot * first_step)
        due = (place >= 0) & (place < tl.load(spans + slot * span_step))
        due &= place % tl.load(every + slot * every_step) == 0
        chosen = tl.where(due & (since >= 0) & (ended <= since), slot, chosen)
    tl.store(found + row, chosen)


@once
def _seed(
    logits, slots, own, tokens, prompts, lasts, drafts, committed, counts, keys, found,
    stride, own_step, text_stride, count_step, key_step, width, vocab,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store a hash of a row's key and its last tokens."""
    row = tl.program_id(0).to(tl.int64)
    text = text_of(slots, own, own_step, tokens, text_stride, lasts, drafts, committed, row, DRAFTS)
    slot, _, total, tokens, drafts, behind = text
    count, key = tl.load(counts + slot * count_step), tl.load(keys + slot * key_step)
    seed = seed_of(tokens, drafts, behind, total, count, key, DRAFTS, BLOCK)
    tl.store(found + row + tl.arange(0, 1), seed)


@once
def _add(
    logits, slots, own, ids, values, found,
    stride, own_step, ids_stride, values_stride, k, vocab,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a row's values to the logits of its ids."""
    row = tl.program_id(0).to(tl.int64)
    slot, edited = entry(slots, own, own_step, row)
    if edited:
        logits += row * stride
        ids += slot * ids_stride
        for start in range(0, k, BLOCK):
            place = start + tl.arange(0, BLOCK)
            token = tl.load(ids + place, mask=place < k, other=-1)
            real = (token >= 0) & (token < vocab)
            value = tl.load(logits + token, mask=real, other=0.0)
            value += tl.load(values + slot * values_stride + place, mask=real, other=0.0)
            tl.store(found + row * k + place, value, mask=real)
        tl.debug_barrier()  # read all before writing: an id may occur twice
        for start in range(0, k, BLOCK):
            place = start + tl.arange(0, BLOCK)
            token = tl.load(ids + place, mask=place < k, other=-1)
            real = (token >= 0) & (token < vocab)
            tl.store(logits + token, tl.load(found + row * k + place, mask=real, other=0.0), mask=real)


def add_to_ids_(logits: torch.Tensor, ids: torch.Tensor, values: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Add the columns' values to the logits of the columns' ids, ``[slots + 1, k]`` each."""
    slots, own, own_step, _ = entries
    rows, vocab = logits.shape
    found = torch.empty(rows, ids.shape[1], dtype=torch.float32, device=logits.device)
    sizes = (logits.stride(0), own_step, ids.stride(0), values.stride(0), ids.shape[1], vocab)
    launch(_add, (rows,), (logits, slots, own, ids, values, found, *sizes), BLOCK=LISTED, num_warps=WARPS)
    return logits


def penalize_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories) -> torch.Tensor:
    """Lower the logits of a text's tokens by its repetition, presence and frequency penalties."""
    found = _memory(logits, texts, torch.float32)
    # Multiplying and adding in one instruction would round once where the operations of torch round twice.
    _over(_lower, logits, entries, texts, columns, found, COMPARED, tiled=True, enable_fp_fusion=False)
    _over(_write_text, logits, entries, texts, (), found, LISTED, tiled=True)
    return logits


def ban_ngrams_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories) -> torch.Tensor:
    """Mask tokens that would complete an n-gram of the last output tokens again.

    Args:
        logits: of the batch.
        columns: the n-grams' size, and how many last tokens count; perhaps sets of tokens that are not masked.
        entries, texts: of the rows.
    """
    size, window, *sets = columns
    ids = _memory(logits, texts, torch.int64)
    matches("ids", ids, entries, texts, size, window, tuple(sets), since_prompt=True)
    return mask_ids_(logits, ids, entries)


ban_ngrams_except_ = ban_ngrams_


def penalize_repetitions_(
    logits: torch.Tensor, window: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories
) -> torch.Tensor:
    """Lower the logits of tokens that would continue a repetition without tokens of a set."""
    _, penalties, *sets = columns
    matched = _memory(logits, texts, torch.int32)
    matches("lengths", matched, entries, texts, window=window, sets=tuple(sets))
    sizes = (sets[0].shape[1], penalties.shape[1])
    _over(_lower_longest, logits, entries, texts, columns, matched, RIVALS, sizes, tiled=True)
    return logits


def leave_loop_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories) -> torch.Tensor:
    """Add to the logits of tokens that would continue a loop, and keep only the end token, if there is one."""
    matched = _memory(logits, texts, torch.int32)
    matches("lengths", matched, entries, texts, since_prompt=True)
    return keep_ids_(logits, _over(_leave, logits, entries, texts, (*columns, matched), None, SPAN))


def end_thinking_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories) -> torch.Tensor:
    """Keep only the end marker's next token in rows that thought long enough, by their markers and budget."""
    sizes = columns[0].shape[1], columns[1].shape[1]
    return keep_ids_(logits, _over(_thought, logits, entries, texts, columns, None, SPAN, sizes))


def force_sequence_(
    logits: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories
) -> torch.Tensor:
    """Keep only the token that is due, by sequences and the places at which they stay."""
    return keep_ids_(logits, _over(_due, logits, entries, texts, columns, None, AT_ONCE, (columns[0].shape[1],)))


def exclude_sometimes_(
    logits: torch.Tensor, seed: torch.Tensor, probability: torch.Tensor, temperature: torch.Tensor,
    log_threshold: torch.Tensor, keep: torch.Tensor, entries: Entries, texts: SlotHistories,
) -> torch.Tensor:  # fmt: skip
    """Exclude top choices of some rows, which chance selects."""
    some = _over(_heads, logits, entries, texts, (seed, probability), None, AT_ONCE, (entries.size,))
    return exclude_top_choices_(logits, temperature, log_threshold, keep, entries=entries._replace(slots=some))


def choose_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries, texts: SlotHistories) -> torch.Tensor:
    """Return the slots of the rows at which a step acts, as :meth:`lpkit.rules.when.Conditional.acting` decides it by
    the same columns, and the slot of nobody for others."""
    sizes = columns[3].shape[1], columns[4].shape[1], entries.size
    return _over(_choose, logits, entries, texts, columns, None, SPAN, sizes)


def bias_by_context_(
    logits: torch.Tensor, count: torch.Tensor, key: torch.Tensor, limit: torch.Tensor, bias: torch.Tensor,
    entries: Entries, texts: SlotHistories,
) -> torch.Tensor:  # fmt: skip
    """Add a bias to tokens that a hash of the last tokens selects."""
    seeds = torch.empty(logits.shape[0], 1, dtype=torch.int32, device=logits.device)
    _over(_seed, logits, entries, texts, (count, key), seeds, AT_ONCE)
    return add_where_hashed_(logits, seeds, limit, bias, entries)


def _memory(logits: torch.Tensor, texts: SlotHistories, dtype: torch.dtype) -> torch.Tensor:
    """Return memory for a number per token of each row's text."""
    return torch.empty(logits.shape[0], texts.width, dtype=dtype, device=logits.device)


def _over(
    kernel: Any, logits: torch.Tensor, entries: Entries, texts: SlotHistories, columns: tuple[torch.Tensor, ...],
    found: torch.Tensor | None, block: int, sizes: tuple[int, ...] = (), tiled: bool = False, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Launch a kernel with a program for each row, or ``tiled`` for each ``block`` tokens of it; return ``found``.

    The kernel takes the logits, the rows' entries and texts, columns, memory for what is found (by default an int64 per
    row), the strides of all of these, the texts' width, the vocabulary, and ``sizes``.
    """
    rows, vocab = logits.shape
    if found is None:
        found = torch.empty(rows, 1, dtype=torch.int64, device=logits.device)
    grid = (rows, ratio_up(texts.width, block)) if tiled else (rows,)
    strides = (logits.stride(0), entries.step, texts.held.stride(0), *(item.stride(0) for item in columns))
    given = (logits, entries.slots, entries.own, *texts[:5], *columns, found, *strides, texts.width, vocab, *sizes)
    warps = 1 if block < RIVALS else WARPS
    launch(kernel, grid, given, DRAFTS=texts.kind, BLOCK=block, num_warps=warps, **options)
    return found


def attempt(device: torch.device) -> None:
    """Run the kernel without texts, which compiles it; others run for the steps that use them."""
    logits, ids = torch.zeros(2, 8, device=device), torch.zeros(2, 3, dtype=torch.int64, device=device)
    add_to_ids_(logits, ids, logits, Entries(ids[:, 0], ids[:, 0] > 0, 1, 2))
