"""The V2 runner without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lpkit.runtime.batch.context import V2Row, make_context
from lpkit.runtime.batch.logits import LogitsSource
from lpkit.runtime.batch.request import Request
from lpkit.runtime.batch.slots import V2Slots
from lpkit.runtime.engine.base import Engine, Order, build
from lpkit.runtime.engine.results import StepResult, StepRow
from lpkit.runtime.sampler.v2_sampler import V2Sampler
from lpkit.v2 import LogitsContext, LogitsProcessor


class V2Engine(Engine):
    """Slots that never move; the rows are sorted again in every step.

    With ``async_scheduling``, the context's host bounds count all drafts of the previous step as accepted.

    Args:
        processors: classes or factories called with ``(config, req_states)``.
        source: the model.
        num_speculative_tokens: most drafts per request; it separates decodes from prefills.
        **options: of :class:`Engine`.
    """

    def __init__(
        self,
        processors: Iterable[LogitsProcessor | Callable[..., LogitsProcessor]] = (),
        source: LogitsSource | None = None,
        *,
        num_speculative_tokens: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(source, **options)
        if num_speculative_tokens:
            self.config.speculate(num_speculative_tokens)
        self.slots = V2Slots(self.max_num_seqs, self.max_model_len, self.device, vocab_size=self.vocab_size)
        self.num_speculative_tokens = num_speculative_tokens
        self._rejected: dict[str, int] = {}  # drafts of the last step that the host does not know yet
        self.processors = [build(processor, self.config, self.slots.state) for processor in processors]
        self.sampler = V2Sampler(
            self.processors,
            max_num_reqs=self.max_num_seqs,
            vocab_size=self.vocab_size,
            device=self.device,
            seed=self.seed,
            thinking=self.thinking,
        )

    def swap(self, first: int, second: int) -> None:
        """Do nothing: V2 has no persistent rows."""

    def _step(self, order: Order) -> StepResult:
        plan, drafts = order.plan, order.drafts
        if any(len(ids) > self.num_speculative_tokens for ids in drafts.values()):
            raise ValueError(f"more than num_speculative_tokens={self.num_speculative_tokens} drafts")
        slots = self.slots
        freed = tuple(request_id for request_id in sorted(self._left) if request_id in slots)
        self._left.clear()
        staying = {name for name in self.requests if name in slots} - set(freed)
        added = []
        for request, slot in slots.change(freed, self._arrivals(plan, staying)):
            self._rejected.pop(request.request_id, None)
            added.append((request.request_id, slot))
            self.sampler.add_request(slot, request.params)
        self.sampler.apply_staged_writes()
        if order.idle or not plan:
            self._rejected = {}
            return StepResult(added=tuple(added), freed=freed)
        # Verifications, decodes, then prefills by the number of tokens that they feed; stable.
        fed = {name: count + len(drafts.get(name, ())) for name, count in plan.items()}
        whole = 1 + self.num_speculative_tokens
        names = sorted(plan, key=lambda name: (name not in drafts, fed[name] != whole, fed[name]))
        scheduled = {name: len(ids) for name, ids in drafts.items()}
        counted = {name: scheduled.get(name, 0) + self._rejected.get(name, 0) for name in plan}
        rows = self._rows(names, order)
        requests = [request for name in names for request in self._by_row(name, drafts.get(name, ()))]
        raw = self._logits(rows)
        ctx = self._context(rows, requests, counted)
        sampled = self.sampler(raw, ctx, requests)
        tokens = self._commit(rows, sampled.token_ids, order)
        if self.config.scheduler_config.async_scheduling:
            self._rejected = {name: 1 + n - len(tokens[name]) for name, n in scheduled.items() if name in tokens}
        if drafts:
            for request_id, ids in tokens.items():
                slots.commit(slots.slot(request_id), ids)
        else:
            slots.commit_each([slots.slot(request_id) for request_id in tokens], [t for (t,) in tokens.values()])
        return StepResult(
            rows=rows,
            raw=raw,
            processed=sampled.logits,
            sampled=sampled.token_ids,
            tokens=tokens,
            added=tuple(added),
            freed=freed,
            applied=self.sampler.gate.is_open(ctx.idx_mapping_np),
        )

    def _context(self, rows: tuple[StepRow, ...], requests: list[Request], counted: Mapping[str, int]) -> LogitsContext:
        """Describe the rows to processors; ``requests`` are as each row sees them."""
        places = [
            V2Row(
                self.slots.slot(row.request_id),
                row.position,
                request.token_at(row.position),
                request.total_len - self.requests[row.request_id].total_len,
            )
            for row, request in zip(rows, requests, strict=True)
        ]
        bounds = [
            place.pos + 1 + counted.get(request.request_id, 0)
            for place, request in zip(places, requests, strict=True)
            if place.local == 0
        ]
        return make_context(places, self.device, bounds=bounds)

    def _by_row(self, name: str, drafts: Sequence[int]) -> list[Request]:
        """Return the request as each of its rows sees it: with the drafts before the row among its outputs."""
        request = self.requests[name]
        outputs = request.output_token_ids
        return [request, *(request.having([*outputs, *drafts[: n + 1]]) for n in range(len(drafts)))]
