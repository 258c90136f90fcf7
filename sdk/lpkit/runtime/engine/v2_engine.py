"""The V2 runner without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from lpkit.runtime.batch.context import V2Row, make_context
from lpkit.runtime.batch.logits import LogitsSource
from lpkit.runtime.batch.request import Request
from lpkit.runtime.batch.slots import V2Slots
from lpkit.runtime.engine.base import Engine, Order, build
from lpkit.runtime.engine.config import speculate
from lpkit.runtime.engine.results import StepResult, StepRow
from lpkit.runtime.sampler.results import Sampled
from lpkit.runtime.sampler.v2_sampler import V2Sampler
from lpkit.v2 import LogitsProcessor


class V2Engine(Engine):
    """Slots that never move; the rows are sorted again in every step.

    With ``async_scheduling``, the context's host bounds count all drafts of the previous step as accepted.

    Args:
        processors: classes or factories called with ``(config, req_states)``, or instances made with the ``state`` of
            ``slots``.
        source: the model.
        slots: the slots to use; by default ``max_num_seqs`` new ones.
        padding: zeros behind the context's host bounds, as under full CUDA graphs.
        num_speculative_tokens: most drafts per request; it separates decodes from prefills.
        verified_drafts: most drafts verified per step, as with adaptive verification. Only the device knows which
            drafts are left out, so the context's host bounds still count them.
        ranks: number of tensor-parallel ranks that share the sampling of a batch. Each rank has its own processors,
            gets all requests, and sees the rows of its slots (slot modulo ranks). ``processors`` are those of rank 0,
            and must be classes or factories.
        **options: of :class:`Engine`.
    """

    def __init__(
        self,
        processors: Iterable[LogitsProcessor | Callable[..., LogitsProcessor]] = (),
        source: LogitsSource | None = None,
        *,
        slots: V2Slots | None = None,
        padding: int = 0,
        num_speculative_tokens: int = 0,
        verified_drafts: int | None = None,
        ranks: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(source, **options)
        if num_speculative_tokens:
            speculate(self.config, num_speculative_tokens, adaptive=verified_drafts is not None)
        if slots is None:
            slots = V2Slots(self.max_num_seqs, self.max_model_len, self.device, vocab_size=self.vocab_size)
        self.slots = slots
        self.padding = padding
        self.num_speculative_tokens = num_speculative_tokens
        self.verified_drafts = verified_drafts
        self._rejected: dict[str, int] = {}  # drafts of the last step that the host does not know yet
        processors = list(processors)
        if ranks > 1 and not all(isinstance(item, type) or not hasattr(item, "apply") for item in processors):
            raise ValueError("an instance cannot serve several ranks: give its class")
        self.samplers = [
            V2Sampler(
                [build(processor, self.config, slots.state) for processor in processors],
                max_num_reqs=slots.max_num_reqs,
                vocab_size=self.vocab_size,
                device=self.device,
                seed=self.seed,
                thinking=self.thinking,
            )
            for _ in range(ranks)
        ]
        self.processors = self.samplers[0].processors

    def _place(self, request_id: str) -> int | None:
        return self.slots.slot(request_id) if request_id in self.slots else None

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
            for sampler in self.samplers:
                sampler.add_request(slot, request.params)
        for sampler in self.samplers:
            sampler.apply_staged_writes()
        if order.idle or not plan:
            self._rejected = {}
            return StepResult(added=tuple(added), freed=freed)
        # Verifications, decodes, then prefills by the number of tokens that they feed; stable.
        fed = {name: count + len(drafts.get(name, ())) for name, count in plan.items()}
        whole = 1 + self.num_speculative_tokens
        names = sorted(plan, key=lambda name: (name not in drafts, fed[name] != whole, fed[name]))
        scheduled = {name: len(ids) for name, ids in drafts.items()}
        counted = {name: scheduled.get(name, 0) + self._rejected.get(name, 0) for name in plan}
        drafts = self._trimmed(drafts)
        order = order._replace(drafts=drafts)
        rows = self._rows(names, order)
        requests = [request for name in names for request in self._by_row(name, drafts.get(name, ()))]
        raw = self._logits(rows)
        sampled, applied = self._sample(rows, requests, raw, counted)
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
            applied=applied,
        )

    def _trimmed(self, drafts: Mapping[str, list[int]]) -> Mapping[str, list[int]]:
        """Choose the drafts to verify: first drafts of all requests before second drafts."""
        places = sorted((n, turn, name) for turn, name in enumerate(drafts) for n in range(len(drafts[name])))
        kept = [name for _, _, name in places[: self.verified_drafts]]
        return {name: drafts[name][: kept.count(name)] for name in drafts}

    def _sample(
        self, rows: tuple[StepRow, ...], requests: list[Request], raw: torch.Tensor, counted: Mapping[str, int]
    ) -> tuple[Sampled, bool]:
        """Sample each rank's rows, in batch order. The second result is True if any rank's gate was open."""
        places = [
            V2Row(
                self.slots.slot(row.request_id),
                row.position,
                request.token_at(row.position),
                request.total_len - self.requests[row.request_id].total_len,
            )
            for row, request in zip(rows, requests, strict=True)
        ]
        if len(self.samplers) == 1:
            return self._sample_on(self.samplers[0], places, requests, raw, counted)
        token_ids = torch.empty(len(rows), dtype=torch.int64, device=self.device)
        logits = torch.empty_like(raw, dtype=torch.float32)
        applied = False
        for rank, sampler in enumerate(self.samplers):
            indices = [n for n, place in enumerate(places) if place.slot % len(self.samplers) == rank]
            if indices:
                mine = [places[n] for n in indices], [requests[n] for n in indices], raw[indices]
                part, was_applied = self._sample_on(sampler, *mine, counted)
                token_ids[indices], logits[indices] = part.token_ids, part.logits.float()
                applied |= was_applied
        return Sampled(token_ids, logits), applied

    def _sample_on(
        self,
        sampler: V2Sampler,
        places: list[V2Row],
        requests: list[Request],
        raw: torch.Tensor,
        counted: Mapping[str, int],
    ) -> tuple[Sampled, bool]:
        bounds = [
            place.pos + 1 + counted.get(request.request_id, 0)
            for place, request in zip(places, requests, strict=True)
            if place.local == 0
        ]
        ctx = make_context(places, self.device, bounds=bounds, padding=self.padding)
        return sampler(raw, ctx, requests), sampler.gate.is_open(ctx.idx_mapping_np)

    def _by_row(self, name: str, drafts: Sequence[int]) -> list[Request]:
        """Return the request as each of its rows sees it: with the drafts before the row among its outputs."""
        request = self.requests[name]
        outputs = request.output_token_ids
        return [
            request,
            *(
                Request(
                    name,
                    request.params,
                    request.prompt_token_ids,
                    prompt_len=request.prompt_len,
                    output_token_ids=[*outputs, *drafts[: n + 1]],
                )
                for n in range(len(drafts))
            ),
        ]
