"""Token histories under V2 as V1 gives them: lists on the host, filled by one copy per call."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lpkit.columns.transfer import sent

if TYPE_CHECKING:
    from lpkit.history.rows import HistoryUse
    from lpkit.v2 import LogitsContext, LogitsProcRequestState

UNKNOWN = -1

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True, eq=False)
class V1Row:
    """One row of a V1 batch, compared by identity: a V1 processor takes another object for another request.

    Attributes:
        params: the request's ``SamplingParams``.
        prompt_ids: as V1 passes it; never mutated.
        output_ids: the live list.
    """

    params: Any
    prompt_ids: list[int]
    output_ids: list[int]


Rows = tuple[list[int], list[V1Row]]
"""Row numbers, ascending, and the object that stands for each row."""


class Unread(list[int]):
    """Stands for a list that the author declared unread. Reading it raises, instead of giving a wrong answer."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("history = 'none' is declared, but token ids were read")

    __len__ = __getitem__ = __iter__ = __contains__ = __reversed__ = __eq__ = __add__ = _refuse
    __bool__ = _refuse
    __hash__ = None


@dataclass(slots=True)
class _Held:
    """The request in a slot.

    Attributes:
        row: the object that a V1 processor sees; None before the first complete row.
        drafts: rows of its drafts; kept only where histories are not read.
    """

    params: Any
    row: V1Row | None = None
    drafts: list[V1Row] = field(default_factory=list)


class HostHistories:
    """The requests in V2's slots, and their rows as a V1 processor sees them.

    Args:
        states: the engine's buffers.
        history: ``"tokens"``, ``"length"`` (placeholders of the right number) or ``"none"``.
        speculative: True if the engine uses drafts; then the host's bounds are not exact.
    """

    def __init__(self, states: LogitsProcRequestState, history: HistoryUse, speculative: bool = False) -> None:
        self._states = states
        self._history = history
        self._speculative = speculative
        self._held: dict[int, _Held] = {}
        self._uses = np.zeros(states.max_num_reqs, dtype=np.bool_)
        self._seen = np.zeros(states.max_num_reqs, dtype=np.int64)  # tokens of each slot that the host has

    def enter(self, slot: int, params: Any) -> None:
        """Record a new or resumed request in ``slot``; each of its rows carries ``params``."""
        self._held[slot] = _Held(params)
        self._uses[slot] = True
        self._seen[slot] = 0

    def decline(self, slot: int) -> None:
        """Record that the request in ``slot`` does not use the processor."""
        self._held.pop(slot, None)
        self._uses[slot] = False

    def rows(self, ctx: LogitsContext) -> Rows:
        """Return the rows of this call that use the processor.

        Some rows are left out, because the engine discards their tokens: unfinished prefills, warm-up requests without
        a prompt, and rows after a draft placeholder.
        """
        slots = ctx.idx_mapping_np
        bounds = ctx.seq_lens_upper_bound_np[: len(slots)]
        used = (
            self._uses[slots] & (bounds >= self._states.prefill_len.np[slots]) & (self._states.prompt_len.np[slots] > 0)
        )
        if not used.any():
            return [], []
        chosen = slots[used].astype(np.int64)
        ends = bounds[used].astype(np.int64).clip(max=self._states.all_token_ids.gpu.shape[1])
        if self._speculative or ctx.expanded_idx_mapping.shape[0] != len(slots):
            self._speculative = True  # from now on, committed tokens may lag behind the bounds
            return self._with_drafts(ctx, chosen, ends)
        self._advance(chosen, ends, self._copy(self._missing(chosen, ends), []))
        return np.flatnonzero(used).tolist(), [self._row(slot) for slot in chosen.tolist()]

    def _row(self, slot: int) -> V1Row:
        return self._held[slot].row  # type: ignore[return-value]

    # -- the copy --------------------------------------------------------------------------------------------

    def _missing(self, slots: Ints, ends: Ints) -> Ints:
        """``[2, n]``: slot and position of every token that the host lacks. A history that shrank is read again."""
        self._seen[slots[ends < self._seen[slots]]] = 0
        starts = self._seen[slots]
        gaps = ends - starts
        if (gaps == 1).all():
            return np.stack((slots, starts))
        first = np.cumsum(gaps) - gaps
        return np.stack((np.repeat(slots, gaps), np.arange(gaps.sum()) + np.repeat(starts - first, gaps)))

    def _copy(self, missing: Ints, more: list[torch.Tensor]) -> list[int]:
        """The missing tokens and the elements of ``more``, in one copy from the device."""
        if self._history == "tokens" and missing.shape[1]:
            held = self._states.all_token_ids.gpu
            slots, positions = sent(torch.from_numpy(missing), held.device)
            more = [held[slots, positions], *more]
        if not more:
            return []
        packed: list[int] = torch.cat([part.to(torch.int64) for part in more]).tolist()
        return packed

    def _advance(self, slots: Ints, ends: Ints, tokens: list[int]) -> None:
        """Extend the histories of ``slots`` to ``ends``; ``tokens`` are the missing tokens, slot by slot."""
        starts, gaps = self._seen[slots], ends - self._seen[slots]
        self._seen[slots] = ends
        if self._history == "none":
            for slot in slots[starts == 0].tolist():
                held = self._held[slot]
                held.row = held.row or V1Row(held.params, Unread(), Unread())
            return
        if self._history == "length":
            tokens = [UNKNOWN] * int(gaps.sum())
        if (gaps == 1).all() and starts.all():  # the usual step
            for slot, token in zip(slots.tolist(), tokens, strict=True):
                self._row(slot).output_ids.append(token)
            return
        rest = iter(tokens)
        prompts = self._states.prompt_len.np[slots]
        for slot, start, gap, prompt in zip(
            slots.tolist(), starts.tolist(), gaps.tolist(), prompts.tolist(), strict=True
        ):
            held, new = self._held[slot], list(islice(rest, gap))
            if start == 0 or held.row is None:
                held.row = V1Row(held.params, new[:prompt], new[prompt:])
            elif gap == 1:
                held.row.output_ids.append(new[0])
            elif gap:
                # A V1 engine grows by one token per step, and V1 processors may rely on it: return the request as
                # resumed.
                held.row = V1Row(held.params, held.row.prompt_ids, held.row.output_ids + new)

    # -- drafts ----------------------------------------------------------------------------------------------

    def _with_drafts(self, ctx: LogitsContext, slots: Ints, ends: Ints) -> Rows:
        """Make each draft a separate request whose outputs end with the drafts that its row sees."""
        missing = self._missing(slots, ends)
        order = torch.from_numpy(slots).to(self._states.total_len.gpu.device)
        more = [self._states.total_len.gpu[order], ctx.expanded_idx_mapping, ctx.pos, ctx.input_ids]
        packed = np.array(self._copy(missing, more), dtype=np.int64)
        n = ctx.expanded_idx_mapping.shape[0]
        tokens, totals, mapping, positions, inputs = np.split(
            packed, np.cumsum([len(packed) - 3 * n - len(slots), len(slots), n, n])
        )
        totals = np.minimum(totals, ends)
        if (totals < self._seen[slots]).any():
            self._seen[slots[totals < self._seen[slots]]] = 0
            return self._with_drafts(ctx, slots, ends)
        gaps, valid = ends - self._seen[slots], totals - self._seen[slots]
        if len(tokens):
            first = np.cumsum(gaps) - gaps
            position = np.arange(len(tokens)) - np.repeat(first, gaps)
            tokens = tokens[position < np.repeat(valid, gaps)]
        self._advance(slots, totals, tokens.tolist())
        return self._expanded(dict(zip(slots.tolist(), totals.tolist(), strict=True)), mapping, positions, inputs)

    def _expanded(self, totals: dict[int, int], mapping: Ints, positions: Ints, inputs: Ints) -> Rows:
        index_of: list[int] = []
        expanded: list[V1Row] = []
        rows = list(zip(mapping.tolist(), positions.tolist(), inputs.tolist(), strict=True))
        for index, (slot, position, _) in enumerate(rows):
            if slot not in totals or position + 1 < self._states.prefill_len.np[slot]:
                continue
            beyond = position + 1 - totals[slot]
            # The draft at position q is the input of the row that lies (last visible position - q) rows further up.
            drafts = [token for _, _, token in rows[index - beyond + 1 : index + 1]] if beyond > 0 else []
            if self._history == "tokens" and UNKNOWN in drafts:
                continue
            index_of.append(index)
            expanded.append(self._drafted(slot, beyond, drafts))
        return index_of, expanded

    def _drafted(self, slot: int, beyond: int, drafts: list[int]) -> V1Row:
        """Return the row of ``slot`` that sees ``beyond`` tokens more than the committed ones."""
        row, held = self._row(slot), self._held[slot]
        if beyond == 0:
            return row
        if self._history == "none":
            while len(held.drafts) < beyond:
                held.drafts.append(V1Row(held.params, row.prompt_ids, row.output_ids))
            return held.drafts[beyond - 1]
        visible = row.output_ids + drafts if beyond > 0 else row.output_ids[:beyond]
        return V1Row(held.params, row.prompt_ids, visible)
