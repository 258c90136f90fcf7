"""What to watch and at what cost: from the environment, or a TOML file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lpkit._nearest import suggest

from lpkit_conformance.watch.switch import ON, SWITCH


class SettingsError(ValueError):
    """Settings that cannot be read; the message names the file and the key."""


@dataclass(frozen=True)
class Settings:
    """How a server is watched.

    Attributes:
        budget: the watcher's share of the time of steps; beyond it no step is sampled until time has passed.
        rate: the share of steps that is sampled where the budget allows it.
        rows: rows that are compared in a sampled step, per processor.
        steps: steps whose batch updates are kept, for traces.
        directory: holds a folder per run of a server; empty: in the system's folder for temporary files.
        max_bytes: of all files of a run.
        traces: files per processor and kind of violation.
        values: whether logs and files show the values of requests' arguments.
        interval: seconds between writes of the numbers that the endpoints show.
        log_every: seconds between lines in the log with the same numbers.
        arguments: by class (``module:Class``), the ``extra_args`` that switch it on: a request with none of them does
            not use it. Classes of lpkit need no entry.
    """

    budget: float = 0.01
    rate: float = 1.0
    rows: int = 16
    steps: int = 64
    directory: str = ""
    max_bytes: int = 64 * 2**20
    traces: int = 2
    values: bool = False
    interval: float = 5.0
    log_every: float = 600.0
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_RANGES: Mapping[str, tuple[float, float]] = {
    "budget": (0.0, 1.0),
    "rate": (0.0, 1.0),
    "rows": (1, 4096),
    "steps": (1, 4096),
    "max_bytes": (0, 2**40),
    "traces": (0, 1000),
    "interval": (0.1, 3600.0),
    "log_every": (1.0, 86400.0),
}


def read(environment: Mapping[str, str]) -> Settings:
    """The settings that ``LPKIT_WATCH`` names.

    Raises:
        SettingsError: the file cannot be read, or does not hold settings.
    """
    value = environment.get(SWITCH, "").strip()
    if value.lower() in ON:
        return Settings()
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return parse(tomllib.loads(Path(value).read_text(encoding="utf-8")), value)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{SWITCH}={value} is neither 1 nor a file that can be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{value}: not TOML: {error}") from None


def parse(data: Mapping[str, Any], path: str) -> Settings:
    """Settings from a file's keys.

    Raises:
        SettingsError: an unknown key, or a value of the wrong type or range.
    """
    known = {item.name: item for item in fields(Settings)}
    given: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            raise SettingsError(f"{path}: unknown key {key!r}; {suggest(key, known)}")
        given[key] = _arguments(value, path) if key == "arguments" else _value(key, value, path)
    return Settings(**given)


def _value(key: str, value: Any, path: str) -> Any:
    kind = type(getattr(Settings, key))
    fits = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise SettingsError(f"{path}: {key} must be a {kind.__name__}, not {value!r}")
    if key in _RANGES:
        low, high = _RANGES[key]
        if not low <= value <= high:
            raise SettingsError(f"{path}: {key} must be from {low} to {high}, not {value!r}")
    return kind(value)


def _arguments(value: Any, path: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise SettingsError(f'{path}: arguments must be a table of classes: "module:Class" = ["argument"]')
    for name, keys in value.items():
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise SettingsError(f"{path}: arguments of {name!r} must be a list of strings, not {keys!r}")
    return {name: tuple(keys) for name, keys in value.items()}
