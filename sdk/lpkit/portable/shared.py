"""Data that the processors of one V2 engine share: facts about the current call, and the copy of column values."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lpkit.columns.memory import Gathered, Memory
from lpkit.columns.transfer import sent
from lpkit.history.base import Originals
from lpkit.history.in_place import V2History

if TYPE_CHECKING:
    from lpkit.v2 import LogitsContext, LogitsProcRequestState

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False, slots=True)
class LocatedRows:
    """Positions of some requests' rows.

    Attributes:
        chosen: bool per request of the call, True for the chosen requests.
        one_each: True if each request of the call has one row; with drafts it has several.
        numbers_and_slots: int64 ``[2, n]`` on the host, number in the call and slot of each chosen request.
        index: int64 ``[rows]``, row numbers.
        slots: int64 ``[rows]``, slots of their requests.
    """

    chosen: Bools
    one_each: bool
    numbers_and_slots: Ints
    index: torch.Tensor
    slots: torch.Tensor


class Shared:
    """Facts about a call that an engine's processors share, each computed once.

    The engine gives all processors the same context, so processors with the same requests share the results. If a
    processor gets the same context again, everything is computed again. If a processor changes a shared tensor in
    place, the next one gets a new copy.

    Args:
        states: the engine's buffers, which all of its processors get.

    Attributes:
        states: the same; kept alive, so that no other engine's buffers get their id.
        memory: memory of all columns; None on a CPU, which needs no copies.
    """

    _of_engines: weakref.WeakValueDictionary[int, Shared] = weakref.WeakValueDictionary()

    def __init__(self, states: LogitsProcRequestState) -> None:
        self.states = states
        self._device = torch.device(states.device)
        self.memory = None if self._device.type == "cpu" else Memory(states.max_num_reqs, self._device)
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()
        # Facts about the current call: its context, the processors served so far, its requests' slots, bounds of their
        # lengths, whether their prefill is complete, and the histories and columns read so far.
        self._ctx: Callable[[], object] = lambda: None
        self._served: set[object] = set()
        self._reqs: np.ndarray[Any, Any]
        self._lengths: np.ndarray[Any, Any]
        self._ready: Bools
        self._one_each = True
        self._histories: dict[tuple[LocatedRows, bool], V2History] = {}
        self._gathered: dict[LocatedRows, Gathered] = {}
        # Places of this call, and of the last call while the same requests are in the same order.
        self._order = b""
        self._now: dict[bytes, LocatedRows] = {}
        self._before: dict[bytes, LocatedRows] = {}

    @classmethod
    def among(cls, states: LogitsProcRequestState) -> Shared:
        """Return the object that all processors with these buffers share."""
        shared = cls._of_engines.get(id(states))
        if shared is None:
            shared = cls._of_engines[id(states)] = cls(states)
        return shared

    def will_read(self, who: object) -> None:
        """Register a processor that reads histories; a single reader shares them with nobody."""
        self._readers.add(who)

    def locate(self, who: object, admitted: Bools, ctx: LogitsContext) -> LocatedRows | None:
        """Return the rows of a processor's requests, except unfinished prefills; None without rows.

        Args:
            who: the processor.
            admitted: bool ``[slots]``, True for slots of the processor's requests.
            ctx: the call.
        """
        if self._ctx() is not ctx or who in self._served:
            self._begin(ctx)
        self._served.add(who)
        chosen = admitted[self._reqs] & self._ready
        key = chosen.tobytes()
        located = self._now.get(key)
        if located is None:
            located = self._now[key] = self._before.get(key) or self._find(chosen, ctx)
        return located if located.numbers_and_slots.shape[1] else None

    def history(self, located: LocatedRows, ctx: LogitsContext, keep_tokens: bool) -> V2History:
        """Return the histories of rows that :meth:`locate` returned in this call.

        Args:
            located: the rows.
            ctx: the call.
            keep_tokens: False when only lengths are read.
        """
        shared = len(self._readers) > 1
        if shared:
            for kept in (True,) if keep_tokens else (True, False):
                earlier = self._histories.get((located, kept))
                if earlier is not None and earlier.originals is not None and earlier.originals.untouched:
                    return earlier
        width = int(self._lengths[located.chosen].max()) if keep_tokens else 0
        originals = Originals() if shared else None
        made = V2History(self.states, ctx, located.index, located.slots, width, keep_tokens, originals)
        if shared:
            self._histories[located, keep_tokens] = made
        return made

    def gathered(self, located: LocatedRows) -> Gathered | None:
        """Return the columns of rows that :meth:`locate` returned; None if each processor has its own memory."""
        if self.memory is None:
            return None
        gathered = self._gathered.get(located)
        if gathered is None:
            gathered = self._gathered[located] = Gathered(self.memory)
        return gathered

    def _begin(self, ctx: LogitsContext) -> None:
        # Results of a call die with it or with its context: they keep no processor or history alive.
        self._served, self._histories, self._gathered = set(), {}, {}
        of_call = self._served, self._histories, self._gathered

        def over(_: object) -> None:
            for results in of_call:
                results.clear()

        self._ctx = weakref.ref(ctx, over)
        reqs = self._reqs = ctx.idx_mapping_np
        self._lengths = ctx.seq_lens_upper_bound_np[: len(reqs)]
        self._ready = self._lengths >= self.states.prefill_len.np[reqs]
        self._one_each = ctx.expanded_idx_mapping.shape[0] == len(reqs)
        order = reqs.tobytes() if self._one_each else b""
        self._before = self._now if order and order == self._order else {}
        self._order, self._now = order, {}

    def _find(self, chosen: Bools, ctx: LogitsContext) -> LocatedRows:
        """Send the rows and slots of the chosen requests; with drafts, the device computes them."""
        numbers = np.flatnonzero(chosen)
        located = np.empty((2, len(numbers)), dtype=np.int64)
        located[0], located[1] = numbers, self._reqs[numbers]
        if not len(numbers) or self._one_each:
            rows = torch.from_numpy(located)
            return LocatedRows(
                chosen, self._one_each, located, *(sent(rows, self._device) if len(numbers) else rows).unbind()
            )
        index = self._with_drafts(chosen, ctx)
        return LocatedRows(chosen, False, located, index, ctx.expanded_idx_mapping[index].to(torch.int64))

    def _with_drafts(self, chosen: Bools, ctx: LogitsContext) -> torch.Tensor:
        """Compute the rows of the chosen requests if a request has several rows. Only the device knows their number.

        The host knows an upper bound, because every other request has at least one row. Unused entries repeat the first
        chosen row.
        """
        mapping = ctx.expanded_idx_mapping
        if chosen.all():
            return torch.arange(mapping.shape[0], device=mapping.device)
        mine = np.zeros(self.states.max_num_reqs, dtype=np.bool_)
        mine[self._reqs[chosen]] = True
        is_own = sent(torch.from_numpy(mine), mapping.device)[mapping]
        bound = mapping.shape[0] - int((~chosen).sum())
        order = torch.argsort(is_own, descending=True, stable=True)[:bound]
        return torch.where(is_own[order], order, order[:1])
