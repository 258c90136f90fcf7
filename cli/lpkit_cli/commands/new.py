"""``lpkit new``: a plugin project with an entry point, a working processor, tests and a CI workflow."""

from __future__ import annotations

import enum
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from lpkit_conformance.errors import UsageError, UserError

from lpkit_cli import console
from lpkit_cli.scaffold.naming import Names, names_for

if TYPE_CHECKING:
    from lpkit_cli.scaffold.origin import Origin


class Style(str, enum.Enum):
    """Base class of the generated processor."""

    processor = "processor"
    request = "request"


class Engines(str, enum.Enum):
    """Engines that load the installed package."""

    vllm = "vllm"
    vllm_and_sglang = "vllm,sglang"


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
    bare: Annotated[bool, typer.Option("--bare", help="Leave out the example rule, to write your own.")] = False,
    engines: Annotated[
        Engines,
        typer.Option("--engines", help="Engines that load the installed package; SGLang needs a second entry point."),
    ] = Engines.vllm,
    output: Annotated[Path, typer.Option("--output-dir", "-o", help="Parent folder of the project.")] = Path(),
    lpkit_from: Annotated[
        str | None,
        typer.Option(
            "--lpkit-from",
            metavar="WHERE",
            help="Source of vllm-lpkit for the project and its CI: index, a URL (git+https://...@COMMIT), or a "
            "wheel, a folder with a wheel or a checkout, whose wheel is copied into the project. By default, the "
            "source of this lpkit.",
        ),
    ] = None,
    description: Annotated[str | None, typer.Option("--description", help="One line for the package index.")] = None,
    author: Annotated[str | None, typer.Option("--author", help="By default git's user.name.")] = None,
    email: Annotated[str | None, typer.Option("--email", help="By default git's user.email.")] = None,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="URL", help="By default the folder's origin."),
    ] = None,
    no_input: Annotated[bool, typer.Option("--no-input", help="Take the defaults without asking.")] = False,
    no_git: Annotated[
        bool, typer.Option("--no-git", help="Do not create a Git repository; inside an existing one, none is created.")
    ] = False,
) -> None:
    """Scaffold a vLLM logits-processor plugin."""
    more: dict[str, Any] = {}
    notes: list[str] = []
    given = {"description": description, "author": author, "email": email, "repository": repository}
    with tempfile.TemporaryDirectory(prefix="lpkit-wheel-") as scratch:
        try:
            names = names_for(name)
            _check_destination(output, name)
            _check_options(style, wrap, case, bare)
            if wrap is not None:
                more, notes = _wrapped(wrap, case or [], names)
            asked = console.on_a_terminal() and not no_input
            origin = _origin(lpkit_from, asked)
            more |= {**_publishing(given, output, asked), "lpkit_from": origin.answer, "bare": bare}
            more["engines"] = engines.value
            wheel, missing = _wheel(origin, Path(scratch), lpkit_from is not None)
        except UserError as error:
            raise UsageError(f"{str(error).rstrip('.')}. Nothing was written.", details=error.details) from None

        from lpkit_conformance.report import new as report

        from lpkit_cli.scaffold import git
        from lpkit_cli.scaffold.baking import bake
        from lpkit_cli.scaffold.origin import bring

        project = bake(names, "wrap" if wrap is not None else (style or Style.processor).value, output, more)
        if wheel is not None:
            bring(wheel, project)
            notes.append(report.with_wheel(wheel.name))
        elif missing:
            notes.append(report.without_wheel(missing))
    if not no_git and not git.inside(output):
        problem = git.start(project)
        notes += [problem[0].upper() + problem[1:] + "."] if problem else []
    typer.echo("\n".join(report.lines(output / name, names.package, names.class_name, notes, bare)))


def _origin(given: str | None, asked: bool) -> Origin:
    from lpkit_cli.scaffold import origin

    if given is not None:
        return origin.parse(given)
    installed = origin.own()
    if not asked:
        return installed
    default = str(installed.local or installed.answer)
    said = typer.prompt("Install vllm-lpkit from (index, a URL, a wheel, a checkout)", default=default)
    return installed if said == default else origin.parse(said)


def _wheel(origin: Origin, scratch: Path, chosen: bool) -> tuple[Path | None, str]:
    """Return the wheel that the project contains, or the reason for its absence; an explicit choice must work."""
    try:
        return origin.wheel(scratch), ""
    except UsageError as error:
        if chosen:
            raise
        return None, error.problem


def _publishing(given: dict[str, str | None], output: Path, asked: bool) -> dict[str, str]:
    from lpkit_cli.scaffold import publishing

    values = publishing.defaults(output)
    for key, question in publishing.QUESTIONS.items():
        value = given[key]
        if value is None and asked:
            value = typer.prompt(question, default=values[key], show_default=bool(values[key]))
        values[key] = values[key] if value is None else value
    return publishing.checked(values)


def _check_options(style: Style | None, wrap: str | None, case: list[str] | None, bare: bool) -> None:
    if wrap is not None and style is not None:
        raise UsageError("--wrap and --style exclude each other: --wrap determines the style")
    if wrap is not None and bare:
        raise UsageError("--wrap and --bare exclude each other: a wrapped processor brings its rule")
    if case and wrap is None:
        raise UsageError("--case is for --wrap; a scaffolded processor brings its own cases")


def _wrapped(target: str, case: list[str], names: Names) -> tuple[dict[str, Any], list[str]]:
    """Return the template's variables for ``--wrap``, and notes for the user."""
    from lpkit_conformance.discovery.bridgeable import find
    from lpkit_conformance.report.new import notes

    from lpkit_cli.scaffold import wrapping

    bridgeable = find(target)
    if bridgeable.module.partition(".")[0] == names.package:
        problem = f"the project's package would be {names.package!r}, which hides the package of {target}"
        raise UsageError(problem, f"choose another name, e.g. {names.project}-bridge")
    more = wrapping.context(bridgeable, names, _cases(case))
    return more, list(notes(bridgeable, guessed=bool(more["_cases_are_guessed"])))


def _cases(texts: list[str]) -> list[dict[str, Any]]:
    if not texts:
        return []
    from lpkit.interfaces import lookup

    lookup.do_without()  # vLLM's SamplingParams would take seconds to import
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
