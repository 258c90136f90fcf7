"""One processor for documents of rules: each request brings its chain of steps, and all rows with a step share a pass.

A *lane* is a rule's own processor; the lanes lie in one order, and a request's steps take lanes in the order of its
document. So a batch takes as many passes as there are kinds of steps in it, and more only where documents disagree
about their order.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Any, ClassVar

import torch

import lpkit
from lpkit import v1, v2
from lpkit.history.rows import HistoryUse
from lpkit.portable.admission import READ
from lpkit.portable.base import Stage
from lpkit.rules.document import RULES, DocumentStep
from lpkit.rules.min_p import MinP
from lpkit.rules.policy import KEY, Policy
from lpkit.rules.receipt import RECEIPT, Counts, Receipt, Receipts, counting
from lpkit.rules.when import lane_class
from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

logger = logging.getLogger("lpkit")

_NOTHING = SamplingParams()

MOST_LANES = 64
"""Most lanes; beyond it, lanes without requests are dropped."""


class Rules(v1.LogitsProcessor, v2.LogitsProcessor):
    """Run the steps of a request's document, ``rules`` in its ``extra_args``, on both of vLLM's runners.

    Steps edit the model's logits in their order. Rules about probabilities use the temperature by which the engine will
    divide, and leave greedy requests alone.
    """

    stage: ClassVar[Stage] = "logits"
    history: ClassVar[HistoryUse] = "tokens"

    class Params(lpkit.Params, prefix="rules"):
        """A request's document: JSON, a list of steps, or the name of one of the operator's documents."""

        document: str | list[Any] | dict[str, Any] = lpkit.Field(
            alias="rules",
            examples=[
                '[{"rule": "penalties", "repetition": 1.3, "frequency": 0.4}, {"rule": "min_p", "threshold": 0.1}]',
                '[{"rule": "min_p", "threshold": 0.3}, {"rule": "bias", "ids": [3, 5], "values": [4, -2]}]',
                '[{"rule": "bias", "ids": [2], "values": [5], "when": {"every": 2}}]',
            ],
        )
        receipt: str = lpkit.Field("", alias="rules_receipt", max_length=100)  # its name in the log

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        """Take ``(vllm_config, device, is_pin_memory)`` on V1, ``(vllm_config, req_states)`` on V2."""
        self._engine = vllm_config, device_or_states, is_pin_memory
        self._policy = Policy.here()
        self._receipts = Receipts() if self._policy.receipt and _leads(vllm_config) else None
        on_gpu = torch.device(getattr(device_or_states, "device", device_or_states)).type == "cuda"
        # Made now, since a kernel may be compiled with the first lane of a rule.
        met = self._policy.rules if on_gpu else ()
        processors = dict.fromkeys(rule.processor for name, rule in RULES.items() if name in met)
        self._lanes = [self._made(self._kind(lane_class(processor, "none"))) for processor in processors]
        self._first = frozenset(self._lanes)
        if on_gpu:
            self._made(lane_class(MinP, "length"))  # compiles the kernel of conditions
        self._used: list[lpkit.LogitsProcessor] = []  # lanes in use, in order
        self._touched: set[lpkit.LogitsProcessor] = set()  # lanes that may have something to send (V2)
        self._opened: list[Receipt] = []  # of the requests that are being added

    @property
    def receipt_counts(self) -> Counts | None:
        """Counts of the operator's receipts; None without receipts. `lpkit watch` shows them."""
        return None if self._receipts is None else self._receipts.counts

    def _kind(self, lane: type[lpkit.LogitsProcessor]) -> type[lpkit.LogitsProcessor]:
        return lane if self._receipts is None else counting(lane)

    def _made(self, lane: type[lpkit.LogitsProcessor]) -> lpkit.LogitsProcessor:
        return lane(*self._engine)

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a request whose document is wrong.

        Args:
            sampling_params: of the request.

        Raises:
            ValueError: the document is wrong; the message begins with ``rules`` and a JSON pointer.
        """
        Policy.here().steps(sampling_params.extra_args)
        cls.Params.parse(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        """Return False: a document may hold any rule."""
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        if batch_update is None:
            return
        added: dict[lpkit.LogitsProcessor, list[v1.AddedRequest]] = {}
        for row, params, prompt_ids, output_ids in batch_update.added:
            for lane, lane_params in self._chain(params, added):
                added.setdefault(lane, []).append((row, lane_params, prompt_ids, output_ids))
        rows = {item[0] for item in batch_update.added}
        for lane in self._lanes:
            mine = added.get(lane, [])
            if mine or lane._in_use:
                # A request that does not use the lane leaves it, as if its row were removed.
                removed = [*batch_update.removed, *(rows - {item[0] for item in mine})]
                lane.update_state(v1.BatchUpdate(batch_update.batch_size, removed, mine, batch_update.moved))
        self._settle()

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        chain = dict(self._chain(sampling_params, ()))
        taken = False
        for lane in self._lanes:
            if lane in chain or lane._in_use:
                taken |= lane.add_request(req_idx, chain.get(lane, _NOTHING))
                self._touched.add(lane)
        self._settle()
        return taken

    def _settle(self) -> None:
        """Finish a change of the batch."""
        self._used = [lane for lane in self._lanes if lane._in_use]
        for receipt in self._opened:
            receipt.release(self._lanes[0].device)
        self._opened.clear()

    def apply_staged_writes(self) -> None:
        for lane in self._touched:
            lane.apply_staged_writes()
        self._touched.clear()

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext | None = None) -> torch.Tensor:
        """Run the steps of the batch's requests.

        Args:
            logits: float32 ``[rows, vocab]``.
            ctx: the rows of the step on V2; None on V1.

        Returns:
            The edited logits. Without steps, the same tensor, unchanged.
        """
        if self._receipts is not None:
            self._receipts.write()
        for lane in self._used:
            logits = lane.apply(logits, ctx)
        return logits

    def _chain(
        self, sampling_params: SamplingParams, taken: Iterable[lpkit.LogitsProcessor]
    ) -> list[tuple[lpkit.LogitsProcessor, SamplingParams]]:
        """Return the lanes of a request's steps, in order, with the parameters that each gets.

        Args:
            taken: lanes that other requests of the same update take.
        """
        try:
            return self._planned(sampling_params, taken)
        except ValueError as reason:
            logger.warning("%s declined a request: %s", type(self).__qualname__, reason)
            return []

    def _planned(
        self, sampling_params: SamplingParams, taken: Iterable[lpkit.LogitsProcessor]
    ) -> list[tuple[lpkit.LogitsProcessor, SamplingParams]]:
        """Raises ValueError for a wrong document, and for words and token ids that the model does not have."""
        chain: list[tuple[lpkit.LogitsProcessor, SamplingParams]] = []
        place = 0
        greedy = sampling_params.temperature < GREEDY_EPSILON
        steps = self._policy.steps(sampling_params.extra_args)
        receipt = None
        if self._receipts is not None and steps:
            label = str((sampling_params.extra_args or {}).get("rules_receipt", ""))
            receipt = Receipt(self._receipts, label[:100], steps)
        for number, step in enumerate(steps):
            if greedy and RULES[step.rule].processor.stage == "sampling":
                continue
            place = self._place(step, place, {*taken, *(lane for lane, _ in chain)})
            params = copy.copy(sampling_params)  # and what is read of them, so that the lane does not read again
            params.extra_args = {**step.args, RECEIPT: (receipt, number)} if receipt else dict(step.args)
            try:
                params.extra_args[READ] = self._lanes[place]._admission.read(params)
            except ValueError as reason:
                raise ValueError(f"{KEY}, step {step.place} ({step.rule}): {reason}") from None
            chain.append((self._lanes[place], params))
            place += 1
        if receipt is not None:
            self._opened.append(receipt)
        return chain

    def _place(self, step: DocumentStep, start: int, taken: set[lpkit.LogitsProcessor]) -> int:
        """Return the index of a lane for a step, at ``start`` or behind it."""
        kind = self._kind(step.lane)
        for place in range(start, len(self._lanes)):
            if type(self._lanes[place]) is kind:
                return place
        idle = [lane for lane in self._lanes if type(lane) is kind and not lane._in_use and lane not in taken]
        if idle:
            self._lanes.remove(idle[0])
            start -= 1
        elif len(self._lanes) >= MOST_LANES:  # lanes of orders that no request uses any more
            kept = {lane for lane in self._lanes if lane in self._first or lane in taken or lane._in_use}
            start = sum(lane in kept for lane in self._lanes[:start])
            self._lanes = [lane for lane in self._lanes if lane in kept]
        self._lanes.insert(start, idle[0] if idle else self._made(kind))
        return start


def _leads(config: Any) -> bool:
    """True in the first of the processes that run the same requests with tensor parallelism."""
    parallel = getattr(config, "parallel_config", None)
    return getattr(parallel, "rank", 0) % getattr(parallel, "tensor_parallel_size", 1) == 0
