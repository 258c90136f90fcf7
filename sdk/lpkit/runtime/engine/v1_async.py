"""The V1 runner under asynchronous scheduling: output lists that end in a placeholder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lpkit.runtime.batch.logits import LogitsSource
from lpkit.runtime.batch.request import Request
from lpkit.runtime.engine.base import Order
from lpkit.runtime.engine.results import StepResult
from lpkit.runtime.engine.v1_engine import V1Engine
from lpkit.v1 import LogitsProcessor

PLACEHOLDER = -1


class V1AsyncEngine(V1Engine):
    """A :class:`V1Engine` whose worker schedules a step before it knows the tokens of the previous step.

    Processors get the worker's own output lists. After each step a list grows by -1, so ``update_state`` always sees a
    placeholder at the end. The engine replaces it just before sampling if the ids are needed: by an explicitly passed
    processor (``explicit``), or by a penalty, bad words or a thinking budget in the batch. Otherwise it stays forever.
    If a later repair finds several placeholders, the list shrinks to the one known token. ``Request.output_token_ids``
    of the caller's requests always has the true tokens. A resumed request gets a new list of true tokens.

    Args:
        processors: as for :class:`V1Engine`.
        source: the model.
        explicit: True if the processors were passed rather than installed: their placeholders are repaired.
        **options: of :class:`Engine`.
    """

    def __init__(
        self,
        processors: Iterable[LogitsProcessor | Callable[..., LogitsProcessor]] = (),
        source: LogitsSource | None = None,
        *,
        explicit: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(processors, source, async_scheduling=True, **options)
        self.explicit = explicit and bool(self.processors)
        self._pending: dict[str, int] = {}

    def _member(self, request: Request) -> Request:
        return request.having(request.output_token_ids)

    def _before_sampling(self) -> None:
        if not self._needs_ids():
            return
        for member in self.batch.requests:
            outputs = member.output_token_ids
            token = self._pending.get(member.request_id)
            if token is None or not outputs or outputs[-1] != PLACEHOLDER:
                continue
            length = len(outputs)
            while length and outputs[length - 1] == PLACEHOLDER:
                length -= 1
            outputs[length:] = [token]

    def _step(self, order: Order) -> StepResult:
        result = super()._step(order)
        if result.raw is not None:
            # A step whose ids are not needed does not copy its tokens to the host.
            self._pending = {name: ids[-1] for name, ids in result.tokens.items()} if self._needs_ids() else {}
            for member in self.batch.requests:
                if member.request_id in result.tokens:
                    member.output_token_ids.append(PLACEHOLDER)
        return result

    def _needs_ids(self) -> bool:
        return self.explicit or self.sampler.needs_output_ids
