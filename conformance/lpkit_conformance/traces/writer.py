"""Writes a trace as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lpkit_conformance.traces.schema import SCHEMA, Trace, Update, V1Step, V2Step


def dumps(trace: Trace) -> str:
    """Return the file's text: the header, then one line per step, each ending with a newline."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in _lines(trace))


def write(trace: Trace, path: Path) -> None:
    """Write the trace so that a reader never sees half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(dumps(trace), encoding="utf-8", newline="\n")
    unfinished.replace(path)


def _lines(trace: Trace) -> Iterator[dict[str, Any]]:
    engine = trace.engine
    yield {
        "schema": SCHEMA,
        "runner": trace.runner,
        "workload": trace.workload,
        "engine": {
            "name": engine.name,
            "version": engine.version,
            "driver": engine.driver,
            "runner_class": engine.runner_class,
        },
        "settings": dict(trace.settings),
        "token_ids": trace.token_ids,
        "requests": {
            name: {
                "prompt_len": request.prompt_len,
                "prompt": None if request.prompt is None else list(request.prompt),
            }
            for name, request in trace.requests.items()
        },
        "steps": len(trace.steps),
    }
    for v1 in trace.v1_steps:
        yield _v1(v1)
    for v2 in trace.v2_steps:
        yield _v2(v2)


def _v1(step: V1Step) -> dict[str, Any]:
    line: dict[str, Any] = {
        "step": step.step,
        "update": None if step.update is None else _update(step.update),
        "rows": list(step.rows),
        "applied": step.applied,
        "discarded": _in_order(step.discarded, step.rows),
        "tokens": _tokens(step.tokens),
    }
    if step.lists:
        line["lists"] = dict(step.lists)
    if step.placeholders:
        line["placeholders"] = dict(step.placeholders)
    return line


def _update(update: Update) -> dict[str, Any]:
    added: list[dict[str, Any]] = []
    for entry in update.added:
        item: dict[str, Any] = {"row": entry.row, "request": entry.request, "outputs": entry.outputs}
        if entry.fresh:
            item["fresh"] = True
        added.append(item)
    return {
        "batch_size": update.batch_size,
        "removed": list(update.removed),
        "added": added,
        "moved": [[move.source, move.target, move.kind] for move in update.moved],
    }


def _v2(step: V2Step) -> dict[str, Any]:
    return {
        "step": step.step,
        "freed": list(step.freed),
        "added": [
            {
                "request": added.request,
                "slot": added.slot,
                "prompt_len": added.prompt_len,
                "prefill_len": added.prefill_len,
            }
            for added in step.added
        ],
        "flush": step.flush,
        "applies": [
            {
                "rows": list(call.rows),
                "pos": list(call.pos),
                "local": list(call.local),
                "inputs": list(call.inputs),
                "bounds": list(call.bounds),
                "discarded": _in_order(call.discarded, call.rows),
            }
            for call in step.applies
        ],
        "tokens": _tokens(step.tokens),
    }


def _in_order(names: frozenset[str], rows: tuple[str, ...]) -> list[str]:
    return [name for name in dict.fromkeys(rows) if name in names]


def _tokens(tokens: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {name: list(ids) for name, ids in tokens.items()}
