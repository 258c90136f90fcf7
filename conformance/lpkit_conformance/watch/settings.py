"""Settings of the watcher: the defaults, or a TOML file."""

from __future__ import annotations

from pathlib import Path

import pydantic
from lpkit._nearest import suggest
from lpkit._toml import tomllib
from pydantic import Field

ON = frozenset({"1", "true", "on", "yes"})
"""Values of ``LPKIT_WATCH`` that mean the defaults."""


class WatchSettingsError(ValueError):
    """Error in the settings; the message names the file and the key."""


class WatchSettings(pydantic.BaseModel, frozen=True, strict=True, extra="forbid"):
    """The cost and the output of the watcher.

    Attributes:
        budget: the share of step time that the watcher may take. Above it, no step is sampled until time has passed.
        rate: the share of steps that is sampled where the budget allows it.
        rows: rows compared per processor in a sampled step.
        steps: steps that a trace holds.
        directory: the folder for all runs; empty: a folder in the system's temporary folder.
        max_bytes: the limit for all files of a run.
        traces: files per processor and kind of violation.
        values: show the values of requests' arguments and the texts of exceptions in logs and files.
        routes: add the HTTP routes to the server.
        quarantine_after: with ``LPKIT_QUARANTINE``, exceptions of a processor after which it is off for good.
        interval: seconds between writes of the numbers that the routes show.
        log_every: seconds between log lines with the same numbers.
        arguments: by class (``module:Class``), the ``extra_args`` that switch it on. A request with none of them does
            not use the class. Classes on lpkit's bases need no entry.
    """

    budget: float = Field(default=0.01, ge=0, le=1)
    rate: float = Field(default=1.0, ge=0, le=1)
    rows: int = Field(default=16, ge=1, le=4096)
    steps: int = Field(default=64, ge=1, le=4096)
    directory: str = ""
    max_bytes: int = Field(default=64 * 2**20, ge=0, le=2**40)
    traces: int = Field(default=2, ge=0, le=1000)
    values: bool = False
    quarantine_after: int = Field(default=10, ge=1, le=2**31)
    routes: bool = True
    interval: float = Field(default=5.0, ge=0.1, le=3600)
    log_every: float = Field(default=600.0, ge=1, le=86400)
    arguments: dict[str, list[str]] = Field(default_factory=dict)


def read(value: str) -> WatchSettings:
    """Return the settings for a value of ``LPKIT_WATCH``: the defaults, or those in the file that it names.

    Raises:
        WatchSettingsError: the file cannot be read, or does not hold settings.
    """
    if value.lower() in ON:
        return WatchSettings()
    try:
        return WatchSettings.model_validate(tomllib.loads(Path(value).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise WatchSettingsError(f"LPKIT_WATCH={value} is neither 1 nor a readable file: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise WatchSettingsError(f"{value}: not TOML: {error}") from None
    except pydantic.ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        problem = f"{key}: {wrong['msg']}, not {wrong['input']!r}"
        if wrong["type"] == "extra_forbidden":
            problem = f"unknown key {key!r}; {suggest(key, WatchSettings.model_fields)}"
        raise WatchSettingsError(f"{value}: {problem}") from None
