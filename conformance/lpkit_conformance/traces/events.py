"""The kinds of events in a step of a trace."""

from __future__ import annotations

from lpkit_conformance.traces.schema import V1Step, V2Step


def kinds(step: V1Step | V2Step) -> set[str]:
    """The kinds of events in a step, by the names the documentation uses."""
    if isinstance(step, V2Step):
        present_by_kind = {
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
        present_by_kind = {
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
    return {kind for kind, present in present_by_kind.items() if present}
