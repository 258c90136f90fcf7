"""Histories, and functions of :mod:`lpkit.sequences`, as Triton kernels for CUDA, without hashes.

Each function answers as the function of its name documents, and takes one launch. :func:`over_texts` applies a rule to
each row's text, for :mod:`lpkit.kernels.triton_texts` too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from lpkit.kernels.elementwise import MOST_COLUMNS
from lpkit.kernels.launching import launch
from lpkit.kernels.recording import Entries, SlotHistories
from lpkit.kernels.triton_rows import by_row, entry, once, ratio_up

WARPS = 4
LEAST_SHARED = 32  # tokens of a program that has several warps
SPAN = 1024  # tokens of a history that a program with its own history reads at a time
POSITIONS = 256  # positions of a history for which a program finds matches
NEAR = tl.constexpr(8)  # tokens before each position that are compared at a time, up to REACH
REACH = tl.constexpr(2 * POSITIONS)
FURTHER = tl.constexpr(SPAN)  # tokens before one position that are compared at a time


@triton.jit
def drafts_of(tokens, drafts, committed, slot, row, length, DRAFTS: tl.constexpr):
    """Return a text: (its tokens, its drafts by position, position of the first draft). No row is before the first.

    ``DRAFTS``: see :attr:`lpkit.kernels.recording.SlotHistories.kind`.
    """
    behind = length
    if DRAFTS > 0:
        drafts += row + 1 - length
    if DRAFTS == 1:
        behind = tl.maximum(tl.load(committed + slot).to(tl.int32), length - 1 - row.to(tl.int32))
    if DRAFTS == 2:  # no program reads where all programs of the row write
        behind = length - 1
        tl.store(tokens + behind, tl.load(drafts + behind, mask=length > 0, other=0), mask=length > 0)
    return tokens, drafts, behind


@triton.jit
def text_at(text, place, mask, FILL: tl.constexpr, DRAFTS: tl.constexpr):
    """Read tokens of a text. ``DRAFTS``: tokens behind the committed ones lie elsewhere."""
    tokens, drafts, committed = text
    if DRAFTS > 0:
        behind = place >= committed
        token = tl.load(tokens + place, mask=mask & (place < committed), other=FILL)
        token = tl.where(behind, tl.load(drafts + place, mask=mask & behind, other=FILL).to(token.dtype), token)
    else:
        token = tl.load(tokens + place, mask=mask, other=FILL)
    return token


@triton.jit
def member(sets, octets, token):
    """Test if tokens are in a set, a bit mask; ids outside of it are not."""
    in_range = (token >= 0) & (token >> 3 < octets)
    octet = tl.load(sets + (token >> 3), mask=in_range, other=0).to(tl.int32)
    return ((octet >> (token & 7).to(tl.int32)) & 1) > 0


@once
def _by_text(
    logits, slots, active, tokens, prompts, lasts, drafts, committed, first, second, third, fourth, fifth, scratch,
    stride, active_step, text_stride, first_step, second_step, third_step, fourth_step, fifth_step,
    first_size, second_size, third_size, fourth_size, fifth_size, width, vocab, nobody,
    RULE: tl.constexpr, DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Apply a rule to a row's text, in one program or in one for each ``BLOCK`` tokens. A row's programs come one after
    the other, because they read the same tokens.

    ``RULE`` gets (row, slot, True if edited, prompt's length, text's length); the text; (memory, elements from one slot
    to the next, width) of each column; the row's logits; the scratch memory; (width of the texts,
    vocabulary, slot of nobody).
    """
    row = tl.program_id(1).to(tl.int64)
    slot, edited = entry(slots, active, active_step, row)
    prompt = tl.load(prompts + slot, mask=edited & (DRAFTS >= 0), other=0).to(tl.int32)
    total = tl.where(edited, tl.load(lasts + row) + 1, 0).to(tl.int32)
    text = drafts_of(tokens + slot * text_stride, drafts, committed, slot, row, total, DRAFTS)
    at = row, slot, edited, prompt, total
    columns = (
        (first, first_step, first_size),
        (second, second_step, second_size),
        (third, third_step, third_size),
        (fourth, fourth_step, fourth_size),
        (fifth, fifth_step, fifth_size),
    )
    RULE(at, text, columns, logits + row * stride, scratch, (width, vocab, nobody), DRAFTS, BLOCK)


@triton.jit
def values_of(column, which):
    """Return the memory of an entry's values."""
    return column[0] + which * column[1]


@triton.jit
def _common(text, earlier, later, count, DRAFTS: tl.constexpr):
    """Count equal tokens before two positions, ``earlier < later``; ``count`` of them are known to be equal."""
    going = count < earlier
    while going:
        back = count + 1 + tl.arange(0, FURTHER)
        there = back <= earlier
        mine = text_at(text, earlier - back, there, 0, DRAFTS)
        theirs = text_at(text, later - back, there, 0, DRAFTS)
        equal = tl.min(tl.where(there & (mine == theirs), FURTHER, tl.arange(0, FURTHER)), 0)
        count += equal
        going = equal == FURTHER
    return count


@triton.jit
def _first(since, windows, slot, length):
    """Return the first position that counts: from which on a row's tokens count, or so many last ones."""
    first = tl.load(values_of(since, slot), mask=since[2] > 0, other=0)
    first = tl.minimum(tl.maximum(first, 0), length).to(tl.int32)
    window = tl.load(values_of(windows, slot), mask=windows[2] > 0, other=2**31 - 1)
    return tl.minimum(tl.maximum(length - window, first), length).to(tl.int32)


@triton.jit
def _matched(text, length, first, enough, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return (a program's positions, how many tokens before each equal the end of the history); ``enough`` of them are
    compared.

    All positions of a program are compared together, until none matches. If several match ``REACH`` tokens, they lie in
    one periodic stretch, a period apart: two occurrences of a string at most half its length apart overlap in a period
    of it. The period's reach, before the last of them and before the end, decides the length of each match. One case is
    left: a position before which the period reaches as far as before the end. This position, or a single match, is
    compared further.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    matched = tl.zeros((BLOCK,), tl.int32)
    same = (place < length) & (place >= first)
    done = 0
    while (done < tl.minimum(REACH, enough)) & (tl.max(same.to(tl.int32), 0) > 0):
        back = done + 1 + tl.arange(0, NEAR)
        last = text_at(text, length - back, back <= length, 0, DRAFTS)
        before = place[:, None] - back[None, :]
        there = same[:, None] & (before >= 0)
        equal = there & (text_at(text, before, there, 0, DRAFTS) == last[None, :])
        more = tl.min(tl.where(equal, NEAR, tl.arange(0, NEAR)[None, :]), 1)
        matched += tl.where(same, more, 0)
        same &= more == NEAR
        done += NEAR
    alone = tl.max(tl.where(same, place, -1), 0)
    if (alone >= 0) & (done < enough):
        count = done
        second = tl.max(tl.where(same & (place < alone), place, -1), 0)
        if second >= 0:
            period = alone - second
            count = done - period
            before_end = _common(text, length - period, length, count, DRAFTS)
            before_end += period
            before_last = _common(text, second, alone, count, DRAFTS)
            before_last += period
            before_each = before_last - (alone - place)
            matched = tl.where(same, tl.minimum(before_each, before_end), matched)
            alone = tl.max(tl.where(same & (before_each == before_end), place, -1), 0)
            count = before_end
        if alone >= 0:
            further = _common(text, alone, length, count, DRAFTS)
            matched = tl.where(place == alone, further, matched)
    return place, matched


@triton.jit
def matched_lengths(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store how many tokens before each position equal the end of the history. No match contains a token of the row's
    set, and only tokens from a position on, or so many last ones, count."""
    row, slot, _, _, length = at
    since, windows, sets, set_of, _ = columns
    width, _, _ = sizes
    first = _first(since, windows, slot, length)
    number = tl.load(values_of(set_of, slot), mask=sets[2] > 0, other=0)
    start = tl.where(number > 0, length, first)  # set 0 is empty
    broken = first - 1
    while (start > first) & (broken < first):
        start -= FURTHER
        item = start + tl.arange(0, FURTHER)
        there = (item >= first) & (item < length)
        token = text_at(text, item, there, -1, DRAFTS)
        broken = tl.max(tl.where(member(values_of(sets, number), sets[2], token), item, first - 1), 0)
    enough = length - 1 - broken
    place, matched = _matched(text, length, first, enough, DRAFTS, BLOCK)
    most = tl.minimum(enough, tl.maximum(place - first, 0))
    tl.store(scratch + row * width + place, tl.minimum(matched, most), mask=place < width)


@triton.jit
def _completing(at, text, columns, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return (a program's positions, True if the token at the position completes an n-gram of a row's size again)."""
    _, slot, _, _, length = at
    since, windows, ngrams, _, _ = columns
    first = _first(since, windows, slot, length)
    enough = tl.minimum(tl.load(values_of(ngrams, slot)) - 1, length + 1).to(tl.int32)
    place, matched = _matched(text, length, first, enough, DRAFTS, BLOCK)
    return place, (place < length) & (matched >= enough) & (place - first >= enough)


@triton.jit
def _completes(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store whether the token at each position completes an n-gram again."""
    place, completes = _completing(at, text, columns, DRAFTS, BLOCK)
    tl.store(scratch + at[0] * sizes[0] + place, completes, mask=place < sizes[0])


@triton.jit
def banned_ids(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store each token that completes an n-gram again and is not in the row's set; -1 for others."""
    row, slot, _, _, _ = at
    _, _, _, sets, set_of = columns
    # Read ahead: behind the comparison it would take more registers than there are.
    number = tl.load(values_of(set_of, slot), mask=sets[2] > 0, other=0).to(tl.int32)
    place, completes = _completing(at, text, columns, DRAFTS, BLOCK)
    token = text_at(text, place, completes, -1, DRAFTS)
    token = tl.where(member(values_of(sets, number), sets[2], token), -1, token)
    tl.store(scratch + row * sizes[0] + place, token.to(tl.int64), mask=place < sizes[0])


@triton.jit
def _size(pattern, k):
    """Return the length of a pattern."""
    size = 0
    for offset in range(k):
        size += (tl.load(pattern + offset) >= 0).to(tl.int32)
    return size


@triton.jit
def end_of(text, width, pattern, k, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the position behind the last occurrence of a pattern, searching from the end; -1 without."""
    size = _size(pattern, k)
    last = -1
    start = (width - 1) // BLOCK * BLOCK
    while (start >= 0) & (last < 0) & (size > 0):
        place = start + tl.arange(0, BLOCK)
        there = place + size <= width
        offset = 0
        while (offset < size) & (tl.max(there.to(tl.int32), 0) > 0):
            token = text_at(text, place + offset, there, -1, DRAFTS)
            there &= token == tl.load(pattern + offset)
            offset += 1
        last = tl.max(tl.where(there, place + size, -1), 0)
        start -= BLOCK
    return last


@triton.jit
def begun_of(text, length, since, pattern, k, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Count the tokens of an incomplete pattern at the end of a text, longest first."""
    taken = tl.minimum(_size(pattern, k) - 1, tl.maximum(tl.minimum(length, length - since), 0))
    taken = taken.to(tl.int32)
    fits = 0
    while (taken > 0) & (fits == 0):
        fits = 1
        for start in range(0, taken, BLOCK):
            item = start + tl.arange(0, BLOCK)
            inside = item < taken
            wanted = tl.load(pattern + item, mask=inside, other=0)
            token = text_at(text, length - taken + item, inside, 0, DRAFTS)
            fits = tl.minimum(fits, tl.min((token == wanted).to(tl.int32), 0))
        taken -= 1 - fits
    return tl.maximum(taken, 0)


@once
def _history(
    slots, rows, held, prompts, lasts, drafts, committed, tokens, outputs, prompt_len, total_len,
    slot_step, row_step, stride, width,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store visible tokens, the output flags, and the lengths of some rows."""
    number = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + number * slot_step)
    row = tl.load(rows + number * row_step)
    prompt = tl.load(prompts + slot).to(tl.int64)
    total = tl.load(lasts + row).to(tl.int64) + 1
    if tl.program_id(1) == 0:
        tl.store(prompt_len + number, prompt)
        tl.store(total_len + number, total)
    text = drafts_of(held + slot * stride, drafts, committed, slot, row, total.to(tl.int32), DRAFTS)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < width
    token = text_at(text, place, inside & (place < total), -1, DRAFTS).to(tl.int64)
    tl.store(tokens + number * width + place, token, mask=inside)
    tl.store(outputs + number * width + place, (place >= prompt) & (token >= 0), mask=inside)


def history(texts: SlotHistories, rows: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return (prompt lengths, visible lengths, tokens, output flags) of some rows; ``width`` 0: only lengths."""
    n, width, device = slots.shape[0], texts.width, slots.device
    prompt_len, total_len = torch.empty(2, n, dtype=torch.int64, device=device).unbind()
    tokens = torch.empty(n, width, dtype=torch.int64, device=device)
    outputs = torch.empty(n, width, dtype=torch.bool, device=device)
    given = (slots, rows, *texts[:5], tokens, outputs, prompt_len, total_len)
    steps = (slots.stride(0), rows.stride(0), texts.held.stride(0), width)
    grid = n, max(1, ratio_up(width, POSITIONS))
    launch(_history, grid, (*given, *steps), DRAFTS=texts.kind, BLOCK=POSITIONS, num_warps=WARPS)
    return prompt_len, total_len, tokens, outputs


def match_lengths(tokens: torch.Tensor, lengths: torch.Tensor, since: torch.Tensor | None = None) -> torch.Tensor:
    """Exact, unlike hashes.

    A program is done with most of its 256 positions after 8 tokens. In the worst case, a history that repeats one span,
    it compares each position with 512 tokens, and then three times one position with all tokens:
    ``512 * W + 3 * W * W / 256`` tokens of a row, a fourth of ``W * W / 2`` at W = 4096 and an eighteenth at 32768. For
    256 such rows these are 0.6 and 7.5 billion.
    """
    return _answered(matched_lengths, torch.int64, tokens, lengths, since)


def completes_ngram(
    tokens: torch.Tensor, lengths: torch.Tensor, size: torch.Tensor, since: torch.Tensor
) -> torch.Tensor:
    return _answered(_completes, torch.bool, tokens, lengths, since, None, size)


def _answered(
    rule: Any, dtype: torch.dtype, tokens: torch.Tensor, lengths: torch.Tensor, *columns: torch.Tensor | None
) -> torch.Tensor:
    tokens, last = tokens.contiguous(), lengths - 1
    entries = by_row(tokens)._replace(texts=SlotHistories(tokens, *(last,) * 4, tokens.shape[1], 0))
    out = memory(tokens, entries, dtype)
    return over_texts(rule, tokens, entries, columns, out, POSITIONS) if out.numel() else out


def memory(logits: torch.Tensor, entries: Entries, dtype: torch.dtype) -> torch.Tensor:
    """Return memory for a number per token of each row's text."""
    return torch.empty(logits.shape[0], entries.texts.width, dtype=dtype, device=logits.device)


def over_texts(
    rule: Any, logits: torch.Tensor, entries: Entries, columns: Sequence[torch.Tensor | None],
    scratch: torch.Tensor | None = None, block: int = SPAN, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Apply a rule to each row's text, or to each ``block`` tokens of it if ``scratch`` has a number for each; return
    ``scratch``, by default an int64 per row. None stands for a column that no row has: its width is 0."""
    (rows, vocab), slots, active = logits.shape, entries.slots, entries.active
    texts = entries.texts or SlotHistories(*(slots,) * 5, 0, 0, -1)
    if scratch is None:
        scratch = torch.empty(rows, 1, dtype=torch.int64, device=logits.device)
    columns = (*columns, *(None,) * (MOST_COLUMNS - len(columns)))
    held = (slots if item is None else item for item in columns)
    strides = (logits.stride(0), active.stride(0), texts.held.stride(0))
    steps = (0 if item is None else item.stride(0) for item in columns)
    widths = (0 if item is None else item.shape[-1] for item in columns)
    sizes = (*strides, *steps, *widths, texts.width, vocab, active.shape[0] - 1)
    grid = ratio_up(scratch.shape[1], block), rows
    warps = 1 if block < LEAST_SHARED else WARPS
    given = (logits, slots, active, *texts[:5], *held, scratch, *sizes)
    launch(_by_text, grid, given, RULE=rule, DRAFTS=texts.kind, BLOCK=block, num_warps=warps, **options)
    return scratch


def examples(device: torch.device, on_v2: bool) -> Iterator[SlotHistories]:
    """Yield texts of each type that a runner has: V1's lengths, and its newest tokens; V2's without drafts and with
    them. They have two rows."""
    last = torch.zeros(2, dtype=torch.int64, device=device)
    short = last.int()
    of_texts = short if on_v2 else last
    held = torch.zeros(2, 3, dtype=of_texts.dtype, device=device)
    others = ((short, last, 1), (short, short, 1)) if on_v2 else ((last, last, 2),)
    for drafts, committed, kind in ((last, last, 0), *others):
        yield SlotHistories(held, of_texts, last, drafts, committed, 3, 3, kind)
