"""The structure of a trace, equal when a workload is recorded again: everything except the sampled tokens."""

from __future__ import annotations

import json
from typing import Any

from lpkit_conformance.traces.codec import dumps
from lpkit_conformance.traces.schema import Trace, V1Step, V2Step


def structure(trace: Trace) -> dict[str, Any]:
    """A plain, comparable summary of ``trace``.

    The engine's version is left out, so that a new engine can be compared with the shipped trace; token ids are
    left out because they may differ between processors in the last bit of a logit. Everything else is a function
    of the scheduler: lengths, settings, events, their order, and how many tokens each step committed.
    """
    header, *steps = (json.loads(line) for line in dumps(trace).splitlines())
    for step in steps:
        step["tokens"] = {name: len(ids) for name, ids in step["tokens"].items()}
        for call in step.get("applies", ()):
            del call["inputs"]
    return {
        "runner": trace.runner,
        "workload": trace.workload,
        "driver": trace.engine.driver,
        "runner_class": trace.engine.runner_class,
        "settings": header["settings"],
        "requests": {name: request.prompt_len for name, request in trace.requests.items()},
        "events": sorted({kind for step in trace.steps for kind in kinds(step)}),
        "steps": steps,
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
