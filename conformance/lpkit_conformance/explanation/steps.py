"""Distributions as data: around a stage, and of the request whose row differs, alone and in the batch, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from lpkit_conformance.expectation.compare import differing
from lpkit_conformance.expectation.solo import solo_runs
from lpkit_conformance.hosts import Observation
from lpkit_conformance.hosts.requests import ActiveRequest
from lpkit_conformance.results import StageView, StepView
from lpkit_conformance.subject.subject import Subject

EXAMPLES = 5
"""Banned tokens that are named."""

LIKELIEST = 4
"""Most likely tokens of each row that a finding shows."""

MODEL = "model"


class RequestRow(NamedTuple):
    """A row of a request.

    Attributes:
        step: number of the engine's step.
        token: the token that the request got from it.
        model, alone, batch: logits ``[vocab]``: before the plugin, with it in a solo run, and with it in the batch.
    """

    step: int
    token: int
    model: torch.Tensor
    alone: torch.Tensor
    batch: torch.Tensor

    def view(self, batch: str) -> StepView:
        """Return the row as data; ``batch``: its surroundings as text."""
        rows = (self.model, self.alone, self.batch)
        apart = [item["token"] for item in differing(*rows)["tokens"]]
        ids = list(dict.fromkeys([self.token, *apart, *(i for row in rows for i in likeliest(row, LIKELIEST))]))
        names = ((MODEL, None), ("alone", 0), ("in the batch (against alone)", 1))
        stages = (
            stage_view(name, number, before, after, ids, str)
            for (name, number), before, after in zip(names, (self.model, *rows), rows, strict=False)
        )
        token = str(self.token)
        return StepView(token, token, (), tuple(map(str, ids)), tuple(stages), batch=batch)


def rows_of(
    subject: Subject, requests: Mapping[str, ActiveRequest], seen: Iterable[Observation], culprit: tuple[int, str]
) -> list[RequestRow]:
    """Return a request's rows up to the first that differs.

    Args:
        requests: the run's requests, by name.
        seen: the run.
        culprit: step and request of the row that differs.
    """
    solo = solo_runs(subject)
    solo.prepare(dict(requests))
    step, name = culprit
    active = requests[name]
    outputs = max(active.committed, active.request.output_token_ids, key=len)
    rows = []
    for observation in seen:
        for row, item in enumerate(observation.rows):
            alone = solo.expected(name, item.position)
            if item.request == name and not item.discarded and observation.step <= step and alone is not None:
                got = observation.after[row]
                at = item.position - active.request.prompt_len
                token = outputs[at] if at < len(outputs) else int(got.argmax())
                rows.append(RequestRow(observation.step, token, observation.before[row], alone, got))
    return rows


def likeliest(row: torch.Tensor, count: int) -> list[int]:
    """Return the ids of the most likely possible tokens of a row ``[vocab]``."""
    return [i for i in row.topk(count).indices.tolist() if row[i] > -torch.inf]


def stage_view(
    name: str,
    processor: int | None,
    before: torch.Tensor,
    after: torch.Tensor,
    ids: Sequence[int],
    text: Callable[[int], str],
) -> StageView:
    """Return what a stage made of logits ``[vocab]``.

    Args:
        ids: the tokens whose probabilities are kept.
        text: returns a token as a person reads it.
    """
    # A row without any token has no distribution: its probabilities are 0.
    was, now = (logits.double().softmax(-1).nan_to_num(0.0) for logits in (before, after))
    moved = float((was - now).abs().sum()) / 2 if now.any() else float(was.any())
    banned = (after.isneginf() & ~before.isneginf()).nonzero().flatten()
    likely = banned[was[banned].argsort(descending=True)[:EXAMPLES]].tolist()
    positive = now[now > 0]
    shown = now[torch.tensor(ids)]
    ranks = [1 + int((now > value).sum()) if value else 0 for value in shown]
    return StageView(
        name,
        processor,
        round(moved, 6),
        round(float(-(positive * positive.log2()).sum()) + 0.0, 4),
        len(banned),
        tuple(map(text, likely)),
        tuple(round(float(value), 5) for value in shown),
        tuple(ranks),
    )
