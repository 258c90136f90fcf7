"""``lpkit replay``: run a saved failure again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXIT_CODES = {"fixed": 0, "failing": 1, "unknown": 2}


def register(app: typer.Typer) -> None:
    app.command("replay")(replay)


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A failure that `lpkit check` saved.")],
    limit: Annotated[float, typer.Option(help="Seconds that it may take.", min=1.0)] = 120.0,
) -> None:
    """Run exactly the operations of a saved failure again.

    Exit code 0: the plugin passes them now; 1: it still fails; 2: could not run.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # as in lpkit check
    from lpkit_conformance import failures
    from lpkit_conformance.report.text import check_lines, headline, one_line

    failure = failures.load(file)
    result = failures.rerun(failure, limit)
    outcome = failures.outcome(failure, result)
    typer.echo(headline(result))
    label = f"{failure.code}[{failure.host}]"
    if outcome == "fixed":
        typer.echo(f"FIXED  {label} passes these operations now; `lpkit check` runs all of them")
    else:
        for check in result.checks:
            typer.echo("")
            for line in check_lines(check):
                typer.echo(line)
        if result.error:
            typer.echo(f"  could not judge: {one_line(result.error)}")
        typer.echo(f"\n{'STILL FAILING' if outcome == 'failing' else 'ERROR'}  {label}")
    raise typer.Exit(EXIT_CODES[outcome])
