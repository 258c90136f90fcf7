"""Traces as JSON Lines. Reading is strict: an unknown key or a wrong type is an error that names the line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces.schema import SCHEMA, Trace, TraceRequest, V1Step, V2Step
from lpkit_conformance.vllm_api.runners import V1

HEADER = ("runner", "workload", "engine", "settings", "token_ids")
"""Fields of a trace that its first line has as they are."""

SIZES = ("max_num_seqs", "max_model_len", "vocab_size")
"""Settings that size a replay. Other engines have other settings, which may be anything."""


class Wrong(Exception):
    """An error in a trace, before its file and line are known."""


def loads(text: str, path: str | None = None) -> Trace:
    """Parse a trace file's text. ``path`` is only for messages. Raises TraceError; the meaning is not checked."""
    number, lines, steps = 1, text.splitlines(), []
    try:
        if not lines:
            raise Wrong("the file is empty; expected a header line")
        header = _header(_parsed(lines[0]), len(lines) - 1)
        kind: Any = V1Step if header["runner"] == V1 else V2Step
        for line in lines[1:]:
            number += 1
            steps.append(_record(kind, _parsed(line), "the step"))
    except Wrong as wrong:
        raise TraceError(str(wrong), path=path, line=number) from None
    header[f"{header['runner']}_steps"] = tuple(steps)
    return Trace(**header, path=path)


def dumps(trace: Trace) -> str:
    """Return the file's text: the header, then one line per step, each ending with a newline."""
    requests = {name: {"prompt_len": item.prompt_len, "prompt": item.prompt} for name, item in trace.requests.items()}
    kept = {name: getattr(trace, name) for name in HEADER}
    lines = [{"schema": SCHEMA, **kept, "requests": requests, "steps": len(trace.steps)}, *trace.steps]
    return "".join(json.dumps(line, separators=(",", ":"), default=_plain) + "\n" for line in lines)


def write(trace: Trace, path: Path) -> None:
    """Write the trace so that a reader never sees half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(dumps(trace), encoding="utf-8", newline="\n")
    unfinished.replace(path)


def _plain(record: Any) -> dict[str, Any]:
    """Return a record of the schema for ``json``; optional fields with their default are left out."""
    found = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, frozenset):
            value = [name for name in dict.fromkeys(record.rows) if name in value]
        if value or "optional" not in item.metadata:
            found[item.name] = value
    return found


def _parsed(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise Wrong(f"not JSON: {error}") from None
    return _object(value, "the line")


def _header(head: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return the arguments of a :class:`Trace` that its first line has."""
    schema = head.get("schema")
    if schema != SCHEMA:
        raise Wrong(f"schema is {schema!r}; this version of lpkit reads {SCHEMA!r}")
    _check_keys(head, "the header", ("schema", *HEADER, "requests", "steps"))
    hints = _hints(Trace)
    found = {name: _value(hints[name], head[name], name) for name in HEADER}
    for name in SIZES:
        if name not in found["settings"]:
            raise Wrong(f"settings lacks {name!r}")
        _value(int, found["settings"][name], f"settings.{name}", 1)
    found["requests"] = {}
    for name, entry in _object(head["requests"], "requests").items():
        request: TraceRequest = _record(TraceRequest, entry, f"requests.{name}", request_id=name)
        if request.prompt is not None and len(request.prompt) != request.prompt_len:
            count = len(request.prompt)
            raise Wrong(f"requests.{name} has {count} prompt ids; expected prompt_len = {request.prompt_len}")
        found["requests"][name] = request
    if _value(int, head["steps"], "steps") != steps:
        raise Wrong(f"the header announces {head['steps']} steps, but {steps} lines follow")
    return found


def _record(kind: Any, value: Any, what: str, **given: Any) -> Any:
    """Return the object as a record of the schema; ``given`` are fields that it does not have itself."""
    entry = _object(value, what)
    wanted = [item for item in fields(kind) if item.name not in given]
    optional = [item.name for item in wanted if "optional" in item.metadata]
    _check_keys(entry, what, [item.name for item in wanted if item.name not in optional], optional)
    before = "" if what == "the step" else f"{what}."
    for item in wanted:
        if item.name in entry:
            least = item.metadata.get("least", 0)
            given[item.name] = _value(_hints(kind)[item.name], entry[item.name], before + item.name, least)
    return kind(**given)


def _value(kind: Any, value: Any, what: str, least: int = 0) -> Any:
    """Return the value as a field of the schema has it; ``least``: of whole numbers."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _record(kind, value, what)
    if NoneType in parts:
        return None if value is None else _value(parts[0], value, what, least)
    if origin is Literal:
        return _expect(value in parts, value, what, f"one of {', '.join(parts)}")
    if origin in (tuple, frozenset):
        _expect(isinstance(value, list), value, what, "a list")
        if parts[0] is int and all(type(entry) is int and entry >= least for entry in value):
            return tuple(value)  # nearly all of a trace
        return origin(_value(parts[0], entry, f"{what}[{n}]", least) for n, entry in enumerate(value))
    if origin is Mapping:
        return {key: _value(parts[1], entry, f"{what}.{key}", least) for key, entry in _object(value, what).items()}
    if kind is int:
        return _expect(type(value) is int and value >= least, value, what, f"an integer of at least {least}")
    if kind is bool:
        return _expect(isinstance(value, bool), value, what, "true or false")
    if kind is str:
        return _expect(isinstance(value, str) and value, value, what, "a non-empty string")
    _expect(isinstance(value, list) and len(value) == len(_hints(kind)), value, what, '[source, target, "->" or "<->"]')
    entries = zip(_hints(kind).items(), value, strict=True)
    return kind(*(_value(part, entry, f"{what} {name}") for (name, part), entry in entries))


def _object(value: Any, what: str) -> dict[str, Any]:
    found: dict[str, Any] = _expect(isinstance(value, dict), value, what, "a JSON object")
    return found


def _expect(fits: Any, value: Any, what: str, expected: str) -> Any:
    if fits:
        return value
    text = json.dumps(value)
    raise Wrong(f"{what} is {text if len(text) <= 40 else text[:37] + '...'}; expected {expected}")


def _check_keys(value: Mapping[str, Any], what: str, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    if missing := [key for key in required if key not in value]:
        raise Wrong(f"{what} lacks {', '.join(map(repr, missing))}")
    if unknown := [key for key in value if key not in required and key not in optional]:
        known = ", ".join((*required, *optional))
        raise Wrong(f"{what} has unknown keys {', '.join(map(repr, unknown))}; known are {known}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
