"""Replays recorded traces: the engine's own batch updates and rows, with the plugin's cases as the requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from lpkit.runtime import V2Row, make_context
from lpkit.v1 import BatchUpdate, MoveDirectionality

from lpkit_conformance.hosts import v1, v2
from lpkit_conformance.hosts.calls import Observation, SeenRow, calling
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, known_as, make_active
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.traces import Apply, Trace, Update
from lpkit_conformance.traces.patterns import PATTERNS

LENGTHS = (9, 110, 5, 30, 2, 60, 17)
"""Prompt lengths of the few different requests (times variants) that all traces are played with, as each has to be run
alone too. As many as are prime to the patterns' periods."""

_MOVES = {"->": MoveDirectionality.UNIDIRECTIONAL, "<->": MoveDirectionality.SWAP}


def assign_requests(trace: Trace, pattern: str) -> dict[str, Arrive]:
    """Who plays which request of the trace."""
    assign = PATTERNS[pattern]
    return {
        name: Arrive(name, assign(i), LENGTHS[i % len(LENGTHS)], character=f"t{i % len(LENGTHS)}")
        for i, name in enumerate(trace.requests)
    }


def reached(played: Iterable[Trace], patterns: Iterable[str]) -> dict[Arrive, int]:
    """The most output tokens that anyone gets who plays in these traces; by how they arrive, names left out."""
    found: dict[Arrive, int] = {}
    for trace, pattern in product(played, tuple(patterns)):
        lens = trace.output_lens
        for name, arrived in assign_requests(trace, pattern).items():
            player = known_as(arrived)
            found[player] = max(found.get(player, 0), lens[name])
    return found


class TraceHost:
    """Drives one instance through a trace.

    Rows, timing and numbers of generated tokens are the trace's; prompts and tokens are the subject's, so that a
    case which needs certain tokens gets them, and a few characters serve all traces.

    Args:
        subject: the plugin; its host must be the trace's runner.
        trace: what to replay.
        pattern: a key of :data:`~lpkit_conformance.traces.patterns.PATTERNS`.
    """

    def __init__(self, subject: PluginUnderTest, trace: Trace, pattern: str) -> None:
        self.subject = subject
        self.trace = trace
        self.requests = {
            name: make_active(subject, arrived) for name, arrived in assign_requests(trace, pattern).items()
        }

    def run(self) -> Iterator[Observation]:
        """Every ``apply`` of the trace."""
        yield from self._v1() if self.trace.runner == "v1" else self._v2()

    def _commit(self, request: str, count: int) -> list[int]:
        active = self.requests[request]
        n = len(active.request.output_token_ids)
        tokens = [self.subject.emit(active.logits_key, active.variant, n + i) for i in range(count)]
        active.request.output_token_ids.extend(tokens)
        return tokens

    # -- V1 --------------------------------------------------------------------------------------------------

    def _v1(self) -> Iterator[Observation]:
        with calling("__init__"):
            processor = self.subject.create(self.trace.max_num_seqs)
        with calling("is_argmax_invariant"):
            invariant = bool(processor.is_argmax_invariant())
        for step in self.trace.v1_steps:
            for request, length in step.lists.items():
                del self.requests[request].request.output_token_ids[length:]
            v1.update(processor, self._batch_update(step.update) if step.update else None)
            if step.applied:
                actives = [self.requests[request] for request in step.rows]
                params = [active.request.params for active in actives]
                # A discarded row, of a partial prefill for example, holds another position's logits.
                keys = [
                    (active.logits_key, max(active.request.total_len - (active.id in step.discarded), 1))
                    for active in actives
                ]
                raw = self.subject.rows(keys)
                before = v1.stage_input(raw, params, invariant)
                after = v1.apply(processor, before, invariant, params)
                rows = tuple(
                    SeenRow(
                        active.id,
                        active.request.total_len,
                        active.id in step.discarded or (invariant and v1.is_greedy(active.request.params)),
                    )
                    for active in actives
                )
                yield Observation(step.step, rows, before, after)
            for request, tokens in step.tokens.items():
                self._commit(request, len(tokens))

    def _batch_update(self, update: Update) -> BatchUpdate:
        added = []
        for item in update.added:
            request = self.requests[item.request].request
            if item.fresh:
                request.output_token_ids = list(request.output_token_ids)
            added.append((item.row, request.params, request.prompt_token_ids, request.output_token_ids))
        moved = [(move.source, move.target, _MOVES[move.kind]) for move in update.moved]
        return BatchUpdate(update.batch_size, list(update.removed), added, moved)

    # -- V2 --------------------------------------------------------------------------------------------------

    def _v2(self) -> Iterator[Observation]:
        slots = self.subject.slots(self.trace.max_num_seqs, poison=True)
        with calling("__init__"):
            processor = self.subject.create_v2(slots, self.trace.max_num_seqs)
        needs: dict[str, bool] = {}
        for step in self.trace.v2_steps:
            for request in step.freed:
                slots.free(request)
            for item in step.added:
                active = self.requests[item.request]
                slot = slots.add(active.request)
                needs[item.request] = v2.enter(processor, slot, active.request.params, self.subject.vocab_size)
            if step.added:
                slots.flush()
            if step.flush:
                v2.flush(processor)
            for call in step.applies:
                actives = [self.requests[request] for request in call.rows]
                seen = tuple(
                    self._seen(active, pos, active.id in call.discarded)
                    for active, pos in zip(actives, call.pos, strict=True)
                )
                keys = [(active.logits_key, row.position) for active, row in zip(actives, seen, strict=True)]
                before = after = self.subject.rows(keys)
                if any(needs[active.id] for active in actives):
                    rows = [
                        V2Row(
                            slots.slot(active.id),
                            row.position - 1,
                            self._input(active, row.position - 1),
                            local,
                        )
                        for active, row, local in zip(actives, seen, call.local, strict=True)
                    ]
                    ctx = make_context(rows, self.subject.device, bounds=self._bounds(call, seen))
                    after = v2.apply(processor, before, ctx)
                yield Observation(step.step, seen, before, after)
            for request, tokens in step.tokens.items():
                slots.commit(slots.slot(request), self._commit(request, len(tokens)))

    def _seen(self, active: ActiveRequest, recorded: int, discarded: bool) -> SeenRow:
        """A row at the recorded position, moved by the difference between our prompt and the recorded one."""
        moved = recorded + active.request.prompt_len - self.trace.requests[active.id].prompt_len
        if discarded:  # a partial prefill: somewhere before the end of the prompt
            moved = min(max(moved, 0), active.request.total_len - 2)
        return SeenRow(active.id, moved + 1, discarded)

    @staticmethod
    def _input(active: ActiveRequest, position: int) -> int:
        return active.request.token_at(position) if position < active.request.total_len else -1

    def _bounds(self, call: Apply, seen: tuple[SeenRow, ...]) -> list[int]:
        """Per request what is visible to its last row, and what the engine's bound was above it."""
        last = {row.request: (row, pos) for row, pos in zip(seen, call.pos, strict=True)}
        recorded = dict(zip(call.requests, call.bounds, strict=False))
        return [row.position + recorded[request] - (pos + 1) for request, (row, pos) in last.items()]
