"""Processors that change nothing and pass on everything an engine tells them, and the taps that listen to them.

Import this module only in a process that ``engine.prepare`` has prepared: it imports vLLM's interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import lpkit.v1
import lpkit.v2
from lpkit.runtime.engine.v1_async import PLACEHOLDER

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces import (
    Added,
    Apply,
    Move,
    Placement,
    TraceRequest,
    Update,
    V1Step,
    V2Step,
)
from lpkit_conformance.traces.placeholders import placeholders
from lpkit_conformance.vllm_api.runners import V1, Runner


class V1Recorder(lpkit.v1.LogitsProcessor):
    """A V1 processor for ``logits_processors=[V1Recorder]``; silent until a ``V1Tap`` listens to it."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.tap: V1Tap | None = None

    def is_argmax_invariant(self) -> bool:
        return False  # true would hide the steps in which every request is greedy

    def update_state(self, batch_update: Any) -> None:
        if self.tap is not None:
            self.tap.update(batch_update)

    def apply(self, logits: Any) -> Any:
        if self.tap is not None:
            self.tap.apply()
        return logits


class V2Recorder(lpkit.v2.LogitsProcessor):
    """A V2 processor for ``logits_processors=[V2Recorder]``; silent until a ``V2Tap`` listens to it."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.tap: V2Tap | None = None

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        if self.tap is not None:
            self.tap.add(req_idx)
        return True  # false would let the engine skip apply

    def apply_staged_writes(self) -> None:
        if self.tap is not None:
            self.tap.flush()

    def apply(self, logits: Any, ctx: Any) -> Any:
        if self.tap is not None:
            self.tap.apply(ctx)
        return logits


class V2Listener(V2Recorder):
    """The same beside another processor: it does not make the engine call ``apply`` where it would not."""

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        super().add_request(req_idx, sampling_params)
        return False


class V1Tap:
    """Turns what a ``V1Recorder`` hears into ``V1Step`` objects.

    ``batch``: vLLM's InputBatch. ``lists``: returns the live output list of every request the worker knows, by id.
    ``sampled``: returns the tokens of the step for which the lists only got placeholders, by id.
    """

    def __init__(
        self,
        recorder: V1Recorder,
        batch: Any,
        lists: Callable[[], dict[str, list[int]]],
        sampled: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.steps: list[V1Step] = []
        self.requests: dict[str, TraceRequest] = {}
        self._batch, self._lists, self._sampled = batch, lists, sampled
        self._last: dict[str, list[int]] = {}  # the list object each request had when last added
        self._length: dict[str, int] = {}  # tokens committed so far
        self._begin()
        recorder.tap = self

    def _begin(self) -> None:
        self.applied = False
        self._update: Update | None = None
        self._cut: dict[str, int] = {}
        self._placeholders: dict[str, int] = {}
        self._rows: tuple[str, ...] = ()

    def update(self, update: Any) -> None:
        live = self._lists()
        for name, output in live.items():
            if len(output) < self._length.get(name, 0):
                self._cut[name] = self._length[name] = len(output)
        self._rows = tuple(self._batch.req_ids)
        self._placeholders = {name: count for name in self._rows if (count := placeholders(live[name]))}
        if update is None:
            return
        owners = {id(output): name for name, output in live.items()}
        # The builder reuses nothing after this step, but says so nowhere: copy every list.
        self._update = Update(
            batch_size=int(update.batch_size),
            removed=tuple(int(row) for row in update.removed),
            added=tuple(self._added(entry, owners) for entry in update.added),
            moved=tuple(map(Move.of, update.moved)),
        )

    def _added(self, entry: Any, owners: dict[int, str]) -> Added:
        row, _params, prompt, output = entry
        name = owners[id(output)]
        if name not in self.requests:
            ids = None if prompt is None else tuple(int(token) for token in prompt)
            length = len(prompt) if prompt is not None else int(self._batch.num_prompt_tokens[row])
            self.requests[name] = TraceRequest(length, ids)
        fresh = name in self._last and self._last[name] is not output
        self._last[name] = output
        return Added(int(row), name, len(output), fresh)

    def apply(self) -> None:
        self.applied = True
        live = self._lists()
        if left := [name for name in self._placeholders if PLACEHOLDER in live[name]]:
            raise TraceError(f"the engine left placeholders in the lists of {left}, which a trace cannot say")

    def end(self, discarded: Sequence[bool]) -> None:
        """The step is over; ``discarded`` says of each row whether its token was discarded."""
        tokens: dict[str, tuple[int, ...]] = {}
        live, sampled = self._lists(), self._sampled()
        for name in self._rows:
            done = self._length.get(name, 0)
            if new := tuple(int(sampled[name] if token == PLACEHOLDER else token) for token in live[name][done:]):
                tokens[name] = new
                self._length[name] = done + len(new)
        thrown = frozenset(name for name, gone in zip(self._rows, discarded, strict=True) if gone)
        update, rows, cut, unknown = self._update, self._rows, self._cut, self._placeholders
        self.steps.append(V1Step(len(self.steps), update, rows, self.applied, thrown, tokens, cut, unknown))
        self._begin()


class V2Tap:
    """Turns what a ``V2Recorder`` hears into ``V2Step`` objects. ``states``: the runner's request states."""

    def __init__(self, recorder: V2Recorder, states: Any) -> None:
        self.steps: list[V2Step] = []
        self.requests: dict[str, TraceRequest] = {}
        self._states = states
        self._length: dict[str, int] = {}
        self._begin()
        recorder.tap = self
        remove = states.remove_request

        def removing(name: str) -> Any:
            slot = remove(name)
            if slot is not None:
                self._freed.append(name)
            return slot

        states.remove_request = removing

    def _begin(self) -> None:
        self._freed: list[str] = []
        self._added: list[Placement] = []
        self._flushed = False
        self._calls: list[tuple[tuple[int, ...], Apply]] = []

    def add(self, slot: int) -> None:
        states = self._states
        name = states.index_to_req_id[slot]
        added = Placement(name, slot, int(states.prompt_len.np[slot]), int(states.prefill_len.np[slot]))
        self._added.append(added)

    def flush(self) -> None:
        self._flushed = True
        for added in self._added:
            if added.request not in self.requests:  # its tokens are on the device only now
                ids = self._states.all_token_ids.gpu[added.slot, : added.prompt_len].tolist()
                self.requests[added.request] = TraceRequest(added.prompt_len, tuple(ids))

    def apply(self, ctx: Any) -> None:
        slots = tuple(ctx.expanded_idx_mapping.tolist())
        call = Apply(
            rows=tuple(self._states.index_to_req_id[slot] for slot in slots),
            pos=tuple(ctx.pos.tolist()),
            local=tuple(ctx.expanded_local_pos.tolist()),
            inputs=tuple(ctx.input_ids.tolist()),
            bounds=tuple(ctx.seq_lens_upper_bound_np.tolist()),
        )
        self._calls.append((slots, call))

    def end(self) -> None:
        """The step is over, and its tokens are in the request states."""
        states = self._states
        tokens: dict[str, tuple[int, ...]] = {}
        calls: list[Apply] = []
        for slots, call in self._calls:
            kept = set()
            for name, slot in dict(zip(call.rows, slots, strict=True)).items():
                start = self._length.get(name, self.requests[name].prompt_len)
                total = int(states.total_len.gpu[slot])
                if total > start:
                    tokens[name] = tuple(states.all_token_ids.gpu[slot, start:total].tolist())
                    self._length[name] = total
                    kept.add(name)
            calls.append(replace(call, discarded=frozenset(set(call.rows) - kept)))
        self.steps.append(
            V2Step(len(self.steps), tuple(self._freed), tuple(self._added), self._flushed, tuple(calls), tokens)
        )
        self._begin()


def listen(runner: Runner, model_runner: Any) -> V1Tap | V2Tap:
    """Attach to a model runner that has a recorder among its processors."""
    if runner == V1:
        return _listen_v1(model_runner)
    recorder = next(p for p in model_runner.sampler.logits_processors if isinstance(p, V2Recorder))
    tap = V2Tap(recorder, model_runner.req_states)
    _after_step(model_runner, tap.end)
    return tap


def _listen_v1(model_runner: Any) -> V1Tap:
    """Attach to a V1 model runner that has a ``V1Recorder`` among its processors."""
    batch = model_runner.input_batch
    recorder = next(p for p in batch.logitsprocs.all if isinstance(p, V1Recorder))

    def sampled() -> dict[str, int]:
        # Under asynchronous scheduling the batch keeps the tokens for the next step's inputs.
        rows = batch.prev_req_id_to_index or {}
        return {name: int(batch.prev_sampled_token_ids[row, 0]) for name, row in rows.items()}

    tap = V1Tap(
        recorder,
        batch,
        lambda: {name: state.output_token_ids for name, state in model_runner.requests.items()},
        sampled,
    )

    def discarded() -> list[bool]:
        if not tap.applied:
            return [False] * batch.num_reqs
        return [bool(flag) for flag in model_runner.discard_request_mask.np[: batch.num_reqs]]

    _after_step(model_runner, lambda: tap.end(discarded()))
    return tap


def _after_step(model_runner: Any, end: Callable[[], None]) -> None:
    """Call ``end`` after each step: after sampling, or after ``execute_model`` when nothing was scheduled."""
    execute, sample = model_runner.execute_model, model_runner.sample_tokens

    def execute_model(*args: Any, **kwargs: Any) -> Any:
        output = execute(*args, **kwargs)
        if output is not None:
            end()
        return output

    def sample_tokens(*args: Any, **kwargs: Any) -> Any:
        output = sample(*args, **kwargs)
        end()
        return output

    model_runner.execute_model, model_runner.sample_tokens = execute_model, sample_tokens
