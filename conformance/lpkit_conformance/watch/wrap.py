"""Puts the watcher around a processor: its methods are replaced on the instance, so that its class, its name and its
attributes are what they were."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from lpkit_conformance.watch.batch_v1 import V1Batch
from lpkit_conformance.watch.batch_v2 import V2Batch
from lpkit_conformance.watch.hub import Hub, Watched
from lpkit_conformance.watch.tally import Calls


def wrap_v1(processor: Any, hub: Hub, watched: Watched, leads: bool) -> None:
    """Watch a processor on V1. ``leads``: it is the first that the engine tells of a step."""
    batch = hub.batch
    assert isinstance(batch, V1Batch)

    def follow(update: Any) -> None:
        hub.begin_step()
        batch.update(update)

    _timed(processor, "update_state", hub, watched, before=follow if leads else None)
    _applied(processor, hub, watched, (lambda logits, ctx: batch.apply()) if leads else None)


def wrap_v2(processor: Any, hub: Hub, watched: Watched, leads: bool, states: Any) -> None:
    """Watch a processor on V2. ``leads``: it is the first that the engine tells of a step. ``states``: the engine's."""
    batch = hub.batch
    assert isinstance(batch, V2Batch)

    def enter(slot: int, params: Any) -> None:
        batch.add(slot, params, int(states.prefill_len.np[slot]))

    def begin() -> None:
        hub.begin_step()
        batch.begin()

    def declined(result: Any, slot: int, params: Any) -> None:
        if not result and slot in batch.slots:
            batch.slots[slot].opted_out[watched.number] = True

    def follow(logits: Any, ctx: Any) -> None:
        batch.apply(ctx, logits.shape[0])

    _timed(processor, "add_request", hub, watched, before=enter if leads else None, after=declined)
    _timed(processor, "apply_staged_writes", hub, watched, before=begin if leads else None)
    _applied(processor, hub, watched, follow if leads else None)


def _timed(
    processor: Any,
    method: str,
    hub: Hub,
    watched: Watched,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    original = getattr(processor, method)
    calls = watched.seen.calls.setdefault(method, Calls())

    def call(*args: Any, **kwargs: Any) -> Any:
        if not hub.active:
            return original(*args, **kwargs)
        if before is not None:
            hub.guarded(lambda: before(*args, **kwargs))
        start = perf_counter()
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            problem = error
            params = args[1] if method == "add_request" and len(args) > 1 else None
            hub.guarded(lambda: hub.raised(watched, method, params, problem))
            raise
        calls.add(perf_counter() - start)
        if after is not None:
            hub.guarded(lambda: after(result, *args, **kwargs))
        return result

    object.__setattr__(processor, method, call)


def _applied(processor: Any, hub: Hub, watched: Watched, follow: Callable[[Any, Any], None] | None) -> None:
    original = processor.apply
    calls = watched.seen.calls.setdefault("apply", Calls())

    def before(logits: Any, ctx: Any) -> Any:
        if follow is not None:
            follow(logits, ctx)
        return hub.before(watched, logits, ctx)

    def apply(logits: Any, *rest: Any, **kwargs: Any) -> Any:
        if not hub.active:
            return original(logits, *rest, **kwargs)
        ctx = rest[0] if rest else kwargs.get("ctx")
        sample = hub.guarded(lambda: before(logits, ctx))
        start = perf_counter()
        try:
            result = original(logits, *rest, **kwargs)
        except Exception as error:
            problem = error
            hub.guarded(lambda: hub.raised(watched, "apply", None, problem))
            raise
        calls.add(perf_counter() - start)
        hub.guarded(lambda: hub.after(watched, logits, result, sample))
        return result

    object.__setattr__(processor, "apply", apply)
