"""What the processors of one V2 engine have in common: what they find out about a call, and how columns are sent."""

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
from lpkit.history.v2 import V2History

if TYPE_CHECKING:
    from lpkit.v2 import LogitsContext, LogitsProcRequestState

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """Where the rows of some requests are.

    Attributes:
        own: of the call's requests, which these are.
        one_each: whether each request of the call has one row; with drafts it has several.
        places: int64 ``[2, n]`` on the host, the number of each request in the call, and its slot.
        index: int64 ``[rows]``, the rows.
        slots: int64 ``[rows]``, those of their requests.
    """

    own: Bools
    one_each: bool
    places: Ints
    index: torch.Tensor
    slots: torch.Tensor


class Shared:
    """What the processors of an engine find out about a call, each thing once.

    The engine gives all of them the same context. What is found for one serves all that own the same requests. A
    processor that is called with a context again finds everything anew, and so does one whose neighbour has changed in
    place what he read.

    Args:
        states: the engine's buffers, which all of its processors are given.

    Attributes:
        states: the same; held, so that no other engine's have their id.
        memory: of all columns; None on a CPU, where nothing is sent.
    """

    _of_engines: weakref.WeakValueDictionary[int, Shared] = weakref.WeakValueDictionary()

    def __init__(self, states: LogitsProcRequestState) -> None:
        self.states = states
        self._device = torch.device(states.device)
        self.memory = None if self._device.type == "cpu" else Memory(states.max_num_reqs, self._device)
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()
        # Of the call at hand: what its context is, who asked, which slots its requests have, what they show at most,
        # whose prompt is read to its end, what was seen of histories, and of columns.
        self._ctx: Callable[[], object] = lambda: None
        self._served: set[object] = set()
        self._reqs: np.ndarray[Any, Any]
        self._lengths: np.ndarray[Any, Any]
        self._ready: Bools
        self._one_each = True
        self._histories: dict[tuple[Place, bool], V2History] = {}
        self._gathered: dict[Place, Gathered] = {}
        # Places of this call and, while the same requests are in the same order, of the last one.
        self._order = b""
        self._now: dict[bytes, Place] = {}
        self._before: dict[bytes, Place] = {}

    @classmethod
    def among(cls, states: LogitsProcRequestState) -> Shared:
        """What is shared by the processors that are given these buffers."""
        found = cls._of_engines.get(id(states))
        if found is None:
            found = cls._of_engines[id(states)] = cls(states)
        return found

    def will_read(self, who: object) -> None:
        """A processor reads histories; while only one does, there is nobody to share them with."""
        self._readers.add(who)

    def place(self, who: object, admitted: Bools, ctx: LogitsContext) -> Place | None:
        """The rows of a processor's requests; None if there are none. Rows of unfinished prefills are left out.

        Args:
            who: the processor.
            admitted: bool ``[slots]``, which requests are its own.
            ctx: the call.
        """
        if self._ctx() is not ctx or who in self._served:
            self._begin(ctx)
        self._served.add(who)
        own = admitted[self._reqs] & self._ready
        key = own.tobytes()
        place = self._now.get(key)
        if place is None:
            place = self._now[key] = self._before.get(key) or self._find(own, ctx)
        return place if place.places.shape[1] else None

    def history(self, place: Place, ctx: LogitsContext, keep_tokens: bool) -> V2History:
        """What the rows of the call's :meth:`place` show of their histories.

        Args:
            place: the rows.
            ctx: the call.
            keep_tokens: False when only lengths are read.
        """
        shared = len(self._readers) > 1
        if shared:
            for kept in (True,) if keep_tokens else (True, False):
                found = self._histories.get((place, kept))
                if found is not None and found.originals is not None and found.originals.untouched:
                    return found
        width = int(self._lengths[place.own].max()) if keep_tokens else 0
        originals = Originals() if shared else None
        made = V2History(self.states, ctx, place.index, place.slots, width, keep_tokens, originals)
        if shared:
            self._histories[place, keep_tokens] = made
        return made

    def gathered(self, place: Place) -> Gathered | None:
        """Where the columns of the call's :meth:`place` are read; None if each processor has memory of its own."""
        if self.memory is None:
            return None
        found = self._gathered.get(place)
        if found is None:
            found = self._gathered[place] = Gathered(self.memory)
        return found

    def _begin(self, ctx: LogitsContext) -> None:
        # All of the last call goes with it, or with its context: nothing keeps a processor or a history alive.
        self._served, self._histories, self._gathered = set(), {}, {}
        of_call = self._served, self._histories, self._gathered

        def over(_: object) -> None:
            for found in of_call:
                found.clear()

        self._ctx = weakref.ref(ctx, over)
        reqs = self._reqs = ctx.idx_mapping_np
        self._lengths = ctx.seq_lens_upper_bound_np[: len(reqs)]
        self._ready = self._lengths >= self.states.prefill_len.np[reqs]
        self._one_each = ctx.expanded_idx_mapping.shape[0] == len(reqs)
        order = reqs.tobytes() if self._one_each else b""
        self._before = self._now if order and order == self._order else {}
        self._order, self._now = order, {}

    def _find(self, own: Bools, ctx: LogitsContext) -> Place:
        """Send the rows and slots of own requests; with drafts these are found on the device."""
        found = np.flatnonzero(own)
        places = np.empty((2, len(found)), dtype=np.int64)
        places[0], places[1] = found, self._reqs[found]
        if not len(found) or self._one_each:
            rows = torch.from_numpy(places)
            return Place(own, self._one_each, places, *(sent(rows, self._device) if len(found) else rows).unbind())
        index = self._with_drafts(own, ctx)
        return Place(own, False, places, index, ctx.expanded_idx_mapping[index].to(torch.int64))

    def _with_drafts(self, own: Bools, ctx: LogitsContext) -> torch.Tensor:
        """Rows of own requests when a request has several: their number is known to the device alone.

        An upper bound of it is known to the host: every request that is not ours has at least one row. The
        entries left over repeat our first row.
        """
        mapping = ctx.expanded_idx_mapping
        if own.all():
            return torch.arange(mapping.shape[0], device=mapping.device)
        mine = np.zeros(self.states.max_num_reqs, dtype=np.bool_)
        mine[self._reqs[own]] = True
        is_own = sent(torch.from_numpy(mine), mapping.device)[mapping]
        bound = mapping.shape[0] - int((~own).sum())
        order = torch.argsort(is_own, descending=True, stable=True)[:bound]
        return torch.where(is_own[order], order, order[:1])
