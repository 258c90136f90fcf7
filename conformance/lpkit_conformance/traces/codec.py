"""Traces as JSON Lines. Reading is strict: an unknown key or a wrong type is an error that names the line."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lpkit._nearest import did_you_mean
from pydantic import TypeAdapter, ValidationError

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces import schema
from lpkit_conformance.traces.schema import SCHEMA, Header, Trace, V1Step, V2Step
from lpkit_conformance.vllm_api.runners import V1

KEYS = {key for record in vars(schema).values() if is_dataclass(record) for key in record.__dataclass_fields__}
"""Keys of the records of a file."""

LEFT_OUT = frozenset({"fresh", "lists", "placeholders"})
"""Keys that a file has only where the value is not the usual one."""


class Wrong(Exception):
    """An error in a trace, before its file and line are known."""


def loads(text: str, path: str | None = None) -> Trace:
    """Parse a trace file's text. ``path`` is only for messages. Raises TraceError; the meaning is not checked."""
    number, lines, steps = 1, text.splitlines(), []
    try:
        if not lines:
            raise Wrong("the file is empty; expected a header line")
        head = _read(dict[str, Any], lines[0])
        version, announced = head.pop("schema", None), head.pop("steps", None)
        if version != SCHEMA:
            raise Wrong(f"schema is {version!r}; this version of lpkit reads {SCHEMA!r}")
        header = _read(Header, json.dumps(head))
        if announced != len(lines) - 1:
            raise Wrong(f"the header announces {announced} steps, but {len(lines) - 1} lines follow")
        kind = V1Step if header.runner == V1 else V2Step
        for line in lines[1:]:
            number += 1
            steps.append(_read(kind, line))
    except Wrong as wrong:
        raise TraceError(str(wrong), path=path, line=number) from None
    fields: dict[str, Any] = {**vars(header), f"{header.runner}_steps": tuple(steps)}
    return Trace(**fields, path=path)


def dumps(trace: Trace) -> str:
    """Return the file's text: the header, then one line per step, each ending with a newline."""
    head = {name: getattr(trace, name) for name in Header.__dataclass_fields__}
    lines = [{"schema": SCHEMA, **head, "steps": len(trace.steps)}, *trace.steps]
    return "".join(json.dumps(line, separators=(",", ":"), default=_plain) + "\n" for line in lines)


def write(trace: Trace, path: Path) -> None:
    """Write the trace so that a reader never sees half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(dumps(trace), encoding="utf-8", newline="\n")
    unfinished.replace(path)


def _plain(record: Any) -> dict[str, Any]:
    """Return a record of the schema for ``json``."""
    fields = {name: value for name, value in vars(record).items() if value or name not in LEFT_OUT}
    if "discarded" in fields:
        fields["discarded"] = [name for name in dict.fromkeys(record.rows) if name in record.discarded]
    return fields


def _read(kind: Any, line: str) -> Any:
    try:
        return _adapter(kind).validate_json(line)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in wrong["loc"]).lstrip(".")
    if wrong["type"] == "unexpected_keyword_argument":
        key = place.rpartition(".")[2]
        raise Wrong(f"unknown key {place!r}; {did_you_mean(key, KEYS - {key})}".removesuffix("; "))
    problem = f"{place or 'the line'}: {wrong['msg']}"
    if wrong["type"] not in ("missing", "json_invalid"):
        got = json.dumps(wrong["input"])
        problem += f", not {got if len(got) <= 40 else got[:37] + '...'}"
    raise Wrong(problem)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
