"""``lpkit watch``: what the watcher found in a server of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("watch")(watch)


def watch(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder of a run, named in the server's log; by default the latest."),
    ] = None,
) -> None:
    """Show what was found in a server that runs, or ran, with LPKIT_WATCH=1.

    Exit code 0: no rule was broken; 1: some were; 2: there is no such run, or nothing was watched in it.
    """
    from lpkit_conformance.errors import UsageError
    from lpkit_conformance.watch.in_words import line, summary
    from lpkit_conformance.watch.run_directory import home, latest, read_numbers
    from lpkit_conformance.watch.tally import Violation

    found = folder or latest("")
    numbers = read_numbers(found) if found else {}
    if not numbers:
        raise UsageError(f"no process was watched in {found or home('')}", "start the server with LPKIT_WATCH=1")
    typer.echo(str(found))
    for process, told in numbers.items():
        typer.echo(f"process {process} on {told['runner'].upper()}: {summary(told)}")
    violations = [Violation(**violation) for told in numbers.values() for violation in told["violations"]]
    for violation in sorted(violations, key=lambda violation: violation.time):
        typer.echo(line(violation))
    broken = any(seen["violations"] for told in numbers.values() for seen in told["processors"].values())
    raise typer.Exit(1 if broken else 0)
