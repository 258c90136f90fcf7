"""Settings of the watcher: the defaults, or a TOML file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lpkit._nearest import suggest

ON = frozenset({"1", "true", "on", "yes"})
"""Values of ``LPKIT_WATCH`` that mean the defaults."""


class WatchSettingsError(ValueError):
    """Error in the settings; the message names the file and the key."""


@dataclass(frozen=True)
class WatchSettings:
    """The cost and the output of the watcher.

    Attributes:
        budget: the share of step time that the watcher may take. Above it, no step is sampled until time has passed.
        rate: the share of steps that is sampled where the budget allows it.
        rows: rows compared per processor in a sampled step.
        steps: steps that a trace holds.
        directory: the folder for all runs; empty: a folder in the system's temporary folder.
        max_bytes: the limit for all files of a run.
        traces: files per processor and kind of violation.
        values: show the values of requests' arguments in logs and files.
        routes: add the HTTP routes to the server.
        interval: seconds between writes of the numbers that the routes show.
        log_every: seconds between log lines with the same numbers.
        arguments: by class (``module:Class``), the ``extra_args`` that switch it on. A request with none of them does
            not use the class. Classes on lpkit's bases need no entry.
    """

    budget: float = 0.01
    rate: float = 1.0
    rows: int = 16
    steps: int = 64
    directory: str = ""
    max_bytes: int = 64 * 2**20
    traces: int = 2
    values: bool = False
    routes: bool = True
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


def read(value: str) -> WatchSettings:
    """Return the settings for a value of ``LPKIT_WATCH``: the defaults, or those in the file that it names.

    Raises:
        WatchSettingsError: the file cannot be read, or does not hold settings.
    """
    if value.lower() in ON:
        return WatchSettings()
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return parse(tomllib.loads(Path(value).read_text(encoding="utf-8")), value)
    except (OSError, UnicodeDecodeError) as error:
        raise WatchSettingsError(f"LPKIT_WATCH={value} is neither 1 nor a readable file: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise WatchSettingsError(f"{value}: not TOML: {error}") from None


def parse(data: Mapping[str, Any], path: str) -> WatchSettings:
    """Return settings from the keys of the file at ``path``.

    Raises:
        WatchSettingsError: a key is unknown, or its value has the wrong type or range.
    """
    names = [item.name for item in fields(WatchSettings)]
    given: dict[str, Any] = {}
    for key, value in data.items():
        if key not in names:
            raise WatchSettingsError(f"{path}: unknown key {key!r}; {suggest(key, names)}")
        given[key] = _arguments(value, path) if key == "arguments" else _value(key, value, path)
    return WatchSettings(**given)


def _value(key: str, value: Any, path: str) -> Any:
    kind = type(getattr(WatchSettings, key))
    fits = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise WatchSettingsError(f"{path}: {key} must be a {kind.__name__}, not {value!r}")
    if key in _RANGES:
        low, high = _RANGES[key]
        if not low <= value <= high:
            raise WatchSettingsError(f"{path}: {key} must be from {low} to {high}, not {value!r}")
    return kind(value)


def _arguments(value: Any, path: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise WatchSettingsError(f'{path}: arguments must be a table of classes: "module:Class" = ["argument"]')
    for name, keys in value.items():
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise WatchSettingsError(f"{path}: arguments of {name!r} must be a list of strings, not {keys!r}")
    return {name: tuple(keys) for name, keys in value.items()}
