"""Drafts of the hosts: wrong drafts, and the fate of right drafts once the plugin has seen them."""

from __future__ import annotations

from dataclasses import replace

import torch

from lpkit_conformance.subject.calls import SeenRow
from lpkit_conformance.subject.subject import Subject


def misleading(subject: Subject, number: int | None, right: int, otherwise: int) -> int:
    """Return a wrong draft, if possible a token that the plugin waits for.

    Args:
        number: an arbitrary number that selects one of these tokens; None: do not use these tokens.
        right: the token that the draft must differ from.
        otherwise: the draft if the plugin waits for no token, or ``number`` is None.
    """
    likely = subject.model.named(subject.setup.case)
    token = otherwise if number is None or not likely else likely[number % len(likely)]
    return token if token != right else (right + 1) % subject.setup.vocab_size


def verified(
    subject: Subject, seen: list[SeenRow], after: torch.Tensor, tokens: dict[str, list[int]]
) -> tuple[SeenRow, ...]:
    """Return the rows, except rows behind a draft that the plugin has forbidden.

    Args:
        tokens: by request, the intended tokens of its rows that are not discarded, one for each row. Where the plugin
            has forbidden a token, the list is shortened and corrected in place.
    """
    judged = [row for row, item in enumerate(seen) if not item.discarded]
    wanted = [tokens[seen[row].request][seen[row].local] for row in judged]
    sampled = after if len(judged) == len(seen) else after[judged]
    for row, token in zip(judged, subject.model.sampled(wanted, sampled), strict=True):
        item = seen[row]
        intended = tokens[item.request]
        if item.local >= len(intended):
            seen[row] = replace(item, discarded=True)
        elif token != intended[item.local]:
            intended[item.local :] = [token]
    return tuple(seen)
