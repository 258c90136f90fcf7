"""``lpkit new``: a plugin project with an entry point, a working processor, tests and a CI workflow."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from lpkit_cli.naming import NameRefusedError, Names, names_for

COULD_NOT_RUN = 2


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
        Style,
        typer.Option(
            "--style",
            help="processor: sees all requests of a batch at once, the fast way. "
            "request: one plain Python callable per request, the simple way.",
        ),
    ] = Style.processor,
    output: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder to put the project into.")] = Path(),
) -> None:
    """Scaffold a vLLM logits-processor plugin."""
    try:
        names = names_for(name)
    except NameRefusedError as error:
        raise _refusal(f"{error}. Nothing was written.") from None
    problem = _destination_problem(output, name)
    if problem:
        raise _refusal(f"{problem}. Nothing was written.")

    from lpkit_cli.scaffold import ScaffoldError, bake

    try:
        bake(names, style.value, output)
    except ScaffoldError as error:
        raise _refusal(str(error)) from error
    typer.echo(_farewell(names, output / name))


def _refusal(message: str) -> typer.Exit:
    typer.echo(f"lpkit new: {message}", err=True)
    return typer.Exit(COULD_NOT_RUN)


def _destination_problem(output: Path, name: str) -> str | None:
    try:
        if output.exists() and not output.is_dir():
            return f"{output} is not a folder"
        target = output / name
        if target.exists() or target.is_symlink():
            return f"{target} already exists; choose another name, or another folder with -o"
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        return f"{output}: {error}"
    return None


def _farewell(names: Names, project: Path) -> str:
    folder = f'"{project}"' if " " in str(project) else str(project)
    return f"""Created {project}: {names.class_name}, a logits processor for both of vLLM's runners.

  processor   {project / "src" / names.package / "processor.py"}
  tests       {project / "tests"}
  settings    {project / "pyproject.toml"}

Next:

  cd {folder}
  pip install -e .
  lpkit check"""
