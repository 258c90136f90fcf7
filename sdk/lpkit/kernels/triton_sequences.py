"""Histories, and functions of :mod:`lpkit.sequences`, as Triton kernels for CUDA, without hashes.

Each function answers as the function of its name documents, and takes one launch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.recording import Entries, SlotHistories
from lpkit.kernels.triton_rows import by_row, entry, once, ratio_up

WARPS = 4
POSITIONS = 256  # positions of a history for which a program finds matches
SPAN = 1024  # tokens of a history that a program with its own history reads at a time

SIZES = {"POSITIONS": POSITIONS, "AT_ONCE": 8, "REACH": 2 * POSITIONS, "SPAN": SPAN}
"""``AT_ONCE``: tokens before each position that are compared at a time, of at most ``REACH``; ``SPAN``: tokens before
one position that are compared at a time."""


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


@triton.jit
def text_of(slots, active, active_step, tokens, stride, lasts, drafts, committed, row, DRAFTS: tl.constexpr):
    """Return (slot, True if edited, length, text) of a row's text in its slot's memory."""
    slot, edited = entry(slots, active, active_step, row)
    length = tl.where(edited, tl.load(lasts + row) + 1, 0).to(tl.int32)
    return slot, edited, length, drafts_of(tokens + slot * stride, drafts, committed, slot, row, length, DRAFTS)


@triton.jit
def _common(text, earlier, later, count, DRAFTS: tl.constexpr, SPAN: tl.constexpr):
    """Count equal tokens before two positions, ``earlier < later``; ``count`` of them are known to be equal."""
    going = count < earlier
    while going:
        back = count + 1 + tl.arange(0, SPAN)
        there = back <= earlier
        mine = text_at(text, earlier - back, there, 0, DRAFTS)
        theirs = text_at(text, later - back, there, 0, DRAFTS)
        equal = tl.min(tl.where(there & (mine == theirs), SPAN, tl.arange(0, SPAN)), 0)
        count += equal
        going = equal == SPAN
    return count


@once
def _matches(
    tokens, slots, active, lasts, sizes, since, windows, drafts, committed, sets, set_of, out,
    stride, active_step, size_step, window_step, set_stride, set_step, octets, width,
    ASKED: tl.constexpr, SINCE: tl.constexpr, WINDOW: tl.constexpr, SETS: tl.constexpr, DRAFTS: tl.constexpr,
    POSITIONS: tl.constexpr, AT_ONCE: tl.constexpr, REACH: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Count the tokens before each position that equal the end of the history.

    ``ASKED``: "lengths"; "ngram": test if they are as many as an n-gram of a row's size begins with, which bounds the
    comparison; "ids": the token at each position of such a row, -1 at others. ``SINCE``, ``WINDOW``: only tokens from
    there on, or so many last ones count. ``SETS``: no match contains a token of a row's set; of "ids", a token of it is
    none.
    ``DRAFTS``: see :func:`drafts_of`.

    All positions of a program are compared together, until none matches. If several match ``REACH`` tokens, they lie in
    one periodic stretch, a period apart: two occurrences of a string at most half its length apart overlap in a period
    of it. The period's reach, before the last of them and before the end, decides the length of each match. One case is
    left: a position before which the period reaches as far as before the end. This position, or a single match, is
    compared further.
    """
    row = tl.program_id(1).to(tl.int64)
    slot, _, length, text = text_of(slots, active, active_step, tokens, stride, lasts, drafts, committed, row, DRAFTS)
    place = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    first = 0
    if SINCE:
        first = tl.minimum(tl.maximum(tl.load(since + slot), 0), length).to(tl.int32)
    if WINDOW:
        first = tl.minimum(tl.maximum(length - tl.load(windows + slot * window_step), first), length).to(tl.int32)
    enough = length - first
    if SETS:
        number = tl.load(set_of + slot * set_step)
        sets += number * set_stride
    if SETS and ASKED == "lengths":
        start = tl.where(number > 0, length, first)  # set 0 is empty
        broken = first - 1
        while (start > first) & (broken < first):
            start -= SPAN
            item = start + tl.arange(0, SPAN)
            there = (item >= first) & (item < length)
            token = text_at(text, item, there, -1, DRAFTS)
            broken = tl.max(tl.where(member(sets, octets, token), item, first - 1), 0)
        enough = length - 1 - broken
    if ASKED != "lengths":
        enough = tl.minimum(tl.load(sizes + slot * size_step) - 1, length + 1).to(tl.int32)
    matched = tl.zeros((POSITIONS,), tl.int32)
    same = (place < length) & (place >= first)
    done = 0
    while (done < tl.minimum(REACH, enough)) & (tl.max(same.to(tl.int32), 0) > 0):
        back = done + 1 + tl.arange(0, AT_ONCE)
        last = text_at(text, length - back, back <= length, 0, DRAFTS)
        before = place[:, None] - back[None, :]
        there = same[:, None] & (before >= 0)
        equal = there & (text_at(text, before, there, 0, DRAFTS) == last[None, :])
        more = tl.min(tl.where(equal, AT_ONCE, tl.arange(0, AT_ONCE)[None, :]), 1)
        matched += tl.where(same, more, 0)
        same &= more == AT_ONCE
        done += AT_ONCE
    alone = tl.max(tl.where(same, place, -1), 0)
    if (alone >= 0) & (done < enough):
        count = done
        second = tl.max(tl.where(same & (place < alone), place, -1), 0)
        if second >= 0:
            period = alone - second
            count = done - period
            before_end = _common(text, length - period, length, count, DRAFTS, SPAN)
            before_end += period
            before_last = _common(text, second, alone, count, DRAFTS, SPAN)
            before_last += period
            before_each = before_last - (alone - place)
            matched = tl.where(same, tl.minimum(before_each, before_end), matched)
            alone = tl.max(tl.where(same & (before_each == before_end), place, -1), 0)
            count = before_end
        if alone >= 0:
            further = _common(text, alone, length, count, DRAFTS, SPAN)
            matched = tl.where(place == alone, further, matched)
    inside = place < width
    before = place - first
    out += row * width + place
    completes = (place < length) & (matched >= enough) & (before >= enough)
    if ASKED == "lengths":
        tl.store(out, tl.minimum(tl.minimum(matched, enough), tl.maximum(before, 0)), mask=inside)
    elif ASKED == "ngram":
        tl.store(out, completes, mask=inside)
    else:
        token = text_at(text, place, completes, -1, DRAFTS)
        if SETS:
            token = tl.where(member(sets, octets, token), -1, token)
        tl.store(out, token.to(tl.int64), mask=inside)


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
    return _matched("lengths", torch.int64, tokens, lengths, since)


def completes_ngram(
    tokens: torch.Tensor, lengths: torch.Tensor, size: torch.Tensor, since: torch.Tensor
) -> torch.Tensor:
    return _matched("ngram", torch.bool, tokens, lengths, since, size)


def _matched(
    asked: str, dtype: torch.dtype, tokens: torch.Tensor, lengths: torch.Tensor, since: torch.Tensor | None,
    size: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    tokens, last = tokens.contiguous(), lengths - 1
    out = torch.empty(tokens.shape, dtype=dtype, device=tokens.device)
    if out.numel():
        first = last if since is None else since.contiguous()
        texts = SlotHistories(tokens, first, last, last, last, tokens.shape[1], 0)
        matches(asked, out, by_row(tokens)._replace(texts=texts), size, since_prompt=since is not None)
    return out


def matches(
    asked: str, out: torch.Tensor, entries: Entries, size: torch.Tensor | None = None,
    window: torch.Tensor | None = None, sets: tuple[torch.Tensor, ...] = (), since_prompt: bool = False,
) -> None:  # fmt: skip
    """Store what ``_matches`` is ``asked``, for texts and columns by slot, in ``out``, ``[rows, width]``.

    Args:
        asked: "lengths", "ngram" or "ids".
        out: int32 or int64; bool for "ngram".
        entries: of the rows, with texts.
        size: int64 column, not for "lengths".
        window: int64 column, number of last tokens that count.
        sets: bit masks, and a column with their numbers: no match contains a token of a row's set; for "ids", it is
            left out. Empty: none.
        since_prompt: only output tokens count.
    """
    slots, active, texts = entries
    held, prompts, last, *rest = texts[:5]
    columns = [last if item is None else item for item in (size, window, *(sets or (None, None)))]
    size_by, window_by, masks, set_of = columns
    steps = (held.stride(0), active.stride(0), size_by.stride(0), window_by.stride(0))
    sizes = (masks.stride(0), set_of.stride(0), masks.shape[-1], texts.width)
    given = (held, slots, active, last, size_by, prompts, window_by, *rest, masks, set_of, out, *steps, *sizes)
    options = {"ASKED": asked, "SINCE": since_prompt, "WINDOW": window is not None, "SETS": bool(sets)}
    # Programs of a row come one after the other, because they read the same tokens.
    grid = ratio_up(texts.width, POSITIONS), out.shape[0]
    launch(_matches, grid, given, **options, DRAFTS=texts.kind, **SIZES, num_warps=WARPS)


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


def attempt_histories(device: torch.device) -> None:
    """Run each kernel of a step that is not recorded once, which compiles it."""
    tokens, lengths = torch.zeros(2, 3, dtype=torch.int64, device=device), torch.arange(2, device=device)
    match_lengths(tokens, lengths)
    match_lengths(tokens, lengths, lengths)
    completes_ngram(tokens, lengths, lengths, lengths)
    for on_v2 in (False, True):
        for texts in examples(device, on_v2):
            if texts.kind != 2:
                history(texts, lengths, lengths)
