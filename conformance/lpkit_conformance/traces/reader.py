"""Reads a trace strictly: an unknown key or a wrong type is an error that names the line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lpkit_conformance.errors import TraceError
from lpkit_conformance.traces.schema import (
    SCHEMA,
    Added,
    Apply,
    EngineInfo,
    Move,
    Placement,
    Trace,
    TraceRequest,
    Update,
    V1Step,
    V2Step,
)
from lpkit_conformance.vllm_api.runners import V1, V2

T = TypeVar("T")
_SETTINGS = ("max_num_seqs", "max_model_len", "vocab_size")


def loads(text: str, path: str | None = None) -> Trace:
    """Parse a trace file's text. ``path`` is only for messages. Raises TraceError; the meaning is not checked."""
    lines = text.splitlines()
    if not lines:
        raise TraceError("the file is empty; expected a header line", path=path, line=1)
    here = _Line(path, 1)
    head = here.json(lines[0])
    schema = head.get("schema")
    if schema != SCHEMA:
        raise here.error(f"schema is {schema!r}; this version of lpkit reads {SCHEMA!r}")
    keys = ("schema", "runner", "workload", "engine", "settings", "token_ids", "requests", "steps")
    here.keys(head, "the header", keys)
    runner = here.choice(head["runner"], "runner", (V1, V2))
    count = here.count(head["steps"], "steps")
    if count != len(lines) - 1:
        raise here.error(f"the header announces {count} steps, but {len(lines) - 1} lines follow")
    v1: list[V1Step] = []
    v2: list[V2Step] = []
    for number, line in enumerate(lines[1:], start=2):
        step = _Line(path, number)
        if runner == V1:
            v1.append(_v1(step, step.json(line)))
        else:
            v2.append(_v2(step, step.json(line)))
    return Trace(
        runner=runner,
        workload=here.text(head["workload"], "workload"),
        engine=_engine(here, head["engine"]),
        settings=_settings(here, head["settings"]),
        token_ids=here.choice(head["token_ids"], "token_ids", ("remapped", "verbatim")),
        requests=_requests(here, head["requests"]),
        v1_steps=tuple(v1),
        v2_steps=tuple(v2),
        path=path,
    )


class _Line:
    """A line of a file: typed access to its values, with errors that name file and line."""

    def __init__(self, path: str | None, line: int) -> None:
        self.path, self.line = path, line

    def error(self, message: str) -> TraceError:
        return TraceError(message, path=self.path, line=self.line)

    def json(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self.error(f"not JSON: {error}") from None
        return self.object(value, "the line")

    def object(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(f"{what} is {_show(value)}; expected a JSON object")
        return value

    def keys(
        self, value: Mapping[str, Any], what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> None:
        if missing := [key for key in required if key not in value]:
            raise self.error(f"{what} lacks {', '.join(map(repr, missing))}")
        if unknown := [key for key in value if key not in required and key not in optional]:
            known = ", ".join((*required, *optional))
            raise self.error(f"{what} has unknown keys {', '.join(map(repr, unknown))}; known are {known}")

    def count(self, value: Any, what: str, least: int = 0) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(f"{what} is {_show(value)}; expected an integer of at least {least}")
        return value

    def text(self, value: Any, what: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.error(f"{what} is {_show(value)}; expected a non-empty string")
        return value

    def flag(self, value: Any, what: str) -> bool:
        if not isinstance(value, bool):
            raise self.error(f"{what} is {_show(value)}; expected true or false")
        return value

    def choice(self, value: Any, what: str, allowed: tuple[str, ...]) -> Any:
        if value not in allowed:
            raise self.error(f"{what} is {_show(value)}; expected one of {', '.join(allowed)}")
        return value

    def list(self, value: Any, what: str, item: Callable[[Any, str], T]) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise self.error(f"{what} is {_show(value)}; expected a list")
        return tuple(item(entry, f"{what}[{index}]") for index, entry in enumerate(value))

    def counts(self, value: Any, what: str, least: int = 0) -> tuple[int, ...]:
        return self.list(value, what, lambda entry, name: self.count(entry, name, least))

    def texts(self, value: Any, what: str) -> tuple[str, ...]:
        return self.list(value, what, self.text)


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _engine(here: _Line, value: Any) -> EngineInfo:
    engine = here.object(value, "engine")
    here.keys(engine, "engine", ("name", "version", "driver", "runner_class"))
    return EngineInfo(
        name=here.text(engine["name"], "engine.name"),
        version=here.text(engine["version"], "engine.version"),
        driver=here.choice(engine["driver"], "engine.driver", ("engine", "input_batch")),
        runner_class=here.text(engine["runner_class"], "engine.runner_class"),
    )


def _settings(here: _Line, value: Any) -> Mapping[str, Any]:
    # Open on purpose: other engines have other settings. These three size a replay.
    settings = here.object(value, "settings")
    for name in _SETTINGS:
        if name not in settings:
            raise here.error(f"settings lacks {name!r}")
        here.count(settings[name], f"settings.{name}", 1)
    return settings


def _requests(here: _Line, value: Any) -> Mapping[str, TraceRequest]:
    requests: dict[str, TraceRequest] = {}
    for name, entry in here.object(value, "requests").items():
        what = f"requests.{name}"
        here.keys(here.object(entry, what), what, ("prompt_len", "prompt"))
        prompt_len = here.count(entry["prompt_len"], f"{what}.prompt_len", 1)
        prompt = None if entry["prompt"] is None else here.counts(entry["prompt"], f"{what}.prompt")
        if prompt is not None and len(prompt) != prompt_len:
            raise here.error(f"{what} has {len(prompt)} prompt ids; expected prompt_len = {prompt_len}")
        requests[name] = TraceRequest(name, prompt_len, prompt)
    return requests


def _tokens(here: _Line, value: Any) -> Mapping[str, tuple[int, ...]]:
    tokens = here.object(value, "tokens")
    return {name: here.counts(ids, f"tokens.{name}") for name, ids in tokens.items()}


def _v1(here: _Line, line: dict[str, Any]) -> V1Step:
    here.keys(line, "the step", ("step", "update", "rows", "applied", "discarded", "tokens"), ("lists", "placeholders"))
    lists = here.object(line.get("lists", {}), "lists")
    placeholders = here.object(line.get("placeholders", {}), "placeholders")
    return V1Step(
        step=here.count(line["step"], "step"),
        update=None if line["update"] is None else _update(here, here.object(line["update"], "update")),
        rows=here.texts(line["rows"], "rows"),
        applied=here.flag(line["applied"], "applied"),
        discarded=frozenset(here.texts(line["discarded"], "discarded")),
        tokens=_tokens(here, line["tokens"]),
        lists={name: here.count(length, f"lists.{name}") for name, length in lists.items()},
        placeholders={name: here.count(n, f"placeholders.{name}", 1) for name, n in placeholders.items()},
    )


def _update(here: _Line, update: dict[str, Any]) -> Update:
    here.keys(update, "update", ("batch_size", "removed", "added", "moved"))
    return Update(
        batch_size=here.count(update["batch_size"], "update.batch_size"),
        removed=here.counts(update["removed"], "update.removed"),
        added=here.list(update["added"], "update.added", lambda entry, what: _added(here, entry, what)),
        moved=here.list(update["moved"], "update.moved", lambda entry, what: _move(here, entry, what)),
    )


def _added(here: _Line, value: Any, what: str) -> Added:
    entry = here.object(value, what)
    here.keys(entry, what, ("row", "request", "outputs"), ("fresh",))
    return Added(
        row=here.count(entry["row"], f"{what}.row"),
        request=here.text(entry["request"], f"{what}.request"),
        outputs=here.count(entry["outputs"], f"{what}.outputs"),
        fresh=here.flag(entry.get("fresh", False), f"{what}.fresh"),
    )


def _move(here: _Line, value: Any, what: str) -> Move:
    if not isinstance(value, list) or len(value) != 3:
        raise here.error(f'{what} is {_show(value)}; expected [source, target, "->" or "<->"]')
    return Move(
        source=here.count(value[0], f"{what} source"),
        target=here.count(value[1], f"{what} target"),
        kind=here.choice(value[2], f"{what} kind", ("->", "<->")),
    )


def _v2(here: _Line, line: dict[str, Any]) -> V2Step:
    here.keys(line, "the step", ("step", "freed", "added", "flush", "applies", "tokens"))
    return V2Step(
        step=here.count(line["step"], "step"),
        freed=here.texts(line["freed"], "freed"),
        added=here.list(line["added"], "added", lambda entry, what: _placement(here, entry, what)),
        flush=here.flag(line["flush"], "flush"),
        applies=here.list(line["applies"], "applies", lambda entry, what: _apply(here, entry, what)),
        tokens=_tokens(here, line["tokens"]),
    )


def _placement(here: _Line, value: Any, what: str) -> Placement:
    entry = here.object(value, what)
    here.keys(entry, what, ("request", "slot", "prompt_len", "prefill_len"))
    return Placement(
        request=here.text(entry["request"], f"{what}.request"),
        slot=here.count(entry["slot"], f"{what}.slot"),
        prompt_len=here.count(entry["prompt_len"], f"{what}.prompt_len", 1),
        prefill_len=here.count(entry["prefill_len"], f"{what}.prefill_len", 1),
    )


def _apply(here: _Line, value: Any, what: str) -> Apply:
    entry = here.object(value, what)
    here.keys(entry, what, ("rows", "pos", "local", "inputs", "bounds", "discarded"))
    return Apply(
        rows=here.texts(entry["rows"], f"{what}.rows"),
        pos=here.counts(entry["pos"], f"{what}.pos"),
        local=here.counts(entry["local"], f"{what}.local"),
        inputs=here.counts(entry["inputs"], f"{what}.inputs", -1),
        bounds=here.counts(entry["bounds"], f"{what}.bounds"),
        discarded=frozenset(here.texts(entry["discarded"], f"{what}.discarded")),
    )
