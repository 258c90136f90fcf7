"""Options that commands share, and options made from the table of formats."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from lpkit_conformance.errors import UsageError
from lpkit_conformance.report.formats import FORMATS
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
    from lpkit_conformance.catalogue import all_checks

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


@dataclass(frozen=True)
class Wanted:
    """The formats that a user chose: a style for the terminal, or "", and files."""

    style: str = ""
    files: dict[str, Path] = field(default_factory=dict)


def takes_formats(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``wanted`` of ``command`` by the options of the table of formats."""
    style: Any = enum.Enum("Style", {name: name for name, row in FORMATS.items() if not row.option}, type=str)  # type: ignore[misc]
    options: dict[str, Any] = {
        f"{name}_file": Annotated[Path | None, typer.Option(row.option, metavar="FILE", help=row.help)]
        for name, row in FORMATS.items()
        if row.option
    }
    help_text = "By default rich on a terminal, github under GitHub Actions, plain in a pipe."
    options["style"] = Annotated[style | None, typer.Option("--format", help=help_text)]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        chosen_style = chosen.pop("style")
        files = {name.removesuffix("_file"): path for name, path in chosen.items() if path is not None}
        command(**given, wanted=Wanted(chosen_style.value if chosen_style else "", files))

    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "wanted":
            parameters.append(parameter)
            continue
        parameters += [parameter.replace(name=name, annotation=hint, default=None) for name, hint in options.items()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
