"""The V1 runner without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lpkit.runtime.batch.logits import LogitsSource
from lpkit.runtime.batch.persistent import V1Batch
from lpkit.runtime.batch.request import Request
from lpkit.runtime.engine.base import Engine, Order, build
from lpkit.runtime.engine.results import StepResult
from lpkit.runtime.sampler.thinking import V1ThinkingBudget
from lpkit.runtime.sampler.v1_sampler import V1Sampler
from lpkit.v1 import LogitsProcessor


class V1Engine(Engine):
    """Persistent rows; processors learn of changes from a ``BatchUpdate``.

    Args:
        processors: instances, or classes and factories called with ``(config, device, is_pin_memory)``.
        source: the model.
        **options: of :class:`Engine`.
    """

    def __init__(
        self,
        processors: Iterable[LogitsProcessor | Callable[..., LogitsProcessor]] = (),
        source: LogitsSource | None = None,
        **options: Any,
    ) -> None:
        super().__init__(source, **options)
        self.batch = V1Batch(self.max_num_seqs)
        self.processors = [build(processor, self.config, self.device, False) for processor in processors]
        self.sampler = V1Sampler(
            self.processors,
            vocab_size=self.vocab_size,
            device=self.device,
            seed=self.seed,
            thinking=V1ThinkingBudget(self.thinking) if self.thinking else None,
        )
        self._swaps: list[tuple[int, int]] = []

    def swap(self, first: int, second: int) -> None:
        """Exchange two rows in the next step, after its condense moves, like an attention backend.

        That step raises ``IndexError`` if a row does not exist by then.
        """
        self._swaps.append((first, second))

    def _member(self, request: Request) -> Request:
        """Return the worker's view of a request."""
        return request

    def _before_sampling(self) -> None:
        """Hook between ``update_state`` and the first stage."""

    def _step(self, order: Order) -> StepResult:
        if order.drafts:
            raise ValueError("V1 runs no custom processors under speculative decoding: there are no drafts")
        batch, plan = self.batch, order.plan
        # A request outside the plan leaves the batch, and is added again later.
        leaving = [r.request_id for r in batch.requests if r.request_id not in plan or r.request_id in self._left]
        self._left.clear()
        swaps, self._swaps = self._swaps, []
        staying = {r.request_id for r in batch.requests} - set(leaving)
        arriving = [self._member(request) for request in self._arrivals(plan, staying)]
        update = batch.change(leaving, arriving, swaps)
        self.sampler.update(update, batch.requests)
        if order.idle or not len(batch):
            return StepResult(update=update)
        rows = self._rows([r.request_id for r in batch.requests], order)
        logits = self._logits(rows)
        raw = logits.clone()
        self._before_sampling()
        sampled = self.sampler(logits)
        return StepResult(
            rows=rows,
            raw=raw,
            processed=sampled.logits,
            sampled=sampled.token_ids,
            tokens=self._commit(rows, sampled.token_ids, order),
            update=update,
            applied=True,
        )
