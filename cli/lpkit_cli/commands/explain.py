"""``lpkit explain``: the rule behind a check."""

from __future__ import annotations

from typing import Annotated

import typer

from lpkit_cli.commands.options import completed_codes


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            help="A check's code, such as LP202, its name, or a family such as LP2; without it, list all.",
            autocompletion=completed_codes,
        ),
    ] = None,
) -> None:
    """Explain a check: the rule, why it matters, how to fix a failure, and what ignoring it hides."""
    from lpkit_conformance.checks.catalogue import all_checks
    from lpkit_conformance.report import explain as report
    from lpkit_conformance.run import known_code

    if code is None:
        typer.echo("\n".join(report.index()).lstrip())
        return
    wanted = known_code(code)
    for check in all_checks(None):
        if check.code.startswith(wanted):
            typer.echo("\n".join(report.lines(check)))
