"""When a step of a document acts: output positions, counted from the start or from a marker.

A position is the number of tokens written before it, so conditions are functions of the request's tokens alone, and
hold for drafts and for resumed requests.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import torch

import lpkit
from lpkit import sequences
from lpkit.history.rows import HistoryUse
from lpkit.portable.words import MarkerOf
from lpkit.rules import EVERYTHING

LIMIT = 16  # tokens of a marker

_Marker = Annotated[MarkerOf, lpkit.WordForms(special=True)]


class When(lpkit.Params):
    """Positions at which a step acts: the keys of ``when``, with ``when_`` before each."""

    when_from: int = lpkit.Field(0, ge=0)
    when_until: int | None = lpkit.Field(None, ge=1)
    when_every: int = lpkit.Field(1, ge=1)
    when_times: int | None = lpkit.Field(None, ge=1)
    when_after: _Marker = lpkit.Field((), max_length=LIMIT)
    when_before: _Marker = lpkit.Field((), max_length=LIMIT)
    when_during: Literal["reasoning", "answer"] | None = None

    def check_together(self) -> None:
        super().check_together()
        if self.when_until is not None and self.when_until <= self.when_from:
            raise ValueError(f"when_until: {self.when_until} is not above from, {self.when_from}")
        if self.when_during and (self.when_after or self.when_before):
            raise ValueError("when_during: given beside after or before")


KEYS = tuple(key.removeprefix("when_") for key in When.keys())  # noqa: SIM118
"""Keys of ``when``."""


class Conditional(lpkit.LogitsProcessor):
    """Mixed into a rule's class, which edits only rows at which the step acts."""

    when_from = lpkit.column(torch.int64)
    when_span = lpkit.column(torch.int64)
    when_every = lpkit.column(torch.int64, default=1)
    when_after = lpkit.ragged(torch.int64, limit=LIMIT)
    when_before = lpkit.ragged(torch.int64, limit=LIMIT)

    def admit(self, request: lpkit.Request[Any]) -> bool:
        if not super().admit(request):
            return False
        slot, wanted = request.slot, request.params
        span = EVERYTHING if wanted.when_until is None else wanted.when_until - wanted.when_from
        self.when_from[slot] = min(wanted.when_from, EVERYTHING)
        self.when_span[slot] = span if wanted.when_times is None else min(span, wanted.when_times * wanted.when_every)
        self.when_every[slot] = wanted.when_every
        after, before = list(wanted.when_after), list(wanted.when_before)
        if wanted.when_during:
            start, end = self._reasoning()
            after, before = (start, end) if wanted.when_during == "reasoning" else (end, [])
        self.when_after[slot] = after
        self.when_before[slot] = before
        return True

    def _reasoning(self) -> tuple[list[int], list[int]]:
        """Return the tokens that begin and end the model's reasoning, as vLLM's ``reasoning_config`` has them.

        Raises:
            ValueError: the engine has none.
        """
        config = getattr(self.vllm_config, "reasoning_config", None)
        names = ("reasoning_start_token_ids", "reasoning_end_token_ids")
        start, end = (list(getattr(config, name, None) or ()) for name in names)
        if not (start and end):
            raise ValueError("when/during: the engine knows no reasoning markers (vLLM's reasoning_config)")
        return start, end

    def since(self, rows: lpkit.Rows) -> torch.Tensor:
        """Return the positions from which the step counts and may act, ``[n]`` int64. Without the
        marker, it is a position that no row reaches."""
        since = rows.prompt_len
        if self.history == "tokens":
            after = self.when_after[rows]
            began = sequences.end_of_last(rows.tokens, after)
            since = torch.where(after[:, 0] < 0, since, torch.where(began < 0, EVERYTHING, began))
        return since + self.when_from[rows]

    def acting(self, rows: lpkit.Rows) -> torch.Tensor:
        """Return True for rows at which the step acts, ``[n]`` bool."""
        since = self.since(rows)
        position = rows.total_len - since
        acts = (position >= 0) & (position < self.when_span[rows]) & (position % self.when_every[rows] == 0)
        if self.history == "tokens":
            stopped = sequences.end_of_last(rows.tokens, self.when_before[rows])
            acts &= stopped <= since - self.when_from[rows]
        return acts


CONDITION = ("when_from", "when_span", "when_every", "when_after", "when_before")
"""Columns of a condition."""


class _SomeRows:
    """Sparse logits that write only some of the rows."""

    def __init__(self, logits: lpkit.SparseLogits, written: torch.Tensor) -> None:
        self._logits = logits
        self._written = written.unsqueeze(1)

    def __getitem__(self, ids: torch.Tensor) -> torch.Tensor:
        return self._logits[ids]

    def __setitem__(self, ids: torch.Tensor, values: torch.Tensor | float) -> None:
        self._logits[ids.where(self._written, -1)] = values


@cache
def lane_class(rule: type[lpkit.LogitsProcessor], reads: HistoryUse) -> type[lpkit.LogitsProcessor]:
    """Return a rule's class for the steps of documents.

    It edits the model's logits, whatever the rule's stage, so that steps keep their order: the rule takes the
    temperature from ``rows.temperature``.

    Args:
        rule: the class.
        reads: part of the history that the steps' conditions read; "none" for steps without a condition.
    """
    declared = rule.Params
    assert declared is not None

    class Params(When, declared):  # type: ignore[valid-type, misc]
        step: str  # every step gives its place: without it, a request does not use the rule

    body: dict[str, Any] = {"stage": "logits", "Params": Params, "__doc__": rule.__doc__, "__module__": rule.__module__}
    if reads == "none":
        return type(rule.__name__, (rule,), body)

    def edit(self: Any, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        rule.edit(self, _SomeRows(logits, self.acting(rows)), rows)  # type: ignore[arg-type]

    def process(self: Any, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        before = logits.clone()
        return torch.where(self.acting(rows).unsqueeze(1), rule.process(self, logits, rows), before)

    step = edit if rule._sparse else process
    body[step.__name__] = step
    body["_condition"] = rule, CONDITION
    body["history"] = "tokens" if "tokens" in (reads, rule.history) else "length"
    return type(rule.__name__, (Conditional, rule), body)
