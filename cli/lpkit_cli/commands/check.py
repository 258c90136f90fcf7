"""``lpkit check``: run the conformance suite."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.errors import OutputError, UsageError, UserError
from lpkit_conformance.report import formats

from lpkit_cli import watching
from lpkit_cli.commands.options import (
    Device,
    EngineChoice,
    Limit,
    Targets,
    completed_codes,
    hosts_named,
    several,
)
from lpkit_cli.console import rewrite_line, write

if TYPE_CHECKING:
    from lpkit_conformance.processes.supervise import Child
    from lpkit_conformance.results import Report
    from lpkit_conformance.suite.supervisor import Progress


class ReportStyle(str, enum.Enum):
    """Formats of a report on the terminal."""

    rich = "rich"
    plain = "plain"
    github = "github"


def _start_ahead(context: typer.Context, list_checks: bool) -> bool:
    """Start the process that runs the checks, while the options are read and the suite is imported."""
    if not (list_checks or context.resilient_parsing):
        from lpkit_conformance.suite.ahead import start_ahead

        # The root context is closed even if an option is wrong.
        context.obj = context.find_root().with_resource(start_ahead())
    return list_checks


def check(
    context: typer.Context,
    targets: Targets = None,
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            metavar="JSON",
            help='SamplingParams that switch the plugin on: {"extra_args": {...}}. lpkit\'s own keys: '
            "prompt_token_ids, output_token_ids, generated, reasoning.",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="v1|v2|all|export",
            help="Runners to check on; by default every one whose interface the class has. export: the host behind "
            "`lpkit.export`, which other engines drive.",
        ),
    ] = None,
    engine: Annotated[
        EngineChoice,
        typer.Option(help="Run in lpkit's reference runtime, or run the checks LP9 in a real vLLM on the CPU."),
    ] = EngineChoice.reference,
    device: Annotated[
        Device, typer.Option(help="Device of the tensors; auto is CUDA if a GPU is present.")
    ] = Device.cpu,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES",
            help="Run these checks (or families: LP2,LP301) and the checks they require.",
            autocompletion=completed_codes,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", help="Skip these checks or families: LP7,LP601.", autocompletion=completed_codes),
    ] = None,
    expression: Annotated[
        str,
        typer.Option(
            "-k", metavar="EXPRESSION", help="Run the checks whose code and name match: 'swap or (LP5 and not drafts)'."
        ),
    ] = "",
    list_checks: Annotated[
        bool,
        typer.Option(
            "--list-checks",
            help="List the checks that these options select, and run none.",
            is_eager=True,
            callback=_start_ahead,
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Run a few checks for the most common mistakes with the first case, and LP201 with each case; those "
            "that failed last run first.",
        ),
    ] = False,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Check every two targets in one engine, in both orders of loading; without a target, everything "
            "installed.",
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run again whenever a file of the plugin changes, until Ctrl-C.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Replay a trace that `lpkit watch` saved in a server, and run no other check.",
        ),
    ] = None,
    vllm: Annotated[
        str,
        typer.Option(
            "--vllm",
            metavar="RELEASE",
            help="Apply the rules of this release, such as 0.27.1, where they differ from the newest release.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed for the simulated model and the generated programs.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; - is standard output.")
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as one page for a browser, with pictures."),
    ] = None,
    sarif_file: Annotated[
        Path | None,
        typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, for code scanning."),
    ] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit-xml", metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    style: Annotated[
        ReportStyle | None,
        typer.Option("--format", help="By default rich on a terminal, github under GitHub Actions, plain in a pipe."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="DIR", help="Folder for saved failures (see lpkit replay); default .lpkit/failures."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every check with its time.")] = False,
    limit: Limit = None,
) -> None:
    """Check that processors keep vLLM's rules.

    Replays recorded engine traces and generated programs and compares every request with the same request
    alone. Exit code 0: conformant; 1: a check failed; 2: could not run, or no case made the plugin act.

    A project's [tool.lpkit] gives cases, environment variables, and the model and tokenizer that the plugin needs.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # only the processes that run plugins need vLLM, whose import takes seconds
    from lpkit_conformance import run
    from lpkit_conformance.settings import last_failures

    if together and engine is EngineChoice.vllm:
        raise UsageError("--together runs on the reference runtime: omit --engine")
    options = run.Options(
        cases=tuple(case or ()),
        hosts=hosts_named(host),
        select=several(select),
        ignore=several(ignore),
        expression=expression,
        quick=quick,
        seed=seed,
        device=device.value,
        limit=limit,
        engine=run.TOGETHER if together else engine.value,
        trace=trace,
        release=vllm,
    )
    if list_checks:
        typer.echo("\n".join(f"{check.code}  {check.name:26} {check.title()}" for check in run.wanted(options)))
        return

    def once(ahead: Child) -> int:
        report = _save(run.run(targets or (), options, progress_for=_progress, ahead=ahead), save)
        if save is None:  # with --save, files appear only in the named folder
            last_failures.remember(report.targets)
        files = {"json": json_file, "html": html_file, "sarif": sarif_file, "junit": junit_file}
        _show(report, style, {name: path for name, path in files.items() if path}, verbose)
        return report.exit_code

    if engine is EngineChoice.vllm:
        context.obj.end()  # a real engine has its own process
    raise typer.Exit(_again_and_again(once, targets or [], context) if watch else once(context.obj))


def _again_and_again(once: Callable[[Child], int], targets: list[str], context: typer.Context) -> int:
    """Run now and after each change, even after a mistake; Ctrl-C returns the last exit code."""
    from lpkit_conformance.suite.ahead import start_ahead

    folders = watching.roots(targets)
    code = 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            before = watching.times(folders)
            try:
                with context.obj as ahead:
                    code = once(ahead)
            except UserError as error:
                typer.echo(f"lpkit check: {error}", err=True)
                code = 2
            sys.stdout.flush()
            typer.echo("\nwaiting for a change; Ctrl-C to stop", err=True)
            context.obj = context.with_resource(start_ahead())
            changed = watching.wait(folders, before)
            typer.echo(f"{', '.join(path.name for path in changed[:3])} changed\n", err=True)
    return code


def _save(report: Report, folder: Path | None) -> Report:
    """Save failures; the default folder may be read-only."""
    from lpkit_conformance.run import failures

    try:
        return failures.save(report, folder or failures.FOLDER)
    except OSError as error:
        if folder is None:
            return report
        raise OutputError(f"cannot write to {folder}: {error.strerror}") from None


def _progress(target: str) -> Progress:
    """Return a progress line that overwrites itself."""
    from lpkit_conformance.suite.supervisor import Progress

    return Progress(
        lambda label, done, total: rewrite_line(f"{target}: {done}/{total} {label}"), lambda _: rewrite_line()
    )


def _show(report: Report, style: ReportStyle | None, files: Mapping[str, Path], verbose: bool) -> None:
    if Path("-") not in files.values():
        formats.write(style.value if style else _default_style(), report, sys.stdout, verbose)
    for name, path in files.items():
        write(path, partial(formats.write, name, report))


def _default_style() -> str:
    """Return github (annotations, job summary) under GitHub Actions, rich (colours) on a terminal, else plain."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    return "rich" if sys.stdout.isatty() else "plain"
