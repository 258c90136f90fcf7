"""LP5: data that the engine shares with its processors is read-only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lpkit.v2 import LogitsContext

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.hosts import V2Host
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.findings import method_place
from lpkit_conformance.oracle.verify import default_host
from lpkit_conformance.programs.generate import Finish, Step
from lpkit_conformance.results import Failed

Look = Callable[[], dict[str, Any]]

CONTEXT = (
    "expanded_idx_mapping",
    "idx_mapping",
    "idx_mapping_np",
    "expanded_local_pos",
    "input_ids",
    "pos",
    "seq_lens_upper_bound_np",
)


class LP507(Check):
    """The plugin does not modify the engine's data.

    All processors of an engine get the same `BatchUpdate` (V1), the same `LogitsContext` and the same buffers of
    request state (V2).

    Why: an update whose `removed` was popped is incomplete for the next processor; a position that was incremented
    in place shifts every later processor, and the sampler, by one.

    Fix: copy before you change: `pos = ctx.pos + 1`, not `ctx.pos += 1`.
    """

    code, name, requires = "LP507", "leaves-engine-data", ("LP101", "LP301")

    def run(self, subject: PluginUnderTest) -> str | None:
        host = default_host(subject, 8)
        if isinstance(host, V2Host):
            self._watch_v2(subject, host)
        else:
            self._watch_v1(subject, host.processor)
        fewer = [Finish("r0"), Finish("r4"), Finish("r5"), Step(2)]
        for _ in host.run([*mixed_arrivals(6), Step(2), *fewer, *mixed_arrivals(2, "s"), Step(2)]):
            pass
        return None

    def _watch_v1(self, subject: PluginUnderTest, processor: Any) -> None:
        original = processor.update_state

        def update_state(update: Any) -> None:
            def look() -> dict[str, Any]:
                if update is None:
                    return {}
                return {f"BatchUpdate.{name}": list(getattr(update, name)) for name in ("removed", "added", "moved")}

            self._call(subject, "update_state", look, lambda: original(update))

        processor.update_state = update_state

    def _watch_v2(self, subject: PluginUnderTest, host: V2Host) -> None:
        state, processor = host.slots.state, host.processor
        add_request, flush, apply = processor.add_request, processor.apply_staged_writes, processor.apply

        def buffers() -> dict[str, Any]:
            found = {
                f"req_states.{name}.gpu": getattr(state, name).gpu.clone() for name in ("all_token_ids", "total_len")
            }
            for name in ("prompt_len", "prefill_len"):
                found[f"req_states.{name}.np"] = getattr(state, name).np.copy()
            return found

        def apply_and_look(logits: torch.Tensor, ctx: LogitsContext) -> Any:
            def look() -> dict[str, Any]:
                return buffers() | {f"ctx.{name}": copied(getattr(ctx, name)) for name in CONTEXT}

            return self._call(subject, "apply", look, lambda: apply(logits, ctx))

        processor.add_request = lambda slot, params: self._call(
            subject, "add_request", buffers, lambda: add_request(slot, params)
        )
        processor.apply_staged_writes = lambda: self._call(subject, "apply_staged_writes", buffers, flush)
        processor.apply = apply_and_look

    def _call(self, subject: PluginUnderTest, method: str, look: Look, call: Callable[[], Any]) -> Any:
        before = look()
        result = call()
        after = look()
        for name, value in before.items():
            if not same(value, after[name]):
                raise Failed(
                    f"{method} changed {name}, which other processors read too",
                    {"method": method},
                    shown(value),
                    shown(after[name]),
                    place=method_place(subject.cls, method),
                )
        return result


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value.copy()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    # Lists of tuples that hold live lists: the items must be the same objects.
    return len(one) == len(other) and all(
        a is b or (type(a) is int and a == b) for a, b in zip(one, other, strict=True)
    )


def shown(value: Any) -> str:
    return str(value.tolist() if isinstance(value, torch.Tensor | np.ndarray) else value)[:200]
