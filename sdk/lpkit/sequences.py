"""Questions about token histories, answered for all rows at once: repetitions, markers, counts.

Histories are ``rows.tokens``: ``[n, W]`` int64 from the start, -1 behind the end of each. Patterns are ragged columns:
``[n, k]`` int64, -1 behind the end. Nothing waits for the device, and the number of operations does not depend on
``n``.
"""

from __future__ import annotations

import torch

from lpkit.rng import mix

_BASE = 0x9E3779B97F4A7C15 - 2**64


def match_lengths(tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """``[n, W]`` int64: for each position, how many tokens before it are also the last ones of the history.

    The largest k with ``tokens[i - k : i] == tokens[L - k : L]``, so ``tokens[i]`` is what followed when the history's
    last k tokens stood there before. 0 from the end of the history on. ``lengths`` is ``[n]``.

    Found by bisection on 64-bit hashes of stretches of the history, in log W steps; an error takes a collision.
    """
    stretches = _Stretches(tokens, lengths)
    found = torch.zeros_like(tokens)
    step = 1 << max((tokens.shape[1] - 1).bit_length() - 1, 0)
    while step:
        longer = found + step
        found = torch.where(stretches.end_before(longer), longer, found)
        step //= 2
    return found


def end_stood_before(tokens: torch.Tensor, lengths: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """``[n, W]`` bool: for each position, whether the last ``count`` tokens of the history stand right before it too.

    ``lengths`` is ``[n]``, ``count`` ``[n, 1]``, not negative; the end itself does not count. By hashes, as
    :func:`match_lengths`.
    """
    return _Stretches(tokens, lengths).end_before(count)


class _Stretches:
    """Compares stretches of histories with their ends, by their hashes."""

    def __init__(self, tokens: torch.Tensor, lengths: torch.Tensor) -> None:
        n, width = tokens.shape
        self._position = torch.arange(width, device=tokens.device)
        powers = torch.full((width,), _BASE, dtype=torch.int64, device=tokens.device).cumprod(0)  # from the first on
        # hashes[i] covers the first i tokens; a stretch is a difference, times a power that moves it to the end.
        self._hashes = torch.zeros(n, width + 1, dtype=torch.int64, device=tokens.device)
        torch.cumsum(mix(tokens) * powers, 1, out=self._hashes[:, 1:])
        self._end = lengths.unsqueeze(1)
        self._to_end = powers[(self._end - self._position - 1).clamp(min=0)]
        self._known = self._position < self._end

    def end_before(self, count: torch.Tensor) -> torch.Tensor:
        """Where the ``count`` (``[n, W]`` or ``[n, 1]``) tokens before a position are the last of the history."""
        hashes, position, end = self._hashes, self._position, self._end
        stretch = hashes[:, :-1] - hashes.gather(1, (position - count).clamp(min=0))
        wanted = hashes.gather(1, end) - hashes.gather(1, (end - count).clamp(min=0))
        return (stretch * self._to_end == wanted) & (count <= position) & self._known


def end_of_last(tokens: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """``[n]`` int64: the position behind the last occurrence of each row's pattern; -1 if there is none."""
    k = pattern.shape[1]
    windows = torch.nn.functional.pad(tokens, (0, k - 1), value=-1).unfold(1, k, 1)  # [n, W, k]
    wanted = pattern.unsqueeze(1)
    equal = windows == wanted
    equal |= wanted < 0
    there = equal.all(2) & (pattern[:, :1] >= 0)
    behind = torch.arange(tokens.shape[1], device=tokens.device) + (pattern >= 0).sum(1, keepdim=True)
    return torch.where(there & (tokens >= 0), behind, -1).amax(1)


def begun(tokens: torch.Tensor, lengths: torch.Tensor, pattern: torch.Tensor, since: torch.Tensor) -> torch.Tensor:
    """``[n]`` int64: how many tokens of each row's pattern the history ends with; less than all of them.

    Only tokens at positions ``>= since`` (``[n]``) count.
    """
    n, k = pattern.shape
    index = torch.arange(k, device=tokens.device)
    length, offset = index.view(k, 1), index.view(1, k)
    position = lengths.view(n, 1, 1) - length + offset
    held = tokens.gather(1, position.clamp(0, tokens.shape[1] - 1).flatten(1)).view(n, k, k)
    fits = ((held == pattern.unsqueeze(1)) | (offset >= length)).all(2)
    fits &= (index <= (lengths - since).unsqueeze(1)) & (index < (pattern >= 0).sum(1, keepdim=True))
    return torch.where(fits, index, 0).amax(1)


def counts(tokens: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """``[n, W]`` int64: how often each token occurs among those of its row that ``among`` (bool ``[n, W]``) selects."""
    pool = torch.where(among, tokens, -2).sort(1).values
    last = torch.searchsorted(pool, tokens.contiguous(), right=True)
    return last - torch.searchsorted(pool, tokens.contiguous())


def largest_per_id(ids: torch.Tensor, values: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's distinct ids, once, with the largest of their values: ``([n, k], [n, k])``, the rest holds id -1.

    ``ids`` are ``>= -1`` and ``values`` int64 in ``[0, limit)``.
    """
    keys = (ids * limit + values).sort(1).values
    found = keys.div(limit, rounding_mode="floor")
    largest = torch.ones_like(found, dtype=torch.bool)
    largest[:, :-1] = found[:, 1:] != found[:, :-1]
    return torch.where(largest, found, -1), keys - found * limit
