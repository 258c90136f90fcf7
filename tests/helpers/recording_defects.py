"""A class whose step is recorded, and a defect in each part of the repetition."""

from __future__ import annotations

from functools import cache
from typing import Any

import lpkit
import pytest
import torch
from lpkit import kernels
from lpkit.columns.memory import Arena
from lpkit.kernels import recording
from lpkit.kernels.launching import LaunchPlan
from lpkit.portable.by_slot import BySlot
from lpkit_conformance.instruments import recorded_steps


class Far(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        far: float
        ids: tuple[int, ...] = ()

    far = lpkit.column(torch.float32)
    ids = lpkit.ragged(torch.int64)  # grows, and moves the memory of all columns

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        if self.ids.used:
            kernels.keep_ids_(logits, self.ids[rows])
        return kernels.mask_far_below_top_(logits, self.far[rows].unsqueeze(1))


def nobody_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Edit the rows of requests that do not use the processor."""
    run = recorded_steps._Kernel._run
    patch.setattr(
        recorded_steps._Kernel,
        "_run",
        lambda self, logits, slots, own, *given, **sizes: run(self, logits, slots, own | True, *given, **sizes),
    )


def same_addresses(patch: pytest.MonkeyPatch) -> None:
    run, first = LaunchPlan.run, {}  # type: ignore[var-annotated]
    patch.setattr(LaunchPlan, "run", lambda self, *given: run(self, *first.setdefault(id(self), given)))


def plans_live_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Arena, "layout", property(lambda self: 0, lambda self, number: None), raising=False)


def only_new_memory_is_sent(patch: pytest.MonkeyPatch) -> None:
    """Neither values nor who is admitted."""
    send = Arena._send
    patch.setattr(Arena, "_send", lambda self: send(self) if self._moved else None)


def a_branch_stays_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BySlot, "_record", cache(BySlot._record))


def admission_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    """All values are, but not who is admitted."""
    send = Arena._send

    def send_others(self: Arena) -> None:
        own: Any = self.columns["_lpkit_own"]
        before = own.all.clone() if hasattr(own, "_device") else None
        send(self)
        if before is not None:
            own.all.copy_(before)

    patch.setattr(Arena, "_send", send_others)


def columns_have_one_number(patch: pytest.MonkeyPatch) -> None:
    """An author's own edit reads another column."""
    patch.setattr(recording, "memory_of", lambda column: ())


def values_stay(patch: pytest.MonkeyPatch) -> None:
    """Keep what is computed of columns: it is not computed again."""
    patch.setattr(recording.Derived, "refresh", lambda self: None)


DEFECTS = [
    same_addresses,
    plans_live_on,
    only_new_memory_is_sent,
    admission_is_not_sent,
    a_branch_stays_recorded,
    nobody_is_asked_for,
]
