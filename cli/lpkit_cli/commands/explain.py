"""``lpkit explain``: what a check is about."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    code: Annotated[str | None, typer.Argument(help="A check's code, such as LP202. None: list them all.")] = None,
) -> None:
    """Explain a check: the rule, why it matters, how to fix a failure, and what turning it off hides."""
    from lpkit_conformance import examples
    from lpkit_conformance.catalogue import all_checks, turning_off
    from lpkit_conformance.run import known_code

    if code is None:
        for check in all_checks(None):
            hosts = "/".join(check.hosts) or "-"
            advice = "  (advice)" if check.tier == "advice" else ""
            typer.echo(f"{check.code}  {hosts:5}  {check.name:26} {check.sections()['title']}{advice}")
        return
    wanted = known_code(code)
    for check in all_checks(None):
        if check.code.startswith(wanted):
            sections = check.sections()
            hosts = f" on {' and '.join(host.upper() for host in check.hosts)}" if check.hosts else ""
            typer.echo(f"{check.code} {check.name} ({check.tier}{hosts})\n\n{sections['title']}.\n")
            typer.echo(f"rule  {sections['rule']}\nwhy   {sections['why']}\nfix   {sections['fix']}")
            if check.requires:
                typer.echo(f"needs {', '.join(check.requires)}")
            typer.echo(f"off   {turning_off(check)}\n")
            example = examples.example(check.code)
            if example is not None:
                typer.echo(f"From wrong to right:\n\n{example.diff}\n")
