"""Tokens that switch a plugin on or change its action: every token of the vocabulary, in a row of its own."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lpkit_conformance.activity.shape import Shape, shapes
from lpkit_conformance.activity.stand import Stance, stand_at
from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import PluginError
from lpkit_conformance.results import Blocked
from lpkit_conformance.subject.subject import Subject

LENGTH = 3
"""Tokens that the requests of the sweep have generated."""

MOST_ROWS = 1024
MOST_ALIKE = 8
"""Most rows with the same rare edit; an edit of more rows is ordinary for this plugin."""

MOST_TRIGGERS = 4


def sweep(subject: Subject) -> list[Stance]:
    """Return a few requests in which a single token makes the plugin act differently than for most tokens.

    The token is the last output, is in the prompt, or has the largest logit. Exceptions of the plugin are ignored here:
    the checks find them in ordinary runs, or the size of the batch causes them.
    """
    with contextlib.suppress(PluginError, Blocked, StandinError):
        return _sweep(subject)
    return []


def _sweep(subject: Subject) -> list[Stance]:
    vocab = subject.setup.vocab_size
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
    reactions = zip(suspects, shapes(closer.logits, closer.after), strict=True)
    return [stance for (stance, usual), kind in reactions if kind != usual][:MOST_TRIGGERS]


def _unusual(kinds: Sequence[Shape]) -> tuple[Shape, list[int]]:
    """Return the most frequent edit, and rows with rare edits, one of each kind."""
    counts = Counter(kinds)
    usual, _ = counts.most_common(1)[0]
    first: dict[Shape, int] = {}
    for row, kind in enumerate(kinds):
        if kind != usual and counts[kind] <= MOST_ALIKE:
            first.setdefault(kind, row)
    return usual, list(first.values())[:MOST_TRIGGERS]
