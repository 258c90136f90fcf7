"""Receipts: how often each step of a request changed its logits, counted on the device and written when it leaves."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

import lpkit
from lpkit.portable.base import PortableProcessor
from lpkit.rules.document import DocumentStep

# A child of vLLM's logger, whose handlers show its lines.
logger = logging.getLogger("vllm.lpkit.rules")

RECEIPT = "_receipt"
"""Key of a step's parameters with its request's receipt, and the number of the step in it."""

Counts = dict[str, dict[str, list[int]]]
"""Requests that have a step, and rows that it changed; by rule and by operator's step ("" for requests' own steps)."""


class Receipts:
    """Receipts of one engine.

    Attributes:
        counts: of all requests that left.
    """

    def __init__(self) -> None:
        self.counts: Counts = {}
        self._waiting: deque[tuple[Receipt, Any]] = deque()  # and when the device has copied their counts

    def add(self, receipt: Receipt, device: torch.device) -> None:
        """Write a receipt, or let a later step write it if the device has not copied its counts yet."""
        copied: Any = None
        if device.type == "cuda":
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record()
        self._waiting.append((receipt, copied))
        self.write()

    def write(self) -> None:
        """Write the receipts whose counts are on the host."""
        while self._waiting and (self._waiting[0][1] is None or self._waiting[0][1].query()):
            receipt, _ = self._waiting.popleft()
            shown = []
            for number, step in enumerate(receipt.steps):
                acted, rows = receipt.by_step[number].tolist() if number in receipt.by_step else (0, 0)
                shown.append(f"{step.place} {step.rule} {acted} of {rows} rows")
                by_place = self.counts.setdefault(step.rule, {})
                counts = by_place.setdefault("" if step.place.startswith("/") else step.place, [0, 0])
                counts[0] += 1
                counts[1] += acted
            logger.info("lpkit rules: receipt %r: %s", receipt.label, ", ".join(shown))


class Receipt:
    """Counts of a request.

    Args:
        label: the request's own name for it.

    Attributes:
        holders: lanes that have the request, and the caller until it releases the receipt.
        by_step: by the number of a step, int32 ``[2]``: rows that it changed, and rows that it saw.
    """

    def __init__(self, receipts: Receipts, label: str, steps: Sequence[DocumentStep]) -> None:
        self.label, self.steps, self.holders = label, steps, 1
        self.by_step: dict[int, torch.Tensor] = {}
        self._receipts = receipts

    def release(self, device: torch.device) -> None:
        """Write the receipt if this was the last holder."""
        self.holders -= 1
        if not self.holders:
            self._receipts.add(self, device)


class Counting(lpkit.LogitsProcessor):
    """Mixed into a lane's class, which counts the rows that it changes."""

    def __init__(self, *engine: Any) -> None:
        super().__init__(*engine)
        self._held: dict[int, tuple[Receipt, int]] = {}  # by slot
        with torch.inference_mode(False):  # the engine may call inside and outside of this mode
            self._acted = torch.zeros(self.max_num_reqs + 1, 2, dtype=torch.int32, device=self.device)

    def admit(self, request: lpkit.Request[Any]) -> bool:
        taken = super().admit(request)
        if taken:
            receipt, _ = self._held[request.slot] = request.sampling_params.extra_args[RECEIPT]  # type: ignore[index]
            receipt.holders += 1
            self._acted[request.slot].zero_()
        return taken

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        step = self._by_slot if self._by_slot is not None and self._by_slot.recorded else None
        located = self._binding.by_slot(logits, ctx, step is not None and step.reads_texts)
        if located is None:
            return logits
        before = logits.clone()
        repeated = step is not None and step.edit(logits, *located)
        edited = logits if repeated else PortableProcessor.apply(self, logits, ctx)
        changed = (edited.view(torch.int32) != before.view(torch.int32)).any(1)
        counted = torch.stack((changed, torch.ones_like(changed)), 1).to(torch.int32)
        self._acted.index_add_(0, located[0][: len(counted)], counted)
        return edited

    def _retire_slot(self, slot: int) -> None:
        receipt, number = self._held.pop(slot)
        receipt.by_step[number] = self._acted[slot].to("cpu", non_blocking=True, copy=True)
        receipt.release(self.device)
        super()._retire_slot(slot)


@cache
def counting(lane: type[lpkit.LogitsProcessor]) -> type[lpkit.LogitsProcessor]:
    """Return the class of a lane that counts."""
    return type(lane.__name__, (Counting, lane), {"__doc__": lane.__doc__, "__module__": lane.__module__})
