"""``lpkit check``: run the conformance suite."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lpkit_cli.console import rewrite_line, write

if TYPE_CHECKING:
    from lpkit_conformance.results import Report
    from lpkit_conformance.suite.supervisor import Progress


class Host(str, Enum):
    v1 = "v1"
    v2 = "v2"
    all = "all"


class Engine(str, Enum):
    reference = "reference"
    vllm = "vllm"


class Device(str, Enum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Format(str, Enum):
    rich = "rich"
    plain = "plain"
    github = "github"


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TARGET]...",
        help="An entry point's name, module:Class or path/to/file.py:Class. None: the entry points of the "
        "project in the current folder.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("check")(check)


def check(
    targets: Targets = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="JSON", help='SamplingParams that switch the plugin on: {"extra_args": {...}}'),
    ] = None,
    host: Annotated[
        Host | None, typer.Option(help="Runner to judge on; by default those whose interface the class has.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Judge in lpkit's reference runtime, or by the checks LP9 in a real vLLM on the CPU.")
    ] = Engine.reference,
    device: Annotated[
        Device, typer.Option(help="Where tensors live; auto is CUDA when a GPU is present.")
    ] = Device.cpu,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Run this check (or family: LP2) and what it requires.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODE", help="Leave this check or family out.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed is another model and other random programs.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; - is standard output.")
    ] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit-xml", metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    style: Annotated[
        Format | None, typer.Option("--format", help="By default rich on a terminal, plain in a pipe.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", help="Where failures go for lpkit replay; by default .lpkit/failures."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every check with its time.")] = False,
    limit: Annotated[float, typer.Option(help="Seconds that one check may take.", min=1.0)] = 120.0,
) -> None:
    """Check that processors do what vLLM relies on.

    Replays recorded engine traces and generated programs and compares every request with the same request
    alone. Exit code 0: conformant; 1: a check failed; 2: could not run, or no case made the plugin act.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # only the processes that run plugins need it; importing it takes seconds
    from lpkit_conformance import run

    hosts = None if host is None else ("v1", "v2") if host is Host.all else (host.value,)
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
    _show(report, style, verbose, quiet=json_file is not None and str(json_file) == "-")
    _write(report, json_file, junit_file)
    raise typer.Exit(report.exit_code)


def _save(report: Report, folder: Path | None) -> Report:
    """Save failures; a folder that nobody asked for may be read-only."""
    from lpkit_conformance import failures
    from lpkit_conformance.errors import OutputError

    try:
        return failures.save(report, folder or failures.FOLDER)
    except OSError as error:
        if folder is None:
            return report
        raise OutputError(f"cannot write to {folder}: {error.strerror}") from None


def _progress(target: str) -> Progress:
    """A line that is overwritten, on a terminal; nothing in a pipe."""
    from lpkit_conformance.suite.supervisor import Progress

    if not sys.stderr.isatty():
        return Progress()

    def started(label: str, done: int, total: int) -> None:
        rewrite_line(f"{target}: {done}/{total} {label}")

    return Progress(started, lambda _: rewrite_line())


def _show(report: Report, style: Format | None, verbose: bool, quiet: bool) -> None:
    from lpkit_conformance.report import to_github, to_text

    if quiet:
        return
    text = to_text(report, verbose)
    if style is Format.github:
        from lpkit_conformance.report.github import job_summary

        typer.echo(text)
        typer.echo(to_github(report))
        summary_file = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary_file:
            with Path(summary_file).open("a", encoding="utf-8") as file:
                file.write(job_summary(report))
    elif style is Format.rich or (style is None and sys.stdout.isatty()):
        _show_rich(text)
    else:
        typer.echo(text)


def _show_rich(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    styles = {
        "FAIL": "bold red",
        "ERROR": "bold red",
        "UNEXPECTED PASS": "bold red",
        "PASS": "bold green",
        "advice": "yellow",
        "expected ": "cyan",
    }
    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        colour = next((colour for word, colour in styles.items() if line.startswith(word)), "")
        if line.startswith("    ") and len(line) > 14:
            console.print(Text(line[:14], style="dim") + Text(line[14:]))
        else:
            console.print(Text(line, style=colour))


def _write(report: Report, json_file: Path | None, junit_file: Path | None) -> None:
    from lpkit_conformance.report import to_junit

    if json_file is not None:
        write(json_file, json.dumps(report.to_json(), indent=2) + "\n")
    if junit_file is not None:
        write(junit_file, to_junit(report))
