"""Questions about token histories, answered for all rows at once: repetitions, markers, counts.

Histories are ``rows.tokens``: ``[n, W]`` int64 from the start, -1 behind the end of each. Patterns are ragged columns:
``[n, k]`` int64 with k at least 1, -1 behind the end. An empty pattern matches nothing, and neither does a pattern
longer than the history. No function waits for the device. The number of operations does not depend on ``n``, which may
be 0.
"""

from __future__ import annotations

import numpy as np
import torch

from lpkit import kernels
from lpkit.kernels import fused
from lpkit.kernels.recording import HASHES, StandIn
from lpkit.rng import mix

__all__ = [
    "begun",
    "completes_ngram",
    "counts",
    "end_of_last",
    "ends_with",
    "fresh_context",
    "largest_per_id",
    "match_lengths",
    "next_in_loop",
]

_BASE = 0x9E3779B97F4A7C15 - 2**64
_NOWHERE = 0xD1B54A32D192ED03 - 2**64


def match_lengths(
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    since: torch.Tensor | None = None,
    breaks: torch.Tensor | None = None,
) -> torch.Tensor:
    """For each position, count the tokens before it that equal the end of the history.

    The result is the largest k with ``tokens[i - k : i] == tokens[L - k : L]``. So ``tokens[i]`` followed the last time
    the history's last k tokens occurred there. The DRY penalty and n-gram lookups use this.

    Found by bisection on 64-bit hashes of stretches of the history, in log W steps. A hash collision gives a wrong
    count, and texts can be made to collide (a Thue-Morse sequence of 1,024 tokens does). On CUDA a kernel compares the
    tokens themselves, in one launch.

    Args:
        tokens: int64 ``[n, W]``, histories.
        lengths: int64 ``[n]``, length of each history.
        since: int64 ``[n]``, may be negative; only tokens before a position that stand at ``>= since`` count, e.g.
            ``rows.prompt_len``. None: all.
        breaks: bool ``[n, W]``; tokens that no match contains. None: none.

    Returns:
        int64 ``[n, W]``; 0 where nothing matches, and from the end of the history on.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.match_lengths(tokens, lengths, since, breaks)
    if breaks is not None:  # such a token equals only itself
        itself = torch.arange(-2, -2 - tokens.shape[1], -1, device=tokens.device)
        tokens = torch.where(breaks, itself, tokens)
    if (few := fused.few_for(tokens)) is not None:
        return few.match_lengths(tokens, lengths, since)  # type: ignore[no-any-return]
    ends = _Ends(tokens, lengths)
    start = ends.place
    step = 1 << max((tokens.shape[1] - 1).bit_length() - 1, 0)
    while step:
        start = start.add(ends.follow(start - step), alpha=-step)
        step //= 2
    matched = torch.zeros_like(tokens).index_put_((ends.row, ends.position), (ends.place - start) * ends.inside)
    if since is None:
        return matched
    return matched.minimum(torch.arange(tokens.shape[1], device=tokens.device) - since.unsqueeze(1)).clamp_(min=0)


def completes_ngram(
    tokens: torch.Tensor, lengths: torch.Tensor, size: torch.Tensor, since: torch.Tensor
) -> torch.Tensor:
    """For each position, test if writing its token next would repeat the n-gram that ends there.

    Found by hashes or one kernel, as in :func:`match_lengths`. A ban on repeated n-grams masks these tokens.

    Args:
        tokens: int64 ``[n, W]``, histories.
        lengths: int64 ``[n]``, length of each history.
        size: int64 ``[n]``, tokens of an n-gram, at least 1. With 1, every token repeats an n-gram.
        since: int64 ``[n]``; only n-grams that begin at positions ``>= since`` count, e.g. ``rows.prompt_len``.

    Returns:
        bool ``[n, W]``; False from the end of the history on.
    """
    if (few := fused.few_for(tokens)) is not None:
        return few.completes_ngram(tokens, lengths, size, since)  # type: ignore[no-any-return]
    ends = _Ends(tokens, lengths)
    beginning = size.unsqueeze(1) - 1
    follows = ends.follow(ends.place - beginning.view(-1).index_select(0, ends.row)) & ends.inside
    stood = (beginning == 0).expand_as(tokens).index_put((ends.row, ends.position), follows)
    position = torch.arange(tokens.shape[1], device=tokens.device)
    return stood & (position < lengths.unsqueeze(1)) & (position - since.unsqueeze(1) >= beginning)


def next_in_loop(
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    times: torch.Tensor,
    least: torch.Tensor,
    since: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the token that would continue the loop at the end of each history.

    A loop is one span of tokens, written several times in a row; if several spans fit, the shortest counts. Found by
    :func:`match_lengths`.

    Args:
        tokens: int64 ``[n, W]``, histories.
        lengths: int64 ``[n]``, length of each history.
        times: int64 ``[n]``, at least 2: number of times that the span is written.
        least: int64 ``[n]``, at least 1: number of tokens in the loop.
        since: int64 ``[n]``, may be negative; only tokens at positions ``>= since`` count, e.g. ``rows.prompt_len``.
            None: all.

    Returns:
        int64 ``[n]``; -1 without a loop, or if an unknown draft would continue it.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.next_in_loop(tokens, lengths, times, least, since)
    place = torch.arange(tokens.shape[1], device=tokens.device)
    span = lengths.unsqueeze(1) - place  # the period, if the tokens before `place` equal the end
    matched = match_lengths(tokens, lengths, since)
    loops = (matched >= (times - 1).unsqueeze(1) * span) & (matched + span >= least.unsqueeze(1)) & (tokens >= 0)
    last = torch.where(loops, place, -1).amax(1, keepdim=True)
    return torch.where(last >= 0, tokens.gather(1, last.clamp(min=0)), -1).squeeze(1)


class _Ends:
    """Compares stretches of histories that end at some positions with the ends of the histories, by their hashes.

    Attributes:
        row, position: int64 ``[m]``, positions at which a stretch can match. On a host, these follow a token equal to
            the history's last; elsewhere, all positions.
        inside: bool ``[m]``, True for positions inside the histories.
        place: int64 ``[m]``, index of the hash that ends before each position.
    """

    def __init__(self, tokens: torch.Tensor, lengths: torch.Tensor) -> None:
        n, width = tokens.shape
        self.row, self.position = _behind_last(tokens, lengths) if fused.on_host(tokens) else _everywhere(tokens)
        powers = torch.full((width,), _BASE, dtype=torch.int64, device=tokens.device).cumprod(0)  # from the first on
        # hashes[i + 1] covers the first i tokens; a stretch is a difference, times a power that moves it to the end.
        # The first column holds a special number: no stretch that begins before the history equals another.
        hashes = torch.full((n, width + 2), _NOWHERE, dtype=torch.int64, device=tokens.device)
        hashes[:, 1] = 0
        torch.cumsum(mix(tokens) * powers, 1, out=hashes[:, 2:])
        self._hashes = hashes.view(-1)
        self._first = self.row * (width + 2)
        self.place = self._first + self.position + 1
        beyond = lengths.index_select(0, self.row) - self.position
        self.inside = beyond > 0
        self._distance = beyond.clamp_(min=0)
        self._to_end = powers.index_select(0, (self._distance - 1).clamp_(min=0))
        # Two stretches are equal if their hash differences are equal, once both are moved to the end.
        self._difference = self._behind(self.place)

    def follow(self, start: torch.Tensor) -> torch.Tensor:
        """Test if the tokens from ``start``, an index per position, to the position equal the end of the history.

        An empty stretch matches. A start before the history does not.
        """
        return self._behind(torch.maximum(start, self._first)) == self._difference

    def _behind(self, place: torch.Tensor) -> torch.Tensor:
        moved = self._hashes.index_select(0, place).mul_(self._to_end)
        return self._hashes.index_select(0, place + self._distance).sub_(moved)


def _everywhere(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and positions of all tokens, ``[n * W]`` each."""
    rows, positions = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    return rows.unsqueeze(1).expand_as(tokens).reshape(-1), positions.expand_as(tokens).reshape(-1)


def _behind_last(tokens: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and positions that follow a token equal to the history's last, ``[m]`` each."""
    last = tokens.gather(1, (lengths - 1).clamp_(min=0).unsqueeze(1))
    stands = (tokens == last)[:, :-1].contiguous().view(torch.uint8)
    flat = torch.from_numpy(np.flatnonzero(np.from_dlpack(stands)))
    row = flat // max(stands.shape[1], 1)
    return row, flat - row * stands.shape[1] + 1


def end_of_last(tokens: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """Return the position behind the last occurrence of each row's pattern.

    Args:
        tokens: int64 ``[n, W]``, histories.
        pattern: int64 ``[n, k]``, k at least 1, -1 behind the end.

    Returns:
        int64 ``[n]``; -1 if the pattern does not occur, is empty, or is longer than the history.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.end_of_last(tokens, pattern)
    k = pattern.shape[1]
    windows = torch.nn.functional.pad(tokens, (0, k - 1), value=-1).unfold(1, k, 1)  # [n, W, k]
    wanted = pattern.unsqueeze(1)
    equal = windows == wanted
    equal |= wanted < 0
    there = equal.all(2) & (pattern[:, :1] >= 0)
    behind = torch.arange(tokens.shape[1], device=tokens.device) + (pattern >= 0).sum(1, keepdim=True)
    return torch.where(there & (tokens >= 0), behind, -1).amax(1)


def begun(tokens: torch.Tensor, lengths: torch.Tensor, pattern: torch.Tensor, since: torch.Tensor) -> torch.Tensor:
    """Count the tokens of each row's pattern that the history ends with, if the pattern is incomplete: a marker half
    written.

    Args:
        tokens: int64 ``[n, W]``, histories.
        lengths: int64 ``[n]``, length of each history.
        pattern: int64 ``[n, k]``, k at least 1, -1 behind the end.
        since: int64 ``[n]``; only tokens at positions ``>= since`` count, e.g. ``rows.prompt_len``.

    Returns:
        int64 ``[n]``; 0 if no pattern is begun, or if it is complete or empty.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.begun(tokens, lengths, pattern, since)
    n, k = pattern.shape
    index = torch.arange(k, device=tokens.device)
    offset = index - index.unsqueeze(1)  # from the end of the history, for each length of a beginning
    position = (lengths.unsqueeze(1) + offset.view(-1)).clamp_(0, tokens.shape[1] - 1)
    fits = ((tokens.gather(1, position).view(n, k, k) == pattern.unsqueeze(1)) | (offset >= 0)).all(2)
    fits &= (index <= (lengths - since.clamp(min=0)).unsqueeze(1)) & (index < (pattern >= 0).sum(1, keepdim=True))
    return (fits * index).amax(1)


def ends_with(tokens: torch.Tensor, lengths: torch.Tensor, phrases: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Test for each phrase if the history ends with the phrase's first tokens.

    Args:
        tokens: int64 ``[n, W]``, histories.
        lengths: int64 ``[n]``, length of each history.
        phrases: int64 ``[n, k, L]``, -1 behind the end of each, as :func:`lpkit.phrases` returns them.
        count: int64 ``[n, k]``, number of tokens of each phrase; True for 0 and below.

    Returns:
        bool ``[n, k]``; False for more tokens than the phrase or the history has.
    """
    offset = torch.arange(phrases.shape[2], device=tokens.device)
    position = (lengths.unsqueeze(1) - count).unsqueeze(2) + offset
    held = tokens.gather(1, position.clamp(0, tokens.shape[1] - 1).flatten(1)).view(phrases.shape)
    equal = (held == phrases) & (phrases >= 0) & (position >= 0)
    return (equal | (offset >= count.unsqueeze(2))).all(2) & (count <= phrases.shape[2])


def fresh_context(
    tokens: torch.Tensor,
    is_output: torch.Tensor,
    lengths: torch.Tensor,
    weights: torch.Tensor,
    size: torch.Tensor,
    since: torch.Tensor,
) -> torch.Tensor:
    """Hash the last tokens of each output, unless they stood there before: a watermark marks each context once.

    The hash is the sum of the tokens times their weights, modulo 65,536. What is before the output counts as 0.

    Args:
        tokens: int64 ``[n, W]``, histories.
        is_output: bool ``[n, W]``, True for tokens of the output.
        lengths: int64 ``[n]``, length of each history.
        weights: int64 ``[n, k]``, not negative: of the last token, of the one before it, and so on.
        size: int64 ``[n]``, tokens of a context and the one behind it, at most ``k + 1``.
        since: int64 ``[n]``; contexts that end before this position are forgotten.

    Returns:
        int64 ``[n, 1]``; -1 for a context that is not new, or if ``since`` is behind the history.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.fresh_context(tokens, is_output, lengths, weights, size, since)
    longest = weights.shape[1]
    outputs = torch.nn.functional.pad(tokens * is_output, (longest, 0))
    ends = lengths + longest
    back = torch.arange(1, longest + 1, device=tokens.device)
    hashed = (outputs.gather(1, ends.unsqueeze(1) - back) * weights).sum(1, keepdim=True) % HASHES
    again = completes_ngram(outputs, ends, size, since + longest + 1 - size).any(1)
    return hashed.masked_fill_((again | (since > lengths)).unsqueeze(1), -1)


def counts(tokens: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """Count each token's occurrences among some tokens of its row.

    Args:
        tokens: int64 ``[n, W]``, histories; ids below 2**31.
        among: bool ``[n, W]``, True for tokens to count, e.g. ``rows.is_output``.

    Returns:
        int64 ``[n, W]``. For ``tokens[i, j]`` it is the number of selected positions of row i that hold the same
        token. 0 behind the end, if ``among`` leaves the padding out.
    """
    if isinstance(tokens, StandIn):
        return tokens.kernels.counts(tokens, among)
    width = tokens.shape[1]
    bits = width.bit_length()
    keys = kernels.sorted_values(tokens << bits | torch.arange(width, device=tokens.device))
    place = keys & ((1 << bits) - 1)
    keys >>= bits
    run = torch.zeros_like(keys)  # numbers of runs of equal tokens
    torch.cumsum(keys[:, 1:] != keys[:, :-1], 1, out=run[:, 1:])
    run = torch.empty_like(run).scatter_(1, place, run)
    return torch.zeros_like(run).scatter_add_(1, run, among.expand_as(run).to(torch.int64)).gather(1, run)


def largest_per_id(ids: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's distinct ids, once, with the largest of their values, ready to write with ``SparseLogits``.

    Args:
        ids: int64 ``[n, k]``, below 2**31; negative ids are left out.
        values: int64 ``[n, k]``, below 2**31; an id with a negative value is left out.

    Returns:
        int64 ``[n, k]`` ids, in any order, and int64 ``[n, k]`` values. Unused entries have id -1, which
        ``SparseLogits`` ignores, and any value.
    """
    if isinstance(ids, StandIn):
        return ids.kernels.largest_per_id(ids, values)
    keys = kernels.sorted_values(torch.where((ids < 0) | (values < 0), -1, (ids << 31) + values))
    sorted_ids = keys >> 31
    largest = torch.ones_like(sorted_ids, dtype=torch.bool)
    largest[:, :-1] = sorted_ids[:, 1:] != sorted_ids[:, :-1]
    return torch.where(largest, sorted_ids, -1), keys & (2**31 - 1)
