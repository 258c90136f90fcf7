"""``lpkit check``: run the conformance suite."""

from __future__ import annotations

import enum
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.errors import OutputError
from lpkit_conformance.report import formats
from lpkit_conformance.settings.hosts import HOSTS

from lpkit_cli.commands.options import Device, Host, Targets, Wanted, takes_formats
from lpkit_cli.console import rewrite_line, write

if TYPE_CHECKING:
    from lpkit_conformance.results import Report
    from lpkit_conformance.suite.supervisor import Progress


class Engine(str, enum.Enum):
    reference = "reference"
    vllm = "vllm"


def register(app: typer.Typer) -> None:
    app.command("check")(takes_formats(check))


def check(
    targets: Targets = None,
    *,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="JSON", help='SamplingParams that switch the plugin on: {"extra_args": {...}}'),
    ] = None,
    host: Annotated[
        Host | None, typer.Option(help="Runner to check on; by default every one whose interface the class has.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Run in lpkit's reference runtime, or run the checks LP9 in a real vLLM on the CPU.")
    ] = Engine.reference,
    device: Annotated[
        Device, typer.Option(help="Device of the tensors; auto is CUDA if a GPU is present.")
    ] = Device.cpu,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Run this check (or family: LP2) and what it requires.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODE", help="Skip this check or family.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for the simulated model and the generated programs.")] = 0,
    wanted: Wanted,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="DIR", help="Folder for saved failures (see lpkit replay); default .lpkit/failures."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every check with its time.")] = False,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a call of the plugin may take (25 by default), or a step of an engine (120).",
            min=1.0,
        ),
    ] = None,
) -> None:
    """Check that processors do what vLLM relies on.

    Replays recorded engine traces and generated programs and compares every request with the same request
    alone. Exit code 0: conformant; 1: a check failed; 2: could not run, or no case made the plugin act.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # only the processes that run plugins need it; importing it takes seconds
    from lpkit_conformance import run

    hosts = None if host is None else tuple(HOSTS) if host == "all" else (HOSTS[host].name,)
    options = run.Options(
        cases=tuple(case or ()),
        hosts=hosts,
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        seed=seed,
        device=device.value,
        limit=limit,
        engine=engine.value,
    )
    report = _save(run.run(targets or (), options, progress_for=_progress), save)
    _show(report, wanted, verbose)
    raise typer.Exit(report.exit_code)


def _save(report: Report, folder: Path | None) -> Report:
    """Save failures; the default folder may be read-only."""
    from lpkit_conformance import failures

    try:
        return failures.save(report, folder or failures.FOLDER)
    except OSError as error:
        if folder is None:
            return report
        raise OutputError(f"cannot write to {folder}: {error.strerror}") from None


def _progress(target: str) -> Progress:
    """A line that is overwritten."""
    from lpkit_conformance.suite.supervisor import Progress

    return Progress(
        lambda label, done, total: rewrite_line(f"{target}: {done}/{total} {label}"), lambda _: rewrite_line()
    )


def _show(report: Report, wanted: Wanted, verbose: bool) -> None:
    if Path("-") not in wanted.files.values():
        formats.write(wanted.style or ("rich" if sys.stdout.isatty() else "plain"), report, sys.stdout, verbose)
    for name, path in wanted.files.items():
        write(path, partial(formats.write, name, report))
