"""Sparse rules as Triton kernels for CUDA: a few logits per row, and rules that find columns and histories by slot, as
a recorded step repeats them.

A function with the name of a step in :mod:`lpkit.portable.rules` does what the step does, to the bit, without the
tensors between its operations. Sizes and strides are run-time arguments, so that no batch has to wait for a compiler.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels import hashes
from lpkit.kernels.elementwise import OwnStep
from lpkit.kernels.launching import launch
from lpkit.kernels.recording import HASHES, Entries
from lpkit.kernels.triton_limits import add_where_hashed_, exclude_top_choices_, keep_ids_
from lpkit.kernels.triton_rows import by_row, compiled, ids_at, once, packed, ratio_up
from lpkit.kernels.triton_rows import suits as suits
from lpkit.kernels.triton_sequences import (
    POSITIONS,
    WARPS,
    banned_ids,
    begun_of,
    end_of,
    matched_lengths,
    member,
    memory,
    over_texts,
    text_at,
    values_of,
)
from lpkit.kernels.triton_tournament import tournament_

BLOCK = 256  # elements of a row that a program reads or writes
LISTED = 1024  # elements of a row that a program reads at a time if it has the row to itself
COMPARED = 64  # tokens that a program counts, and compares with at a time
RIVALS = 32  # tokens whose matches a program compares, and compares with at a time
AT_ONCE = 16  # tokens of a context that are hashed at a time

# Of the hashes of :mod:`lpkit.kernels.hashes`, which have the same bits here.
_GOLDEN = tl.constexpr(hashes.GOLDEN % 2**64)
FIRST, SECOND = (tl.constexpr(factor % 2**64) for factor in hashes.FACTORS_64)
STEP = tl.constexpr(2.0**-24)
MODULUS = tl.constexpr(HASHES)


@triton.jit
def _mixed(state, key):
    """Mix one more key into the state: uint64 of a uint64 state and an int64 key."""
    state = (state ^ key.to(tl.uint64, bitcast=True)) + _GOLDEN
    state = (state ^ (state >> 30)) * FIRST
    state = (state ^ (state >> 27)) * SECOND
    return state ^ (state >> 31)


@triton.jit
def _output_at(text, place, mask, prompt, DRAFTS: tl.constexpr):
    """Read tokens of an output; what is before it, and an unknown draft, is 0."""
    return tl.maximum(text_at(text, place, mask & (place >= prompt), 0, DRAFTS), 0).to(tl.int64)


@once
def _at_ids(
    logits, rows, ids, values,
    number, stride, across, step, ids_stride, ids_across, values_stride, values_across, k, vocab,
    MODE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Read or write logits at each row's ids. Ids outside read the first or the last token, and write nothing.

    ``MODE``: "read" stores ``values``; "write" writes them; "number" writes ``number``.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += tl.load(rows + row * step) * stride
    place, token, real = ids_at(ids + row * ids_stride, tl.program_id(1) * BLOCK, ids_across, k, vocab, BLOCK)
    values += row * values_stride + place * values_across
    if MODE == "read":
        token = tl.minimum(tl.maximum(token, 0), vocab - 1)
        tl.store(values, tl.load(logits + token * across, mask=place < k, other=0.0), mask=place < k)
    elif MODE == "write":
        tl.store(logits + token * across, tl.load(values, mask=real, other=0.0), mask=real)
    else:
        tl.store(logits + token * across, tl.full((BLOCK,), 0.0, tl.float32) + number, mask=real)


@triton.jit
def _mask_ids(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Mask a row's ids, and restore them if no other token is left. Reads only up to the first tile with an unmasked
    token."""
    row, _, edited, _, _ = at
    ids, width, vocab = values_of(columns[0], row), columns[0][2], sizes[1]
    k = tl.where(edited, width, 0)
    held = scratch + row * width
    named = 0
    for start in range(0, k, BLOCK):
        place, token, real = ids_at(ids, start, 1, k, vocab, BLOCK)
        tl.store(held + place, tl.load(logits + token, mask=real, other=0.0), mask=real)
        named = tl.maximum(named, tl.max(real.to(tl.int32), 0))
    if named > 0:
        tl.debug_barrier()  # read all before writing: an id may occur twice
        for start in range(0, k, BLOCK):
            place, token, real = ids_at(ids, start, 1, k, vocab, BLOCK)
            tl.store(logits + token, float("-inf"), mask=real)
        tl.debug_barrier()
        left = 0
        offset = 0
        while (offset < vocab) & (left == 0):
            token = offset + tl.arange(0, BLOCK)
            value = tl.load(logits + token, mask=token < vocab, other=float("-inf"))
            left = tl.max((value > float("-inf")).to(tl.int32), 0)
            offset += BLOCK
        if left == 0:
            for start in range(0, k, BLOCK):
                place, token, real = ids_at(ids, start, 1, k, vocab, BLOCK)
                tl.store(logits + token, tl.load(held + place, mask=real, other=0.0), mask=real)


@triton.jit
def _lower(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the penalized logit of each token of a row's text: its output tokens are compared with each."""
    row, slot, edited, prompt, total = at
    repetitions, presences, frequencies, _, _ = columns
    width, vocab, _ = sizes
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if edited & (tl.program_id(0) * BLOCK < total):
        token = text_at(text, place, place < total, -1, DRAFTS).to(tl.int32)
        equal = tl.zeros((BLOCK, BLOCK), tl.int32)
        for start in range(prompt // BLOCK * BLOCK, total, BLOCK):
            other = start + tl.arange(0, BLOCK)
            theirs = text_at(text, other, (other >= prompt) & (other < total), -2, DRAFTS).to(tl.int32)
            equal += (token[:, None] == theirs[None, :]).to(tl.int32)
        real = (token >= 0) & (token < vocab)
        value = tl.load(logits + token, mask=real, other=0.0)
        count = tl.sum(equal, 1)
        repetition = tl.load(values_of(repetitions, slot))
        divided = tl.div_rn(value, tl.zeros((BLOCK,), tl.float32) + repetition)
        value = tl.where(value > 0, divided, value * repetition)
        value = value - tl.load(values_of(frequencies, slot)) * count.to(tl.float32)
        value = value - tl.load(values_of(presences, slot)) * tl.where(count > 0, 1.0, 0.0)
        tl.store(scratch + row * width + place, value, mask=real)


@triton.jit
def _write_text(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the logits of a row's text; a token that occurs twice has equal values."""
    row, _, _, _, total = at
    width, vocab, _ = sizes
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = text_at(text, place, (place < total) & (place < width), -1, DRAFTS)
    real = (token >= 0) & (token < vocab)
    tl.store(logits + token, tl.load(scratch + row * width + place, mask=real, other=0.0), mask=real)


@triton.jit
def _lower_longest(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Lower the logits of tokens by the longest match that they followed: by its excess over the allowed length."""
    row, slot, _, _, total = at
    allowed, penalties, sets, set_of, _ = columns
    width, vocab, _ = sizes
    matched = scratch + row * width
    allowed = tl.minimum(tl.load(values_of(allowed, slot)), 2**31 - 1).to(tl.int32)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    excess = tl.load(matched + place, mask=place < total, other=-1) - allowed
    mine = (place < total) & (excess >= 0)
    if tl.max(mine.to(tl.int32), 0) > 0:
        token = text_at(text, place, mine, -1, DRAFTS).to(tl.int32)
        for start in range(0, total, BLOCK):
            other = start + tl.arange(0, BLOCK)
            against = tl.load(matched + other, mask=other < total, other=-1) - allowed
            rival = (other < total) & (against >= 0)
            if tl.max(rival.to(tl.int32), 0) > 0:
                theirs = text_at(text, other, rival, -2, DRAFTS).to(tl.int32)
                before = (against[None, :] == excess[:, None]) & (other[None, :] < place[:, None])
                better = (theirs[None, :] == token[:, None]) & ((against[None, :] > excess[:, None]) | before)
                mine &= tl.max(better.to(tl.int32), 1) == 0
        broken = member(values_of(sets, tl.load(values_of(set_of, slot))), sets[2], token)
        mine &= (token >= 0) & (token < vocab) & (broken == 0)
        value = tl.load(logits + token, mask=mine, other=0.0)
        less = tl.load(values_of(penalties, slot) + tl.minimum(excess, penalties[2] - 1), mask=mine, other=0.0)
        tl.store(logits + token, value - less, mask=mine)


@triton.jit
def _leave(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add to the logit of the token that continues the loop at the end of a row's text, and store the row's end token;
    -1 without a loop."""
    row, slot, _, _, total = at
    times, least, added, ends, matched = columns
    _, vocab, _ = sizes
    repeated = tl.load(values_of(times, slot)) - 1
    fewest = tl.load(values_of(least, slot))
    last = -1
    start = (total - 1) // BLOCK * BLOCK
    while (start >= 0) & (last < 0):
        place = start + tl.arange(0, BLOCK)
        span = total - place
        before = tl.load(values_of(matched, row) + place, mask=span > 0, other=0)
        loops = (span > 0) & (before >= repeated * span) & (before + span >= fewest)
        has_token = text_at(text, place, loops, -1, DRAFTS) >= 0
        last = tl.max(tl.where(loops & has_token, place, -1), 0)
        start -= BLOCK
    end = -1
    if last >= 0:
        token = text_at(text, last, last >= 0, -1, DRAFTS)
        value = tl.load(logits + token, mask=token < vocab, other=0.0)
        tl.store(logits + token, value + tl.load(values_of(added, slot)), mask=token < vocab)
        end = tl.load(values_of(ends, slot)).to(tl.int32)
    tl.store(scratch + row, end)


@triton.jit
def _thought(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the next token of the end marker for rows that thought long enough; -1 for others."""
    row, slot, edited, _, total = at
    starts, ends, budgets, _, _ = columns
    due = -1
    if edited:
        began = end_of(text, total, values_of(starts, slot), starts[2], DRAFTS, BLOCK)
        if (began >= 0) & (total - began >= tl.load(values_of(budgets, slot))):
            marker = values_of(ends, slot)
            if began > end_of(text, total, marker, ends[2], DRAFTS, BLOCK):
                written = begun_of(text, total, began, marker, ends[2], DRAFTS, BLOCK)
                due = tl.load(marker + written).to(tl.int32)
    tl.store(scratch + row, due)


@triton.jit
def _due(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the token of a row's sequence that its output comes to."""
    row, slot, edited, prompt, total = at
    sequences, ends, _, _, _ = columns
    place = tl.minimum(total - prompt, tl.load(values_of(ends, slot)))
    place = tl.minimum(tl.maximum(place, 0), sequences[2] - 1)
    tl.store(scratch + row, tl.load(values_of(sequences, slot) + place, mask=edited, other=-1))


@triton.jit
def _heads(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store a row's slot, or the slot of nobody: by chance, which depends on its seed and length."""
    row, slot, edited, _, total = at
    seeds, probabilities, _, _, _ = columns
    zero = tl.zeros((1,), tl.int64)
    state = _mixed(zero.to(tl.uint64, bitcast=True), tl.load(values_of(seeds, slot)) + zero)
    drawn = (_mixed(state, total + zero) >> 40).to(tl.int32).to(tl.float32) * STEP  # in [0, 1)
    heads = edited & (drawn < tl.load(values_of(probabilities, slot)))
    tl.store(scratch + row + tl.arange(0, 1), tl.where(heads, slot, sizes[2]))


@triton.jit
def _choose(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store a row's slot, or the slot of nobody: by its position, counted from the prompt's end or from a marker."""
    row, slot, edited, prompt, total = at
    firsts, spans, every, afters, befores = columns
    chosen = slot * 0 + sizes[2]
    if edited:
        since = prompt
        if tl.load(values_of(afters, slot)) >= 0:
            since = end_of(text, total, values_of(afters, slot), afters[2], DRAFTS, BLOCK)
        ended = end_of(text, total, values_of(befores, slot), befores[2], DRAFTS, BLOCK)
        place = (total - since).to(tl.int64) - tl.load(values_of(firsts, slot))
        due = (place >= 0) & (place < tl.load(values_of(spans, slot)))
        due &= place % tl.load(values_of(every, slot)) == 0
        chosen = tl.where(due & (since >= 0) & (ended <= since), slot, chosen)
    tl.store(scratch + row, chosen)


@triton.jit
def _seed(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store a hash of a row's key and its last tokens."""
    row, slot, _, _, total = at
    counts, keys, _, _, _ = columns
    count, key, last = tl.load(values_of(counts, slot)), tl.load(values_of(keys, slot)), total - 1
    summed = tl.zeros((BLOCK,), tl.uint64)
    for start in range(0, count.to(tl.int32), BLOCK):
        back = start + tl.arange(0, BLOCK).to(tl.int64)
        mine = back < count
        token = text_at(text, last - back, mine & (back <= last), -1, DRAFTS).to(tl.int64)
        hashed = _mixed(_mixed(tl.zeros((BLOCK,), tl.uint64), back), token)
        summed += tl.where(mine, hashed, tl.zeros((BLOCK,), tl.uint64))
    whole = tl.sum(summed.to(tl.int64, bitcast=True), 0)
    zero = tl.zeros((1,), tl.int64)  # a block, since a number has no bits to be taken for others
    state = _mixed(_mixed(zero.to(tl.uint64, bitcast=True), key + zero), whole + zero)
    seed = (state >> 32).to(tl.uint32).to(tl.int32, bitcast=True)
    tl.store(scratch + row + tl.arange(0, 1), seed)


@triton.jit
def _context(at, text, columns, logits, scratch, sizes, DRAFTS: tl.constexpr, BLOCK: tl.constexpr):
    """Store a hash of the last tokens of a row's output; -1 if the output has had them since a position."""
    row, slot, edited, prompt, total = at
    weights, contexts, oldest, first, _ = columns
    hashed = slot * 0 - 1
    since = tl.maximum(prompt + tl.load(values_of(first, slot)), total - tl.load(values_of(oldest, slot)))
    if edited & (since <= total):
        size, k = tl.load(values_of(contexts, slot)) - 1, weights[2]
        back = tl.arange(0, BLOCK)
        last = _output_at(text, total - 1 - back, back < k, prompt, DRAFTS)
        weight = tl.load(values_of(weights, slot) + back, mask=back < k, other=0)
        hashed = tl.sum(last * weight, 0) % MODULUS
        while (since < total) & (hashed >= 0):
            place = since + back
            same = place < total
            done = 1
            while (done <= size) & (tl.max(same.to(tl.int32), 0) > 0):
                mine = _output_at(text, place - done, same, prompt, DRAFTS)
                same &= mine == _output_at(text, total - done, total > 0, prompt, DRAFTS)
                done += 1
            hashed = tl.where(tl.max(same.to(tl.int32), 0) > 0, -1, hashed)
            since += BLOCK
    tl.store(scratch + row, hashed)


def read(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return ``logits[rows, ids.clamp(0, vocab - 1)]`` for rows ``[n]`` and ids ``[n, k]``."""
    values = torch.empty(ids.shape, dtype=logits.dtype, device=logits.device)
    _over_ids("read", logits, rows, ids, values)
    return values


def write(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, values: torch.Tensor | float) -> None:
    """Set ``logits[rows, ids] = values`` where the ids are within the vocabulary; values broadcast to ``[n, k]``."""
    if isinstance(values, torch.Tensor):
        _over_ids("write", logits, rows, ids, values.to(logits.dtype).expand(ids.shape))
    else:
        _over_ids("number", logits, rows, ids, logits, float(values))


def _over_ids(
    mode: str, logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, values: torch.Tensor, number: float = 0.0
) -> None:
    (n, k), vocab = ids.shape, logits.shape[1]
    if n and k:
        strides = (*logits.stride(), rows.stride(0), *ids.stride(), *values.stride())
        given = (logits, rows, ids, values, number, *strides, k, vocab)
        launch(_at_ids, (n, ratio_up(k, BLOCK)), given, MODE=mode, BLOCK=BLOCK, num_warps=WARPS)


def mask_ids_(logits: torch.Tensor, ids: torch.Tensor, entries: Entries | None = None) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_ids_`. A row with a NaN behind a remaining token is masked all the same.
    ``entries``: the rows to edit; each has its own ids."""
    if logits.stride(1) != 1:
        return logits.copy_(mask_ids_(logits.contiguous(), ids, entries))
    if ids.numel():
        held = torch.empty(ids.numel(), 1, dtype=logits.dtype, device=logits.device)
        entries = (entries or by_row(logits))._replace(texts=None)
        over_texts(_mask_ids, logits, entries, (packed(ids),), held, LISTED)
    return logits


def edit_ids_(logits: torch.Tensor, edit: OwnStep, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Edit by an author's own operations."""
    texts = 0 if entries.texts is None else entries.texts.width
    room = len(edit.form) * (texts + sum(item.shape[1] for item in columns))
    scratch = torch.empty(logits.shape[0] * room, 1, dtype=torch.float32, device=logits.device)
    over_texts(compiled(edit, edit_ids_), logits, entries, columns, scratch, LISTED, enable_fp_fusion=False)
    return logits


def penalize_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Lower the logits of a text's tokens by its repetition, presence and frequency penalties."""
    scratch = memory(logits, entries, torch.float32)
    # Multiplying and adding in one instruction would round once where the operations of torch round twice.
    over_texts(_lower, logits, entries, columns, scratch, COMPARED, enable_fp_fusion=False)
    over_texts(_write_text, logits, entries, (), scratch, LISTED)
    return logits


def ban_ngrams_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Mask tokens that would complete an n-gram of the last output tokens again.

    Args:
        logits: of the batch.
        columns: the n-grams' size, and how many last tokens count; perhaps sets of tokens that are not masked.
        entries: of the rows.
    """
    size, window, *sets = columns
    ids, columns = memory(logits, entries, torch.int64), (entries.texts.prompts, window, size, *sets)
    over_texts(banned_ids, logits, entries, columns, ids, POSITIONS)
    return mask_ids_(logits, ids, entries)


ban_ngrams_except_ = ban_ngrams_


def penalize_repetitions_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Lower the logits of tokens that would continue a repetition without tokens of a set."""
    window, *others = columns
    matched = memory(logits, entries, torch.int32)
    over_texts(matched_lengths, logits, entries, (None, window, *others[2:]), matched, POSITIONS)
    over_texts(_lower_longest, logits, entries, others, matched, RIVALS)
    return logits


def leave_loop_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Add to the logits of tokens that would continue a loop, and keep only the end token, if there is one."""
    matched = memory(logits, entries, torch.int32)
    over_texts(matched_lengths, logits, entries, (entries.texts.prompts,), matched, POSITIONS)
    return keep_ids_(logits, over_texts(_leave, logits, entries, (*columns, matched)))


def end_thinking_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Keep only the end marker's next token in rows that thought long enough, by their markers and budget."""
    return keep_ids_(logits, over_texts(_thought, logits, entries, columns))


def hold_tournament_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Hold a tournament in rows whose output ends with tokens that it did not have before."""
    seeds = over_texts(_context, logits, entries, columns[:4])
    temperature, bits, shifts = columns[4:]
    return tournament_(logits, temperature, bits, seeds, shifts, entries)


def force_sequence_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Keep only the token that is due, by sequences and the position at which each stays."""
    return keep_ids_(logits, over_texts(_due, logits, entries, columns, block=AT_ONCE))


def exclude_sometimes_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Exclude top choices of some rows, which chance selects by a seed and a probability."""
    temperature, log_threshold, keep = columns[2:]
    some = over_texts(_heads, logits, entries, columns[:2], block=AT_ONCE)
    return exclude_top_choices_(logits, temperature, log_threshold, keep, entries=entries._replace(slots=some))


def choose_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Return the slots of the rows at which a step acts, as :meth:`lpkit.rules.when.Conditional.acting` decides it by
    the same columns, and the slot of nobody for others."""
    return over_texts(_choose, logits, entries, columns)


def bias_by_context_(logits: torch.Tensor, *columns: torch.Tensor, entries: Entries) -> torch.Tensor:
    """Add a bias to tokens that a hash of a key and the last tokens selects."""
    seeds = torch.empty(logits.shape[0], 1, dtype=torch.int32, device=logits.device)
    over_texts(_seed, logits, entries, columns[:2], seeds, AT_ONCE)
    limit, bias = columns[2:]
    return add_where_hashed_(logits, seeds, limit, bias, entries)
