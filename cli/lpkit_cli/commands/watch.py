"""``lpkit watch``: shows what the watcher reported about a server on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def watch(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder of a run, named in the server's log; by default the latest."),
    ] = None,
) -> None:
    """Show the numbers and violations of a server that runs, or ran, with LPKIT_WATCH=1.

    Exit code 0: no rule was broken; 1: rules were broken; 2: there is no such run, or nothing was watched in it.
    """
    from lpkit_conformance.errors import UsageError
    from lpkit_conformance.watch.numbers import Violation, summary
    from lpkit_conformance.watch.run_directory import home, latest, read_numbers

    run = folder or latest("")
    numbers = read_numbers(run) if run else {}
    if not numbers:
        raise UsageError(f"no process was watched in {run or home('')}", "start the server with LPKIT_WATCH=1")
    typer.echo(str(run))
    for process, counts in numbers.items():
        typer.echo(f"process {process} on {counts['runner'].upper()}: {summary(counts)}")
    violations = [Violation(**violation) for counts in numbers.values() for violation in counts["violations"]]
    for violation in sorted(violations, key=lambda violation: violation.time):
        typer.echo(str(violation))
    broken = any(processor["violations"] for counts in numbers.values() for processor in counts["processors"].values())
    raise typer.Exit(1 if broken else 0)
