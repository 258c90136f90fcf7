"""``lpkit show``: what processors do to one request, token by token."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from lpkit_conformance.errors import UsageError
from lpkit_conformance.settings.hosts import RUNNER_HOSTS

from lpkit_cli.commands.options import EngineChoice, Host, Targets
from lpkit_cli.console import write

PAGE = Path("lpkit-show.html")

Prompt = Annotated[str, typer.Option(help="Prompt of the request; by default one that suits the model.")]
ShowCase = Annotated[
    str,
    typer.Option(
        "--case",
        metavar="JSON",
        help="SamplingParams of the request; by default the first case of the project. "
        '{"temperature": 0.7, "extra_args": {...}}',
    ),
]
Steps = Annotated[int, typer.Option(metavar="N", help="Tokens of the reply at most.", min=1, max=1024)]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers that choose the tokens.")]
ShowModel = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="A model of transformers on this machine: a folder, or a name in the cache. By default lpkit's toy, an "
        "n-gram model of words.",
    ),
]
Out = Annotated[Path, typer.Option(metavar="FILE", help="The page to write; - is standard output.")]
Compare = Annotated[
    str,
    typer.Option(
        metavar="NAME=A,B,... or TARGET,...",
        help="Show the reply with each value of a parameter: an argument of a processor, a field of SamplingParams, or "
        "N.NAME of a document's step N; the page's tokens are those of the first value. Or show it with each of these "
        "processors in place of the targets, such as another version: old.py:Class.",
    ),
]
Svg = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a picture of the most telling token, before and after the processors."),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the data as JSON; - is standard output.")
]


def show(
    targets: Targets = None,
    rules: Annotated[
        str,
        typer.Option(metavar="DOCUMENT", help="Show the steps of a document of rules: its JSON, or a file of it."),
    ] = "",
    prompt: Prompt = "",
    case: ShowCase = "",
    host: Annotated[Host, typer.Option(help="Runner; all: the newest one whose interface all targets have.")] = "all",
    steps: Steps = 64,
    seed: Seed = 0,
    model: ShowModel = "",
    compare: Compare = "",
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Show a failure that `lpkit check` saved, or a trace that `lpkit watch` saved: the tokens of the "
            "request whose row differs, alone and in the batch. Only --case, --limit, --out and --json apply.",
        ),
    ] = None,
    engine: Annotated[
        EngineChoice,
        typer.Option(help="Serve the request in lpkit's reference runtime, or in a real vLLM on the CPU."),
    ] = EngineChoice.reference,
    out: Out = PAGE,
    svg: Svg = None,
    json_file: JsonFile = None,
    limit: Annotated[float, typer.Option(help="Seconds that a call of a processor may take.", min=1.0)] = 20.0,
) -> None:
    """Show what processors do to a request: each token before and after each processor, on one page.

    Runs the request in lpkit's runtime with the processors, without each of them, and without any, with the same random
    numbers. Exit code 0: shown; 2: could not run, or a processor ended the reply.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # only the processes that run plugins need vLLM, whose import takes seconds
    from lpkit_conformance.report import as_json, picture
    from lpkit_conformance.report import show as report
    from lpkit_conformance.show import run

    if host not in (*RUNNER_HOSTS, "all"):
        raise UsageError(f"--host {host} has no stages of its own: {' and '.join(RUNNER_HOSTS)} are shown")
    if out == json_file == Path("-"):
        raise UsageError("only one of --out and --json can be standard output")
    options = run.ShowOptions(
        rules=document_text(rules),
        case=case,
        prompt=prompt,
        host="" if host == "all" else host,
        steps=steps,
        seed=seed,
        model=model,
        limit=limit,
        engine=engine is EngineChoice.vllm,
    )
    if trace is not None:
        plain = vars(run.ShowOptions(case=case, limit=limit))
        given = ["targets"] * bool(targets) + ["--compare"] * bool(compare) + ["--svg"] * bool(svg)
        given += [f"--{name}" for name, value in vars(options).items() if value != plain[name]]
        if given:
            raise UsageError(f"the file of --trace holds its processor and its request: omit {', '.join(given)}")
        shown = run.show_failure(trace, [case] if case else [], limit)
    else:
        shown = run.compare(targets or (), options, *_values(compare)) if compare else run.show(targets or (), options)
    write(out, lambda file: report.write(shown, file))
    if svg is not None:
        write(svg, lambda file: file.write(picture.picture(shown)))
    if json_file is not None:
        write(json_file, lambda file: as_json.write(shown, file))
    if Path("-") not in (out, json_file):
        report.show(shown, out, sys.stdout)
    if shown.problem:
        typer.echo(f"lpkit show: stopped after {len(shown.steps)} tokens: {shown.problem}", err=True)
    raise typer.Exit(shown.exit_code)


def try_(
    document: Annotated[str, typer.Argument(help="A document: its JSON, or a file of it.")],
    prompt: Prompt = "",
    case: ShowCase = "",
    steps: Steps = 64,
    seed: Seed = 0,
    model: ShowModel = "",
    compare: Compare = "",
    out: Out = PAGE,
    json_file: JsonFile = None,
) -> None:
    """Show what a document of rules does to a request: ``lpkit show --rules DOCUMENT``."""
    options = {"prompt": prompt, "case": case, "steps": steps, "seed": seed, "model": model, "compare": compare}
    show(rules=document, out=out, json_file=json_file, **options)  # type: ignore[arg-type]


def _values(compare: str) -> tuple[str, list[Any]]:
    """Split ``NAME=A,B``, in which a value that is not JSON is a text, or targets, whose name is empty."""
    name, equals, values = compare.partition("=")
    if not equals:
        return "", compare.split(",")
    if not name or not values:
        raise UsageError(f"--compare takes NAME=A,B,... or processors, not {compare!r}")

    def read(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    return name, [read(text) for text in values.split(",")]


def document_text(document: str) -> str:
    """Return the text of a document: its JSON, or a file of it; a name of the operator's documents stays."""
    try:
        is_file = not document.lstrip().startswith(("[", "{")) and Path(document).is_file()
        return Path(document).read_text(encoding="utf-8") if is_file else document
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{document[:100]} cannot be read: {error}") from None
