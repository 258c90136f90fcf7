"""Processors that write down what the engine does to them. Imported in the engine's process only."""

from __future__ import annotations

import weakref
from typing import Any

from lpkit.v1 import LogitsProcessor as V1Base
from lpkit.v2 import LogitsProcessor as V2Base

EVENTS: list[Any] = []


def _refuse(params: Any) -> None:
    if (params.extra_args or {}).get("refuse"):
        raise ValueError("the probe refuses this request")


class V1Probe(V1Base):
    invariant = False

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        _refuse(sampling_params)

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        EVENTS.append("init")

    def is_argmax_invariant(self) -> bool:
        EVENTS.append("invariant?")
        return self.invariant

    def update_state(self, batch_update: Any) -> None:
        if batch_update is None:
            EVENTS.append(("update", None))
            return
        added = [(row, list(prompt), list(output)) for row, _, prompt, output in batch_update.added]
        EVENTS.append(("update", batch_update.batch_size, list(batch_update.removed), added))

    def apply(self, logits: Any) -> Any:
        EVENTS.append(("apply", tuple(logits.shape)))
        return logits


class V1Neighbour(V1Base):
    """Tells what it is given from what others are given."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.config = vllm_config

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        for _, _, prompt, output in batch_update.added if batch_update else ():
            EVENTS.append(("given", id(self), id(self.config), (id(prompt), id(output))))

    def apply(self, logits: Any) -> Any:
        return logits


class V1InvariantProbe(V1Probe):
    invariant = True


class V2Probe(V2Base):
    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        _refuse(sampling_params)

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        EVENTS.append("init")
        self.states = req_states

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        EVENTS.append(("add", req_idx))
        return bool((sampling_params.extra_args or {}).get("probe"))

    def apply_staged_writes(self) -> None:
        EVENTS.append(("flush", self.states.prompt_len.gpu.data_ptr()))

    def apply(self, logits: Any, ctx: Any) -> Any:
        dtypes = {
            name: str(getattr(ctx, name).dtype)
            for name in ("expanded_idx_mapping", "idx_mapping", "expanded_local_pos", "input_ids", "pos")
        }
        EVENTS.append(("apply", tuple(logits.shape), dtypes))
        return logits


class V2Neighbour(V2Base):
    """Tells what it is given from what others are given, and whether the engine keeps the contexts of past steps."""

    contexts: list[weakref.ref[Any]] = []

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.states = req_states

    def apply(self, logits: Any, ctx: Any) -> Any:
        known = [seen() for seen in self.contexts]
        if not any(seen is ctx for seen in known):
            EVENTS.append(("kept", sum(seen is not None for seen in known)))
            self.contexts.append(weakref.ref(ctx))
        EVENTS.append(("given", id(self), id(self.states), id(ctx)))
        return logits


class Both(V1Base, V2Base):
    """One class for both runners, as vLLM's loaders accept it."""

    def __init__(self, *arguments: Any) -> None:
        EVENTS.append(("init", len(arguments)))

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        pass

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        EVENTS.append("apply")
        return logits


def take_events(engine: Any) -> list[Any]:
    """Return the records since the last call."""
    events = EVENTS.copy()
    EVENTS.clear()
    return events


def profile_memory(engine: Any) -> int:
    """Code that the worker runs while it measures memory, and its sampling interval."""
    runner = engine.model_runner
    real, calls = runner.sampler, []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(None)
            return real(*args, **kwargs)

    runner.sampler = Counted()
    try:
        runner.profile_run()
    finally:
        runner.sampler = real
    return len(calls)


def abort_and_send_again(engine: Any, ask: Any) -> list[Any]:
    """Abort a running request and send one with the same id before the next step; the events of that step."""
    engine.submit(ask)
    engine.step()
    engine.step()
    take_events(engine)
    engine.abort([ask.request_id])
    engine.submit(ask)
    engine.step()
    events = take_events(engine)
    while engine.busy:
        engine.step()
    return events
