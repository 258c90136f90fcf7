"""``lpkit new``: a plugin project with an entry point, a working processor, tests and a CI workflow."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from lpkit_conformance.errors import UsageError, UserError

from lpkit_cli.scaffold.naming import Names, names_for


class Style(str, enum.Enum):
    """What the generated processor derives from."""

    processor = "processor"
    request = "request"


def register(app: typer.Typer) -> None:
    """Add ``lpkit new`` to the command line."""
    app.command("new")(new)


def new(
    name: Annotated[str, typer.Argument(help="Distribution name of the plugin, e.g. my-proc.")],
    style: Annotated[
        Style | None,
        typer.Option(
            "--style",
            help="processor (the default): sees all requests of a batch at once, the fast way. "
            "request: one plain Python callable per request, the simple way.",
        ),
    ] = None,
    wrap: Annotated[
        str | None,
        typer.Option(
            "--wrap",
            metavar="MODULE:NAME",
            help="Instead of a style: run this existing V1 class, request-level callable or factory on both runners.",
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            metavar="JSON",
            help='With --wrap: SamplingParams that switch it on, {"extra_args": {...}}; by default guessed.',
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder to put the project into.")] = Path(),
) -> None:
    """Scaffold a vLLM logits-processor plugin."""
    more: dict[str, Any] = {}
    notes: list[str] = []
    try:
        names = names_for(name)
        _check_destination(output, name)
        _check_options(style, wrap, case)
        if wrap is not None:
            more, notes = _wrapped(wrap, case or [], names)
    except UserError as error:
        raise UsageError(f"{str(error).rstrip('.')}. Nothing was written.") from None

    from lpkit_conformance.report import new as report

    from lpkit_cli.scaffold.baking import bake

    bake(names, "wrap" if wrap is not None else (style or Style.processor).value, output, more)
    typer.echo("\n".join(report.lines(output / name, names.package, names.class_name, notes)))


def _check_options(style: Style | None, wrap: str | None, case: list[str] | None) -> None:
    if wrap is not None and style is not None:
        raise UsageError("--wrap and --style exclude each other: --wrap determines the style")
    if case and wrap is None:
        raise UsageError("--case is for --wrap; a scaffolded processor brings its own cases")


def _wrapped(target: str, case: list[str], names: Names) -> tuple[dict[str, Any], list[str]]:
    """The template's variables for ``--wrap``, and what to tell besides."""
    from lpkit_conformance.discovery.bridgeable import find
    from lpkit_conformance.report.new import notes

    from lpkit_cli.scaffold import wrapping

    found = find(target)
    if found.module.partition(".")[0] == names.package:
        problem = f"the project's package would be {names.package!r}, which hides the one of {target}"
        raise UsageError(problem, f"choose another name, e.g. {names.project}-bridge")
    more = wrapping.context(found, names, _cases(case))
    return more, list(notes(found, guessed=bool(more["_cases_are_guessed"])))


def _cases(texts: list[str]) -> list[dict[str, Any]]:
    if not texts:
        return []
    from lpkit.interfaces import lookup

    lookup.do_without()  # its SamplingParams would take seconds to import
    import json

    from lpkit_conformance.settings.cases import Case

    return [dict(json.loads(Case.parse(text, complete=False).text)) for text in texts]


def _check_destination(output: Path, name: str) -> None:
    target = output / name
    try:
        blocked, taken = output.exists() and not output.is_dir(), target.exists() or target.is_symlink()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise UsageError(f"{output}: {error}") from None
    if blocked:
        raise UsageError(f"{output} is not a folder")
    if taken:
        raise UsageError(f"{target} already exists", "choose another name, or another folder with -o")
