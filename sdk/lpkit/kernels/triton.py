"""The functions of :mod:`lpkit.kernels` as fused Triton kernels, for CUDA; use them through that module.

A row is split over several programs while the batch is smaller than the GPU, so that a single request keeps all
multiprocessors busy too. Tiles in which nothing changes are not written, and rows whose limit masks nothing are not
read. ``make kernels`` shows what the compiler makes of them, without a GPU; :mod:`lpkit.kernels.traffic` says how much
memory each of them moves.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lpkit.kernels import triton_parts
from lpkit.kernels.hashes import FACTORS_32
from lpkit.kernels.traffic import SPAN
from lpkit.kernels.triton_parts import MOST_PARTS

KIND = "Triton"

BLOCK = 4096
PROGRAMS = 4 * 132
"""Programs that keep a large GPU busy."""

WARPS = 8
"""Of a program: 16 logits per thread, so that four programs share a multiprocessor's registers; of a span, one word."""

WORD = tl.constexpr(4)
"""Logits of one 128-bit word."""

KEPT = 64
"""Of a row's ids, how many are looked at at a time."""


@triton.jit
def _row(logits, row, stride, vocab):  # type: ignore[no-untyped-def]
    """A row, from the last address before it that 128-bit words begin at: (that address, the row's begin and end)."""
    before = row.to(tl.int64) * stride
    whole = before // WORD * WORD  # which tells the compiler that it is a multiple, whatever the stride is
    begin = (before - whole).to(tl.int32)
    return logits + whole, begin, begin + vocab


@triton.jit  # type: ignore[untyped-decorator]
def _within(offset, begin, end, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Whether a tile lies within the row: then no mask keeps the compiler from 128-bit words."""
    return (offset >= begin) & (offset + BLOCK <= end)


@triton.jit  # type: ignore[untyped-decorator]
def _tile(start, offset, begin, end, FILL: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """A tile of a row, and ``FILL`` outside of the row."""
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        values = tl.load(start + place)
    else:
        values = tl.load(start + place, mask=(place >= begin) & (place < end), other=FILL)
    return values


@triton.jit
def _any(flags):  # type: ignore[no-untyped-def]
    """Whether there is anything to change in a tile."""
    return tl.max(flags.to(tl.int32), 0) > 0


@triton.jit  # type: ignore[untyped-decorator]
def _write(start, offset, begin, end, values, changed, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Write a tile in which something has changed: all of it, in 128-bit words, if it lies within the row."""
    place = offset + tl.arange(0, BLOCK)
    if _within(offset, begin, end, BLOCK):
        tl.store(start + place, values)
    else:
        tl.store(start + place, values, mask=(place >= begin) & (place < end) & changed)


@triton.jit(do_not_specialize=["spans"])  # type: ignore[untyped-decorator]
def _tops(logits, tops, stride, vocab, spans, size, SPAN: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The highest logit of each span of each row; a part in which there is a NaN has one among its own."""
    row, part = tl.program_id(0), tl.program_id(1)
    start, begin, end = _row(logits, row, stride, vocab)
    found = tops + row.to(tl.int64) * spans
    broken = tl.zeros((BLOCK,), tl.int32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        broken |= (values != values).to(tl.int32)
        place = offset // SPAN + tl.arange(0, BLOCK // SPAN)
        highest = tl.max(tl.reshape(values, (BLOCK // SPAN, SPAN)), 1)
        tl.store(found + place, highest, mask=place < spans)
    if _any(broken):
        tl.debug_barrier()  # what it takes the place of is written by other threads
        tl.store(found + part * size // SPAN, float("nan"))


@triton.jit(do_not_specialize=["distances_step", "temperatures_step", "spans"])  # type: ignore[untyped-decorator]
def _mask_below_top(  # type: ignore[no-untyped-def]
    logits,
    tops,
    distances,
    temperatures,
    stride,
    distances_step,
    temperatures_step,
    vocab,
    spans,
    size,
    SCALED: tl.constexpr,  # noqa: N803
    SPAN: tl.constexpr,  # noqa: N803
    KEPT: tl.constexpr,  # noqa: N803
):
    """Mask what is more than a distance below its row's highest logit.

    Nearly all of a row is: a span whose highest logit is that low is written without being read. So a row is read once
    and written once, though it is looked at twice, and no program has to wait for others of its row, as it would to
    find the row in the L2 cache. Spans that are read again begin with what the first launch read last.
    """
    row = tl.num_programs(0) - 1 - tl.program_id(0)
    part = tl.num_programs(1) - 1 - tl.program_id(1)
    found = tops + row.to(tl.int64) * spans
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((KEPT,), float("-inf"), tl.float32)
    broken = tl.zeros((KEPT,), tl.int32)
    for first in range(0, tl.cdiv(end, SPAN), KEPT):
        place = first + tl.arange(0, KEPT)
        some = tl.load(found + place, mask=place * SPAN < end, other=float("-inf"))
        best = tl.maximum(best, some)
        broken |= (some != some).to(tl.int32)
    distance = tl.load(distances + row * distances_step)
    if SCALED:
        distance *= tl.load(temperatures + row * temperatures_step)
    limit = tl.where(_any(broken), float("nan"), tl.max(best, 0) - distance)  # as torch's amax: NaN is the highest
    if limit > float("-inf"):
        for offset in range(part * size, min(part * size + size, end), SPAN):
            top = tl.load(found + offset // SPAN)
            if top >= limit:
                values = _tile(start, offset, begin, end, 0.0, SPAN)
                beyond = values < limit
                if _any(beyond):
                    _write(start, offset, begin, end, tl.where(beyond, float("-inf"), values), beyond, SPAN)
            elif top > float("-inf"):  # else it is masked already
                masked = tl.full((SPAN,), float("-inf"), tl.float32)
                _write(start, offset, begin, end, masked, masked < 0.0, SPAN)


@triton.jit(do_not_specialize=["limits_step"])  # type: ignore[untyped-decorator]
def _mask(  # type: ignore[no-untyped-def]
    logits,
    limits,
    stride,
    limits_step,
    vocab,
    size,
    ABOVE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Mask what is beyond each row's limit."""
    row, part = tl.program_id(0), tl.program_id(1)
    limit = tl.load(limits + row * limits_step)
    if limit < float("inf") if ABOVE else limit > float("-inf"):
        start, begin, end = _row(logits, row, stride, vocab)
        for offset in range(part * size, min(part * size + size, end), BLOCK):
            values = _tile(start, offset, begin, end, 0.0, BLOCK)
            beyond = values > limit if ABOVE else values < limit
            if _any(beyond):
                _write(start, offset, begin, end, tl.where(beyond, float("-inf"), values), beyond, BLOCK)


@triton.jit(do_not_specialize=["limits_step", "parts"])  # type: ignore[untyped-decorator]
def _least(logits, limits, least, stride, limits_step, vocab, parts, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The least logit of each part of each row that is not below the row's limit."""
    row, part = tl.program_id(0), tl.program_id(1)
    limit = tl.load(limits + row * limits_step)
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((BLOCK,), float("inf"), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("inf"), BLOCK)
        best = tl.minimum(best, tl.where(values < limit, float("inf"), values))
    tl.store(least + row * parts + part, tl.min(best, 0))


@triton.jit(do_not_specialize=["temperatures_step", "parts"])  # type: ignore[untyped-decorator]
def _exponentials(  # type: ignore[no-untyped-def]
    logits,
    temperatures,
    highest,
    sums,
    stride,
    temperatures_step,
    vocab,
    parts,
    size,
    BLOCK: tl.constexpr,  # noqa: N803
):
    """For each part of each row its highest logit, and the sum of exp((logit - highest) / temperature)."""
    row, part = tl.program_id(0), tl.program_id(1)
    scale = 1.0 / tl.load(temperatures + row * temperatures_step)
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        higher = tl.maximum(best, values)
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN
        total = total * tl.exp((best - origin) * scale) + tl.exp((values - origin) * scale)
        best = higher
    top = tl.max(best, 0)
    origin = tl.where(top == float("-inf"), 0.0, top)
    tl.store(highest + row * parts + part, top)
    tl.store(sums + row * parts + part, tl.sum(total * tl.exp((best - origin) * scale), 0))


@triton.jit(do_not_specialize=["parts"])  # type: ignore[untyped-decorator]
def _moments(logits, found, stride, vocab, parts, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """For each part of each row: the highest logit; of those not masked the number, mean, and squares around it.

    One pass, by the updates of Welford (1962) and Chan, Golub and LeVeque (1979).
    """
    row, part = tl.program_id(0), tl.program_id(1)
    start, begin, end = _row(logits, row, stride, vocab)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        values = _tile(start, offset, begin, end, float("-inf"), BLOCK)
        best = tl.maximum(best, values)
        there = values > float("-inf")
        count += tl.where(there, 1.0, 0.0)
        away = tl.where(there, values - mean, 0.0)
        mean += away / tl.maximum(count, 1.0)
        squares += tl.where(there, away * (values - mean), 0.0)
    number = tl.sum(count, 0)
    middle = tl.sum(count * mean, 0) / tl.maximum(number, 1.0)
    result = found + (row * parts + part) * 4
    tl.store(result, tl.max(best, 0))
    tl.store(result + 1, number)
    tl.store(result + 2, middle)
    tl.store(result + 3, tl.sum(squares + count * (mean - middle) * (mean - middle), 0))


@triton.jit(do_not_specialize=["seeds_step", "limits_step", "biases_step"])  # type: ignore[untyped-decorator]
def _add_hashed(  # type: ignore[no-untyped-def]
    logits,
    seeds,
    limits,
    biases,
    stride,
    seeds_step,
    limits_step,
    biases_step,
    vocab,
    size,
    FIRST: tl.constexpr,  # noqa: N803
    SECOND: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Add each row's bias where the hash of its seed and a token is below its limit."""
    row, part = tl.program_id(0), tl.program_id(1)
    seed, bias = tl.load(seeds + row * seeds_step), tl.load(biases + row * biases_step)
    limit = tl.load(limits + row * limits_step)
    start, begin, end = _row(logits, row, stride, vocab)
    for offset in range(part * size, min(part * size + size, end), BLOCK):
        state = (offset - begin + tl.arange(0, BLOCK) ^ seed).to(tl.uint32, bitcast=True)
        state = (state ^ (state >> 16)) * FIRST
        state = (state ^ (state >> 13)) * SECOND
        state ^= state >> 16
        chosen = state.to(tl.int32, bitcast=True) < limit
        if _any(chosen):  # a row that does not use it chooses none, and is not even read
            values = _tile(start, offset, begin, end, 0.0, BLOCK)
            _write(start, offset, begin, end, tl.where(chosen, values + bias, values), chosen, BLOCK)


@triton.jit(do_not_specialize=["ids", "where", "ids_stride", "where_stride", "k"])  # type: ignore[untyped-decorator]
def _kept(  # type: ignore[no-untyped-def]
    logits,
    ids,
    where,
    held,
    meant,
    stride,
    ids_stride,
    where_stride,
    vocab,
    k,
    ALL: tl.constexpr,  # noqa: N803
    IDS: tl.constexpr,  # noqa: N803
):
    """The logits that a row keeps, and whether it is to keep these alone."""
    row = tl.program_id(0).to(tl.int64)
    alive = tl.zeros((IDS,), tl.int32)
    broken = tl.zeros((IDS,), tl.int32)
    for offset in range(0, k, IDS):
        place = offset + tl.arange(0, IDS)
        token = tl.load(ids + row * ids_stride + place, mask=place < k, other=-1)
        real = (token >= 0) & (token < vocab)
        value = tl.load(logits + row * stride + token, mask=real, other=float("-inf"))
        tl.store(held + row * k + place, value, mask=place < k)
        alive |= (value > float("-inf")).to(tl.int32)
        broken |= (value != value).to(tl.int32)  # NaN is the highest of a row, and not above -inf
    wanted = (tl.load(ids + row * ids_stride) >= 0) & (tl.max(alive, 0) > 0) & (tl.max(broken, 0) == 0)
    if not ALL:
        wanted &= tl.load(where + row * where_stride) != 0
    tl.store(meant + row, wanted.to(tl.int32))


@triton.jit(do_not_specialize=["ids", "ids_stride", "k"])  # type: ignore[untyped-decorator]
def _keep(  # type: ignore[no-untyped-def]
    logits,
    ids,
    held,
    meant,
    stride,
    ids_stride,
    vocab,
    k,
    size,
    IDS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Mask a part of a row, and put back what is kept of it."""
    row, part = tl.program_id(0), tl.program_id(1)
    if tl.load(meant + row) != 0:
        start, begin, end = _row(logits, row, stride, vocab)
        first, last = part * size, min(part * size + size, end)
        masked = tl.full((BLOCK,), float("-inf"), tl.float32)
        for offset in range(first, last, BLOCK):
            _write(start, offset, begin, end, masked, masked < 0.0, BLOCK)
        tl.debug_barrier()  # what is put back is written by other threads
        for offset in range(0, k, IDS):
            item = offset + tl.arange(0, IDS)
            token = tl.load(ids + row.to(tl.int64) * ids_stride + item, mask=item < k, other=-1)
            place = token + begin
            here = (token >= 0) & (token < vocab) & (place >= first) & (place < last)
            value = tl.load(held + row.to(tl.int64) * k + item, mask=here, other=0.0)
            tl.store(start + place, value, mask=here)


def mask_below_(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_below_`."""
    return _masked(logits, lowest, above=False)


def mask_above_(logits: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_above_`."""
    return _masked(logits, highest, above=True)


def mask_far_below_top_(
    logits: torch.Tensor, distance: torch.Tensor, temperature: torch.Tensor | None = None
) -> torch.Tensor:
    """See :func:`lpkit.kernels.mask_far_below_top_`."""
    grid, (stride, vocab, _, size) = _grid(logits)
    spans = _ratio_up(vocab + WORD.value - 1, SPAN)
    tops = torch.empty(grid[0], spans, dtype=torch.float32, device=logits.device)
    distance, far = _per_row(distance, logits)
    factor, step = (distance, 0) if temperature is None else _per_row(temperature, logits)
    _tops[grid](logits, tops, stride, vocab, spans, size, SPAN=SPAN, BLOCK=BLOCK, num_warps=WARPS)
    # Multiplying and subtracting in one instruction would round once where the operations of torch round twice.
    _mask_below_top[grid](
        logits, tops, distance, factor, stride, far, step, vocab, spans, size,
        SCALED=temperature is not None, SPAN=SPAN, KEPT=KEPT, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return logits


def least_from(logits: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.least_from`."""
    grid, (stride, *sizes) = _grid(logits)
    least = torch.empty(grid, dtype=torch.float32, device=logits.device)
    limits, step = _per_row(lowest, logits)
    _least[grid](logits, limits, least, stride, step, *sizes, BLOCK=BLOCK, num_warps=WARPS)
    return least.amin(dim=1, keepdim=True)


def log_sum_exp(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """See :func:`lpkit.kernels.log_sum_exp`."""
    grid, (stride, *sizes) = _grid(logits)
    highest, sums = torch.empty(2, *grid, dtype=torch.float32, device=logits.device)
    temperature, step = _per_row(temperature, logits)
    _exponentials[grid](logits, temperature, highest, sums, stride, step, *sizes, BLOCK=BLOCK, num_warps=WARPS)
    return triton_parts.log_sum(highest, sums, temperature)


def top_and_deviation(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`lpkit.kernels.top_and_deviation`."""
    grid, sizes = _grid(logits)
    found = torch.empty(*grid, 4, dtype=torch.float32, device=logits.device)
    # Half a tile: it keeps four numbers for each logit of one.
    _moments[grid](logits, found, *sizes, BLOCK=BLOCK // 2, num_warps=WARPS)
    return triton_parts.deviation(found)


def add_where_hashed_(
    logits: torch.Tensor, seeds: torch.Tensor, limit: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """See :func:`lpkit.kernels.add_where_hashed_`."""
    grid, (stride, vocab, _, size) = _grid(logits)
    first, second = (factor % 2**32 for factor in FACTORS_32)
    given = (_per_row(seeds, logits, torch.int32), _per_row(limit, logits, torch.int32), _per_row(bias, logits))
    columns, steps = zip(*given, strict=True)
    _add_hashed[grid](
        logits, *columns, stride, *steps, vocab, size, FIRST=first, SECOND=second, BLOCK=BLOCK, num_warps=WARPS
    )
    return logits


def keep_ids_(logits: torch.Tensor, ids: torch.Tensor, where: torch.Tensor | None = None) -> torch.Tensor:
    """See :func:`lpkit.kernels.keep_ids_`."""
    grid, (stride, vocab, _, size) = _grid(logits)
    k, ids = ids.shape[1], ids if ids.stride(1) == 1 else ids.contiguous()
    held = torch.empty(ids.shape, dtype=torch.float32, device=logits.device)
    meant = torch.empty(ids.shape[0], dtype=torch.int32, device=logits.device)
    flags = meant if where is None else where.expand(ids.shape[0], 1)
    steps = (stride, ids.stride(0), flags.stride(0), vocab, k)
    _kept[grid[:1]](logits, ids, flags, held, meant, *steps, ALL=where is None, IDS=KEPT, num_warps=1)
    _keep[grid](logits, ids, held, meant, stride, ids.stride(0), vocab, k, size, IDS=KEPT, BLOCK=BLOCK, num_warps=WARPS)
    return logits


def suits(logits: torch.Tensor) -> bool:
    """Whether the kernels can take these logits."""
    return logits.dtype == torch.float32 and logits.stride(1) == 1 and logits.numel() > 0


def split(rows: int, vocab: int) -> tuple[int, int]:
    """(parts of a row, tokens of a part)."""
    tiles = _ratio_up(vocab, BLOCK)
    size = _ratio_up(tiles, min(MOST_PARTS, _ratio_up(PROGRAMS, rows))) * BLOCK
    return _ratio_up(vocab, size), size


def _ratio_up(number: int, by: int) -> int:
    return -(-number // by)


def _grid(logits: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """(rows, parts of a row), and what the kernels are told: stride, vocabulary, parts, tokens of a part."""
    rows, vocab = logits.shape
    parts, size = split(rows, vocab + WORD.value - 1)  # a row may begin within a word
    return (rows, parts), (logits.stride(0), vocab, parts, size)


def _per_row(
    values: torch.Tensor, logits: torch.Tensor, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, int]:
    """``[n, 1]``, and from one row to the next how many elements; columns come strided, and are not copied."""
    values = values.to(dtype).expand(logits.shape[0], 1)
    return values, values.stride(0)


def _masked(logits: torch.Tensor, limits: torch.Tensor, above: bool) -> torch.Tensor:
    grid, (stride, vocab, _, size) = _grid(logits)
    limits, step = _per_row(limits, logits)
    _mask[grid](logits, limits, stride, step, vocab, size, ABOVE=above, BLOCK=BLOCK, num_warps=WARPS)
    return logits
