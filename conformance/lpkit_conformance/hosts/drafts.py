"""Drafts of the hosts: wrong ones, and what becomes of right ones once the plugin has seen them."""

from __future__ import annotations

from dataclasses import replace

import torch

from lpkit_conformance.hosts.calls import SeenRow
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest


def misleading(subject: PluginUnderTest, number: int | None, right: int, otherwise: int) -> int:
    """A wrong draft, if possible one of the tokens that the plugin waits for.

    Args:
        subject: the plugin.
        number: any number: it says which of these tokens; None: no such token.
        right: what the draft must not be.
        otherwise: the draft if the plugin waits for no token, or no number is given.
    """
    likely = subject.named(subject.case)
    token = otherwise if number is None or not likely else likely[number % len(likely)]
    return token if token != right else (right + 1) % subject.vocab_size


def verified(
    subject: PluginUnderTest, seen: list[SeenRow], after: torch.Tensor, tokens: dict[str, list[int]]
) -> tuple[SeenRow, ...]:
    """The rows, without those behind a draft that the plugin has forbidden.

    Args:
        subject: the plugin.
        seen: the rows.
        after: what the plugin made of them.
        tokens: by request, what is to come of its rows that are not discarded, one for each; cut and mended in place
            where the plugin has forbidden a token.
    """
    judged = [row for row, item in enumerate(seen) if not item.discarded]
    wanted = [tokens[seen[row].request][seen[row].local] for row in judged]
    for row, token in zip(judged, subject.sampled(wanted, after[judged]) if judged else (), strict=True):
        item = seen[row]
        own = tokens[item.request]
        if item.local >= len(own):
            seen[row] = replace(item, discarded=True)
        elif token != own[item.local]:
            own[item.local :] = [token]
    return tuple(seen)
