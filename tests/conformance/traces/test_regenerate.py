"""The reference engines send what vLLM sent: every recorded trace comes out of its request-domain program again.

The program is what happened to the requests: who arrived, was scheduled with how many tokens, sat a step out, was
preempted, came back or left. Rows, slots, moves, removals and contexts are the engine's business, and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from lpkit import v1, v2
from lpkit.runtime import LogitsSource, Request, V1AsyncEngine, V1Batch, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance import traces
from lpkit_conformance.traces import Added, Move, Trace, Update, V1Step


class Contexts(v2.LogitsProcessor):
    """Keeps every context."""

    def __init__(self, config: Any, states: Any) -> None:
        self.seen: list[v2.LogitsContext] = []

    def add_request(self, req_idx: int, params: Any) -> bool:
        return True

    def apply_staged_writes(self) -> None: ...

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        self.seen.append(ctx)
        return logits


class Placeholders(v1.LogitsProcessor):
    """Counts the placeholders at the end of each request's list; none may be left when it is applied."""

    engine: V1Engine
    seen: dict[str, int]

    def __init__(self) -> None: ...

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        counts = {request.request_id: request.output_token_ids.count(-1) for request in self.engine.batch.requests}
        self.seen = {name: count for name, count in counts.items() if count}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        assert not any(-1 in request.output_token_ids for request in self.engine.batch.requests)
        return logits


class Text(LogitsSource):
    """A model that wants what was recorded: only right drafts are accepted."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(512, 0, torch.device("cpu"))
        self.at = {
            (name, len(request.prompt or ()) - 1 + n): token
            for name, request in trace.requests.items()
            for n, token in enumerate(token for step in trace.steps for token in step.tokens.get(name, ()))
        }

    def rows(self, keys: Sequence[tuple[str, int]]) -> torch.Tensor:
        wanted = torch.tensor([self.at.get(key, self.vocab_size - 1) for key in keys])
        return torch.nn.functional.one_hot(wanted, self.vocab_size).float()


class Program:
    """Requests of a trace, on one of our engines."""

    def __init__(self, trace: Trace, engine: V1Engine | V2Engine) -> None:
        self.trace, self.engine = trace, engine
        # Where each request is placed for the last time: a request that leaves after that has finished.
        self.last = {
            item.request: n
            for n, step in enumerate(trace.steps)
            for item in (getattr(step, "added", ()) or getattr(getattr(step, "update", None), "added", ()))
        }

    def leave(self, name: str, n: int) -> None:
        (self.engine.preempt if self.last[name] >= n else self.engine.finish)(name)

    def enter(self, name: str, fresh: bool = False) -> None:
        if name in self.engine.requests:
            self.engine.resume(name, new_list=fresh)
            return
        item = self.trace.requests[name]
        prompt = None if item.prompt is None else list(item.prompt)
        self.engine.add(Request(name, SamplingParams(temperature=0.0), prompt, 10_000, prompt_len=item.prompt_len))


def options(trace: Trace) -> dict[str, Any]:
    return {"vocab_size": 512, "max_num_seqs": trace.max_num_seqs, "max_model_len": 4096, "device": "cpu"}


def sent(update: v1.BatchUpdate | None, names: dict[int, tuple[str, int]], step: V1Step) -> Update | None:
    """Our update as a record; ``names``: request and number of outputs by the identity of its list."""
    if update is None:
        return None
    fresh = {item.request for item in step.update.added if item.fresh} if step.update else set()
    placed = [(row, *names[id(outputs)]) for row, _, _, outputs in update.added]
    added = tuple(Added(row, name, outputs, name in fresh) for row, name, outputs in placed)
    return Update(update.batch_size, tuple(update.removed), added, tuple(map(Move.of, update.moved)))


def batch_steps(trace: Trace) -> Iterator[tuple[Any, Any]]:
    """A trace of vLLM's batch alone, where requests came in any order: on our batch alone."""
    batch = V1Batch(trace.max_num_seqs)
    requests = {
        name: Request(name, SamplingParams(), list(item.prompt or ()), prompt_len=item.prompt_len)
        for name, item in trace.requests.items()
    }
    for step in trace.v1_steps:
        added = step.update.added if step.update else ()
        coming = {item.request for item in added}
        for request in list(batch.requests):
            if request.request_id not in step.rows or request.request_id in coming:
                batch.remove(request.request_id)
        for item in added:
            outputs = requests[item.request].output_token_ids
            requests[item.request].output_token_ids = list(outputs) if item.fresh else outputs
            batch.add(requests[item.request])
        batch.condense()
        for move in step.update.moved if step.update else ():
            if move.kind == "<->":
                batch.swap(move.source, move.target)
        names = {
            id(requests[item.request].output_token_ids): (item.request, len(requests[item.request].output_token_ids))
            for item in added
        }
        yield sent(batch.take_update(), names, step), step.update
        yield tuple(request.request_id for request in batch.requests), step.rows
        for name, ids in step.tokens.items():
            requests[name].output_token_ids.extend(ids)


def v1_steps(trace: Trace) -> Iterator[tuple[Any, Any]]:
    """(what we send, what was recorded) of each step."""
    processor = Placeholders()
    late = trace.settings.get("async_scheduling", False)
    engine = processor.engine = (V1AsyncEngine if late else V1Engine)([processor], **options(trace))
    program = Program(trace, engine)
    here: tuple[str, ...] = ()
    for n, step in enumerate(trace.v1_steps):
        added = step.update.added if step.update else ()
        for name, length in step.lists.items():
            del engine.requests[name].output_token_ids[length:]
        coming = {item.request for item in added}
        for name in here:
            if name not in step.rows or name in coming:
                program.leave(name, n)
        for item in added:
            program.enter(item.request, item.fresh)
        for move in step.update.moved if step.update else ():
            if move.kind == "<->":
                engine.swap(move.source, move.target)
        whole = {name: engine.requests[name].remaining for name in step.rows}
        order = [
            *(name for name in here if name in step.rows and name not in coming),
            *(item.request for item in added),
        ]
        plan = {name: 1 if name in step.discarded and whole[name] > 1 else whole[name] for name in order}
        result = engine.step(
            plan,
            idle=not step.applied,
            force={name: ids[0] for name, ids in step.tokens.items()},
            discard=step.discarded,
        )
        here = step.rows
        lists = {request.request_id: request.output_token_ids for request in engine.batch.requests}
        names = {id(lists[item.request]): (item.request, item.outputs) for item in added}
        yield sent(result.update, names, step), step.update
        yield processor.seen, step.placeholders
        if step.applied:
            yield tuple(row.request_id for row in result.rows), step.rows
            yield result.tokens, {name: list(ids) for name, ids in step.tokens.items()}


def v2_steps(trace: Trace) -> Iterator[tuple[Any, Any]]:
    speculation = trace.settings.get("speculative_config", {"num_speculative_tokens": 0})
    most = speculation["num_speculative_tokens"]
    engine = V2Engine([Contexts], Text(trace), num_speculative_tokens=most, **options(trace))
    program = Program(trace, engine)
    (processor,) = engine.processors
    assert isinstance(processor, Contexts)
    late = trace.settings.get("async_scheduling", False)
    rejected: dict[str, int] = {}
    for n, step in enumerate(trace.v2_steps):
        for name in step.freed:
            program.leave(name, n)
        for item in step.added:
            program.enter(item.request)
        (call,) = step.applies or (None,)
        plan = {}
        for name in engine._active if call else ():  # the scheduler's order; the runner sorts
            if name in call.rows:
                plan[name] = call.pos[call.rows.index(name)] + 1 - engine.requests[name].num_computed_tokens
        drafts: dict[str, list[int]] = {}
        for name, local, token in zip(call.rows, call.local, call.inputs, strict=True) if call else ():
            if local:
                drafts.setdefault(name, []).append(token)
        result = engine.step(plan, idle=not plan, drafts=drafts)
        yield list(result.freed), sorted(step.freed)
        lengths = [(item.prompt_len, item.prefill_len) for item in step.added]
        state = engine.slots.state
        held = [(int(state.prompt_len.np[slot]), int(state.prefill_len.np[slot])) for _, slot in result.added]
        yield (list(result.added), held), ([(item.request, item.slot) for item in step.added], lengths)
        if call is not None:
            ctx = processor.seen[-1]
            slots = [engine.slots.slot(name) for name in call.rows]
            yield ctx.expanded_idx_mapping.tolist(), slots
            # Under asynchronous scheduling the host does not know yet that these were wrong.
            slack = [rejected.get(name, 0) if late else 0 for name in call.requests]
            for ours, recorded in (
                (ctx.pos, call.pos),
                (ctx.expanded_local_pos, call.local),
                (ctx.input_ids, call.inputs),
                (torch.from_numpy(ctx.seq_lens_upper_bound_np) + torch.tensor(slack), call.bounds),
            ):
                yield tuple(ours.tolist()), recorded
            made = {name: len(ids) for name, ids in step.tokens.items()}
            rejected = {name: call.rows.count(name) - count for name, count in made.items()}
            yield {row.request_id for row in result.rows if row.discarded}, set(call.discarded)
            yield result.tokens, {name: list(ids) for name, ids in step.tokens.items()}


@pytest.mark.parametrize("name", traces.names())
def test_the_engine_of_ours_sends_what_the_real_one_sent(name: str) -> None:
    trace = traces.load(name)
    compared = 0
    steps = v2_steps if trace.runner == "v2" else v1_steps if trace.engine.driver == "engine" else batch_steps
    for ours, theirs in steps(trace):
        assert ours == theirs
        compared += 1
    assert compared > len(trace.steps)
