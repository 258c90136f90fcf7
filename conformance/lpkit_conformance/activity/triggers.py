"""Which tokens switch a plugin on, or change what it does: every token of the vocabulary in a row of its own."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lpkit_conformance.activity.shape import Shape, shapes
from lpkit_conformance.activity.stand import Stance, stand_at
from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.results import Blocked

LENGTH = 3
"""Tokens that the requests of the sweep have generated."""

MOST_ROWS = 1024
MOST_ALIKE = 8
"""Rows that may be unusual in the same way; if more are, tokens differ for this plugin in general."""

MOST_TRIGGERS = 4


def sweep(subject: PluginUnderTest) -> list[Stance]:
    """Requests in which one token makes the plugin do something else than for most tokens; few of them.

    The token is the last output, stands in the prompt, or has the largest logit. What the plugin raises meanwhile is
    not told: the checks find it by ordinary means, or it has to do with the size of the batch.
    """
    with contextlib.suppress(PluginError, Blocked, StandinError):
        return _sweep(subject)
    return []


def _sweep(subject: PluginUnderTest) -> list[Stance]:
    vocab = subject.vocab_size
    tokens = range(0, vocab, -(-vocab // MOST_ROWS))
    plain = Stance(0, "sweep", LENGTH)
    # One batch for the outputs and the prompts: which of both it was is asked of the few rows that stand out.
    far = len(tokens) // 3
    both = [replace(plain, last=token, prompted=tokens[row - far]) for row, token in enumerate(tokens)]
    standing = stand_at(subject, both)
    usual, unusual = _unusual(shapes(standing.logits, standing.after))
    suspects = [
        (suspect, usual)
        for row in unusual
        for suspect in (replace(plain, last=both[row].last), replace(plain, prompted=both[row].prompted))
    ]
    best = standing.logits.clone()
    top = best.amax(1) + 1.0
    for row, token in enumerate(tokens):
        best[row, token] = top[row]
    usual, odd = _unusual(shapes(best, standing.again(best.clone())))
    suspects += [(replace(plain, best=tokens[row]), usual) for row in odd if row not in unusual]
    if not suspects:
        return []
    closer = stand_at(subject, [stance for stance, _ in suspects])
    found = zip(suspects, shapes(closer.logits, closer.after), strict=True)
    return [stance for (stance, usual), kind in found if kind != usual][:MOST_TRIGGERS]


def _unusual(kinds: Sequence[Shape]) -> tuple[Shape, list[int]]:
    """What happens to most rows, and rows to which few others have the like happen: one of each kind."""
    counts = Counter(kinds)
    usual, _ = counts.most_common(1)[0]
    first: dict[Shape, int] = {}
    for row, kind in enumerate(kinds):
        if kind != usual and counts[kind] <= MOST_ALIKE:
            first.setdefault(kind, row)
    return usual, list(first.values())[:MOST_TRIGGERS]
