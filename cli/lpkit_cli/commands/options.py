"""Options that commands share."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.errors import UsageError
from lpkit_conformance.settings.hosts import HOSTS, RUNNER_HOSTS

if TYPE_CHECKING:
    Host = str
else:
    Host = enum.Enum("Host", {name: name for name in (*HOSTS, "all")}, type=str)
"""A row of the table of hosts, or all of vLLM's runners."""


def several(texts: list[str] | None) -> tuple[str, ...]:
    """Split values that were given one by one, or separated by commas."""
    return tuple(part.strip() for text in texts or () for part in text.split(",") if part.strip())


def completed_codes(incomplete: str) -> list[tuple[str, str]]:
    """Complete a code in the shell, with its rule; in a list with commas, the last code."""
    from lpkit_conformance.checks.catalogue import all_checks

    before, comma, last = incomplete.rpartition(",")
    checks = (check for check in all_checks(None) if check.code.startswith(last.upper()))
    return [(f"{before}{comma}{check.code}", check.title()) for check in checks]


def hosts_named(texts: list[str] | None) -> tuple[str, ...] | None:
    """Return the hosts of a list; None for an empty list, which leaves the choice to the class.

    Raises:
        UsageError: a host is unknown; the message has the nearest name.
    """
    from lpkit._nearest import did_you_mean

    names = several(texts)
    for name in names:
        if name not in (*HOSTS, "all"):
            raise UsageError(f"there is no host {name!r}", did_you_mean(name, HOSTS) or f"Hosts are {', '.join(HOSTS)}")
    return tuple(name for name in HOSTS if name in (*names, *RUNNER_HOSTS)) if "all" in names else names or None


class EngineChoice(str, enum.Enum):
    """Runtime of a plugin: lpkit's reference runtime, or a tiny real vLLM."""

    reference = "reference"
    vllm = "vllm"


class Device(str, enum.Enum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TARGET]...",
        help="An entry point's name, module:Class or path/to/file.py:Class. Default: the entry points of the "
        "project in the current folder.",
    ),
]

Limit = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a call of the plugin may take (20 by default), or a step of an engine (120).", min=1.0
    ),
]
