"""Sparse rules as Triton kernels for CUDA that find columns and histories by slot, as a recorded step repeats them.

Each function does what the calls of its pattern in :data:`lpkit.kernels.recording.PATTERNS` do, to the bit, without the
tensors between them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.recording import SlotHistories
from lpkit.kernels.triton_few import WARPS, mask_ids_
from lpkit.kernels.triton_rows import Entries, entry, once, per_row, ratio_up
from lpkit.kernels.triton_rows import suits as suits
from lpkit.kernels.triton_sequences import POSITIONS, SIZES, _matches, drafts_of, text_at

COMPARED = 64
"""Tokens that a program counts, and compares with at a time."""

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
    slot, edited = entry(slots, own, own_step, row)
    total = (tl.load(lasts + row) + 1).to(tl.int32)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if edited & (tl.program_id(1) * BLOCK < total):
        prompt = tl.load(prompts + slot).to(tl.int32)
        tokens += slot * text_stride
        drafts, behind = drafts_of(drafts, committed, slot, row, total, DRAFTS)
        token = text_at(tokens, 1, drafts, behind, place, place < total, -1, DRAFTS).to(tl.int32)
        equal = tl.zeros((BLOCK, BLOCK), tl.int32)
        for start in range(prompt // BLOCK * BLOCK, total, BLOCK):
            other = start + tl.arange(0, BLOCK)
            counted = (other >= prompt) & (other < total)
            theirs = text_at(tokens, 1, drafts, behind, other, counted, -2, DRAFTS).to(tl.int32)
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
    logits, slots, own, tokens, lasts, drafts, committed, values,
    stride, own_step, text_stride, width, vocab,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the logits of a row's text; a token that occurs twice has equal values."""
    row = tl.program_id(0).to(tl.int64)
    slot, edited = entry(slots, own, own_step, row)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.where(edited, tl.load(lasts + row) + 1, 0).to(tl.int32)
    inside = (place < total) & (place < width)
    drafts, behind = drafts_of(drafts, committed, slot, row, total, DRAFTS)
    token = text_at(tokens + slot * text_stride, 1, drafts, behind, place, inside, -1, DRAFTS)
    real = (token >= 0) & (token < vocab)
    value = tl.load(values + row * width + place, mask=real, other=0.0)
    tl.store(logits + row * stride + token, value, mask=real)


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


def penalize_(logits: torch.Tensor, *values: torch.Tensor, entries: Entries, texts: SlotHistories) -> torch.Tensor:
    """Lower the logits of a text's tokens by its repetition, presence and frequency penalties."""
    slots, own, own_step, _ = entries
    rows, vocab = logits.shape
    columns, steps = zip(*(per_row(item, entries) for item in values), strict=True)
    found = torch.empty(rows, texts.width, dtype=torch.float32, device=logits.device)
    held, prompts, *rest = texts.tensors
    given = (logits, slots, own, held, prompts, *rest, *columns, found)
    begun = (logits.stride(0), own_step, held.stride(0))
    grid = rows, ratio_up(texts.width, COMPARED)
    # Multiplying and adding in one instruction would round once where the operations of torch round twice.
    options = {"DRAFTS": texts.drafts is not None, "num_warps": WARPS, "enable_fp_fusion": False}
    launch(_lower, grid, (*given, *begun, *steps, texts.width, vocab), BLOCK=COMPARED, **options)
    given = (logits, slots, own, held, *rest, found, *begun, texts.width, vocab)
    launch(_write_text, (rows, ratio_up(texts.width, LISTED)), given, BLOCK=LISTED, **options)
    return logits


def ban_ngrams_(
    logits: torch.Tensor, size: torch.Tensor, window: torch.Tensor, entries: Entries, texts: SlotHistories
) -> torch.Tensor:
    """Mask tokens that would complete an n-gram of the last ``window`` output tokens again."""
    slots, own, own_step, _ = entries
    rows, width = logits.shape[0], texts.width
    ids = torch.empty(rows, width, dtype=torch.int64, device=logits.device)
    (size, size_step), (window, window_step) = (per_row(item, entries, torch.int64) for item in (size, window))
    held, prompts, last, *rest = texts.tensors
    steps = (held.stride(0), 1, own_step, 1, size_step, 1, window_step, 1, width)
    given = (held, slots, own, last, size, prompts, window, *rest, ids, *steps)
    options = {"ASKED": "ids", "SINCE": True, "DRAFTS": texts.drafts is not None, **SIZES, "num_warps": WARPS}
    launch(_matches, (ratio_up(width, POSITIONS), rows), given, **options)
    return mask_ids_(logits, ids, entries)


def attempt(device: torch.device) -> None:
    """Run each kernel once for the types of both runners, which compiles it."""
    logits, wide = torch.zeros(2, 8, device=device), torch.zeros(2, 3, dtype=torch.int64, device=device)
    column, own = logits[:, :1], torch.ones(2, dtype=torch.bool, device=device)
    entries = Entries(wide[:, 0], own, 1, 2)
    add_to_ids_(logits, wide, logits, entries)
    for of_texts in (torch.int64, torch.int32):  # V1's, and V2's with and without drafts
        last, by_slot = wide[:, 0], wide[:, 0].to(of_texts)
        for drafts in ((),) if of_texts == torch.int64 else ((), (by_slot, last), (by_slot, by_slot)):
            texts = SlotHistories(wide.to(of_texts), by_slot, last, 3, 3, *drafts)
            penalize_(logits, column, column, column, entries=entries, texts=texts)
            ban_ngrams_(logits, wide[:, :1], wide[:, :1], entries, texts)
