"""The structure of a trace, equal when a workload is recorded again: everything except the sampled tokens."""

from __future__ import annotations

from typing import Any

from lpkit_conformance.traces.schema import Trace, V1Step, V2Step


def structure(trace: Trace) -> dict[str, Any]:
    """A plain, comparable summary of ``trace``.

    The engine's version is left out, so that a new engine can be compared with the shipped trace; token ids are
    left out because they may differ between processors in the last bit of a logit. Everything else is a function
    of the scheduler: lengths, settings, events, their order, and how many tokens each step committed.
    """
    return {
        "runner": trace.runner,
        "workload": trace.workload,
        "driver": trace.engine.driver,
        "runner_class": trace.engine.runner_class,
        "settings": dict(trace.settings),
        "requests": {name: request.prompt_len for name, request in trace.requests.items()},
        "events": sorted({kind for step in trace.steps for kind in kinds(step)}),
        "steps": [_v1(step) for step in trace.v1_steps] + [_v2(step) for step in trace.v2_steps],
    }


def kinds(step: V1Step | V2Step) -> set[str]:
    """The kinds of events in a step, by the names the documentation uses."""
    if isinstance(step, V2Step):
        found = {
            "free": bool(step.freed),
            "add": any(added.prefill_len == added.prompt_len for added in step.added),
            "resume": any(added.prefill_len > added.prompt_len for added in step.added),
            "partial prefill": any(call.discarded for call in step.applies),
            "split": len(step.applies) > 1,
            "draft": any(any(call.local) for call in step.applies),
            "idle": not step.applies,
        }
    else:
        update = step.update
        found = {
            "no update": update is None,
            "remove": update is not None and bool(update.removed),
            "add": update is not None and any(entry.outputs == 0 for entry in update.added),
            "resume": update is not None and any(entry.outputs > 0 for entry in update.added),
            "move": update is not None and any(move.kind == "->" for move in update.moved),
            "swap": update is not None and any(move.kind == "<->" for move in update.moved),
            "empty": update is not None and update.batch_size == 0,
            "partial prefill": bool(step.discarded),
            "idle": not step.applied,
            "cut": bool(step.lists),
            "placeholder": bool(step.placeholders),
            "fresh": update is not None and any(entry.fresh for entry in update.added),
        }
    return {kind for kind, present in found.items() if present}


def _v1(step: V1Step) -> dict[str, Any]:
    update = step.update
    return {
        "update": None
        if update is None
        else (
            update.batch_size,
            update.removed,
            [(entry.row, entry.request, entry.outputs, entry.fresh) for entry in update.added],
            [(move.source, move.target, move.kind) for move in update.moved],
        ),
        "rows": step.rows,
        "applied": step.applied,
        "discarded": sorted(step.discarded),
        "committed": {name: len(ids) for name, ids in step.tokens.items()},
        "lists": dict(step.lists),
        "placeholders": dict(step.placeholders),
    }


def _v2(step: V2Step) -> dict[str, Any]:
    return {
        "freed": step.freed,
        "added": [(p.request, p.slot, p.prompt_len, p.prefill_len) for p in step.added],
        "flush": step.flush,
        "applies": [(c.rows, c.pos, c.local, c.bounds, sorted(c.discarded)) for c in step.applies],
        "committed": {name: len(ids) for name, ids in step.tokens.items()},
    }
