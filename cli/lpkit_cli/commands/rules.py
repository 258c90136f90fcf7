"""``lpkit rules``: documents of rules, and an operator's policy for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from lpkit_conformance.errors import UserError

from lpkit_cli.commands.show import document_text, try_

PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="The operator's file, in place of LPKIT_RULES.")
]


def check(
    file: Annotated[Path, typer.Argument(help="The operator's file, in TOML, as LPKIT_RULES names it.")],
) -> None:
    """Check an operator's file: the rules, limits, sets and documents that requests of a server may use.

    Exit code 0: the file is right; 2: it is wrong.
    """
    from lpkit.rules.document import RULES
    from lpkit.rules.policy import Policy, PolicyError

    try:
        policy = Policy.load(file)
    except PolicyError as error:
        raise UserError(str(error)) from None
    typer.echo(
        f"{file}: {len(policy.allow)} of {len(RULES)} rules allowed, {len(policy.sets)} sets, "
        f"{len(policy.documents)} documents, {len(policy.first) + len(policy.last)} steps for every request"
    )


def schema() -> None:
    """Print the JSON Schema of documents."""
    from lpkit.rules.document import schema as of_documents

    typer.echo(json.dumps(of_documents(), indent=2))


def explain(
    document: Annotated[str, typer.Argument(help="A document: its JSON, a file of it, or a name from --policy.")],
    policy: PolicyFile = None,
) -> None:
    """Say what each step of a document does, or where the document is wrong (exit code 2)."""
    from lpkit.rules.explain import sentence
    from lpkit.rules.policy import Policy

    try:
        steps = (Policy.load(policy) if policy else Policy.here()).steps({"rules": document_text(document)})
    except ValueError as error:
        raise UserError(str(error)) from None
    if not steps:
        typer.echo("no steps: the request is unaffected")
    for number, step in enumerate(steps):
        typer.echo(f"{number}. {sentence(step)}")


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Rules as data: documents, and operators' files.")
for _command in (check, schema, explain, try_):
    app.command(_command.__name__.rstrip("_"))(_command)
