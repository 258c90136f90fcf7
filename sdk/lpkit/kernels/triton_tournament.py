"""Tournaments as Triton kernels for CUDA; see :func:`lpkit.kernels.tournament_`.

A token's gain depends only on its bits. So for some rounds at once, a row needs only the probability of each pattern of
their bits. One launch sums it up. The next launch, which knows the gains so far, sums up the next rounds or edits the
logits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels.launching import launch
from lpkit.kernels.recording import Entries
from lpkit.kernels.triton_rows import (
    MOST_PARTS,
    anything,
    bounds,
    by_row,
    entry,
    grid_of,
    over_rows,
    packed,
    ratio_up,
    step,
    tile,
    write,
)

BLOCK = 256
WARPS = 4
ROUNDS = tl.constexpr(4)  # rounds held at once
PATTERNS = tl.constexpr(16)  # patterns of their bits
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


@triton.jit
def _pattern(bits, seed, shifts, period, rounds, group, token, inside, BLOCK: tl.constexpr):
    """Return the bits of each token in a group of rounds."""
    pattern = tl.zeros((BLOCK,), tl.int32)
    for index in tl.static_range(ROUNDS):
        number = group * ROUNDS + index
        if number < rounds:
            shift = tl.load(shifts + number)
            if shift >= 0:
                start = seed + shift
                start -= tl.where(start >= period, period, 0)
                pattern |= (tl.load(bits + start + token, mask=inside, other=0.0) != 0).to(tl.int32) << index
    return pattern


@triton.jit
def _hold(tops, masses, gains, parts, scale, PARTS: tl.constexpr):
    """Hold a group of rounds and store the gain of each pattern; the parts of a row bring its input."""
    part, which = tl.arange(0, PARTS), tl.arange(0, PATTERNS)
    top = tl.load(tops + part, mask=part < parts, other=float("-inf"))
    origin = tl.max(top, 0)
    weight = tl.exp((top - tl.where(origin == float("-inf"), 0.0, origin)) * scale)  # -inf - -inf is NaN
    places = part[:, None] * PATTERNS + which[None, :]
    mass = tl.sum(tl.load(masses + places, mask=part[:, None] < parts, other=0.0) * weight[:, None], 0)
    mass = mass / tl.sum(mass, 0)
    gain = tl.full((PATTERNS,), 1.0, tl.float32)
    for index in tl.static_range(ROUNDS):
        bit = ((which >> index) & 1).to(tl.float32)
        # The losses give the gain exactly; 1 minus the winners would cancel.
        factor = tl.where(tl.sum(bit * mass, 0) > 0, bit + tl.sum((1.0 - bit) * mass, 0), 1.0)
        mass *= factor
        mass /= tl.sum(mass, 0)
        gain *= factor
    tl.store(gains + which, gain)  # every program of a row writes the same
    tl.debug_barrier()  # another thread has written the values that a thread reads


@triton.jit
def _gained(gains, bits, seed, shifts, period, rounds, groups, token, inside, BLOCK: tl.constexpr):
    """Return each token's gain in the groups of rounds held so far."""
    gain = tl.full((BLOCK,), 1.0, tl.float32)
    for group in range(groups):
        pattern = _pattern(bits, seed, shifts, period, rounds, group, token, inside, BLOCK)
        gain *= tl.load(gains + group * PATTERNS + pattern)
    return gain


@over_rows
def _meet(
    logits, slots, active, temperatures, bits, seeds, shifts, tops, masses, gains,
    stride, active_step, temperature_step, shifts_stride, period, vocab, parts, size, rounds, groups, every, rows,
    LAST: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Hold the last group of rounds, and sum up the probability of each bit pattern of the next group, in parts.
    ``LAST``: there is no next group, and the logits are edited."""
    row, part = tl.program_id(0), tl.program_id(1)
    slot, edited = entry(slots, active, active_step, row)
    seed = tl.load(seeds + row)
    if edited & (seed >= 0):
        temperature = tl.load(temperatures + slot * temperature_step)
        scale = 1.0 / temperature
        shifts += slot * shifts_stride
        gains += row * every * PATTERNS
        if groups > 0:
            held = ((groups - 1) * rows + row) * parts
            _hold(tops + held, masses + held * PATTERNS, gains + (groups - 1) * PATTERNS, parts, scale, PARTS)
        ours = bounds(logits, row, stride, vocab)
        which = tl.arange(0, PATTERNS)
        best = tl.full((BLOCK,), float("-inf"), tl.float32)
        total = tl.zeros((PATTERNS, BLOCK), tl.float32)
        for offset in range(part * size, min(part * size + size, ours[2]), BLOCK):
            token = offset - ours[1] + tl.arange(0, BLOCK)
            inside = (token >= 0) & (token < vocab)
            gain = _gained(gains, bits, seed, shifts, period, rounds, groups, token, inside, BLOCK)
            if LAST:
                changed = gain != 1.0
                if anything(changed):
                    values = tile(ours, offset, 0.0, BLOCK)
                    gain = tl.where(gain < TINY, TINY, gain)
                    write(ours, offset, values + temperature * tl.log(gain), changed, BLOCK)
            else:
                values = tile(ours, offset, float("-inf"), BLOCK)
                higher = tl.maximum(best, values)
                origin = tl.where(higher == float("-inf"), 0.0, higher)
                share = tl.exp((values - origin) * scale) * gain
                pattern = _pattern(bits, seed, shifts, period, rounds, groups, token, inside, BLOCK)
                total *= tl.exp((best - origin) * scale)[None, :]
                total += tl.where(pattern[None, :] == which[:, None], share[None, :], 0.0)
                best = higher
        if not LAST:
            top = tl.max(best, 0)
            origin = tl.where(top == float("-inf"), 0.0, top)
            position = (groups * rows + row) * parts + part
            tl.store(tops + position, top)
            tl.store(masses + position * PATTERNS + which, tl.sum(total * tl.exp((best - origin) * scale)[None, :], 1))


def tournament_(
    logits: torch.Tensor, temperature: torch.Tensor, bits: torch.Tensor, seeds: torch.Tensor, shifts: torch.Tensor,
    entries: Entries | None = None,
) -> torch.Tensor:  # fmt: skip
    """See :func:`lpkit.kernels.tournament_`; ``entries``: of temperatures and shifts."""
    entries = entries or by_row(logits)
    grid, (stride, vocab, _, parts, size) = grid_of(logits)
    rounds = shifts.shape[1]
    groups = ratio_up(rounds, ROUNDS.value)
    tops = torch.empty(groups, *grid, dtype=torch.float32, device=logits.device)
    masses = torch.empty(groups, *grid, PATTERNS.value, dtype=torch.float32, device=logits.device)
    gains = torch.empty(grid[0], groups, PATTERNS.value, dtype=torch.float32, device=logits.device)
    temperature = temperature.to(torch.float32)
    shifts = packed(shifts)
    given = (logits, entries.slots, entries.active, temperature, bits, seeds.contiguous(), shifts, tops, masses, gains)
    steps = (stride, *map(step, (entries.active, temperature, shifts)))
    sizes = (*steps, len(bits) - 2 * vocab, vocab, parts, size, rounds)
    for held in range(groups + 1):
        options = {"LAST": held == groups, "PARTS": MOST_PARTS, "BLOCK": BLOCK}
        launch(_meet, grid, (*given, *sizes, held, groups, grid[0]), **options, num_warps=WARPS)
    return logits
