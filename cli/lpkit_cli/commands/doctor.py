"""``lpkit doctor``: the installed versions, the runner that vLLM would choose, and vLLM's treatment of each plugin."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from lpkit_conformance.errors import UsageError

FOUND = 1


def doctor(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- VLLM SERVE ...",
            help="Command that starts the engine, after two dashes: -- vllm serve MODEL --speculative-config '{...}'.",
            show_default=False,
        ),
    ] = None,
    passed: Annotated[
        list[str] | None,
        typer.Option("--pass", metavar="MODULE:CLASS", help="As if served with --logits-processors. Repeatable."),
    ] = None,
    drafts: Annotated[bool, typer.Option("--spec-decode", help="As if served with speculative decoding.")] = False,
    no_async: Annotated[
        bool, typer.Option("--no-async-scheduling", help="As if served with --no-async-scheduling.")
    ] = False,
    release: Annotated[
        str | None,
        typer.Option(
            "--vllm",
            metavar="VERSION",
            help="Predict for this release on a GPU, e.g. 0.33.0, instead of the installed one.",
        ),
    ] = None,
    load: Annotated[
        bool, typer.Option("--load", help="Import the plugins, in a child process, instead of reading their source.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON of schema lpkit.doctor/1.")] = False,
) -> None:
    """Predict what vLLM does with the installed processors, and advise changes.

    Exit code 0: no problems found; 1: problems found; 2: could not run. Notes do not count. Nothing is imported without
    --load.
    """
    if release is not None and not re.fullmatch(r"v?\d+\.\d+(\.\d+)?([.+a-z]\S*)?", release):
        raise UsageError(f"--vllm takes a release such as 0.33.0, not {release!r}")

    from lpkit_conformance.doctor.squatted import broken
    from lpkit_conformance.report import doctor as report
    from lpkit_conformance.report.as_json import write
    from lpkit_conformance.report.terminal import show

    unusable = broken()  # first, because everything below imports lpkit
    if unusable is not None:
        write(unusable, sys.stdout) if as_json else show(report.only(unusable.issues), sys.stdout)
        raise typer.Exit(FOUND)

    from lpkit_conformance.doctor.examine import Settings, examine

    from lpkit_cli.scaffold.baking import template_versions

    judged = release.removeprefix("v") if release else None
    words = tuple(command or ())
    settings = Settings(tuple(passed or ()), drafts, no_async, judged, load, template_versions()[-1], words)
    diagnosis = examine(settings)
    write(diagnosis, sys.stdout) if as_json else show(report.lines(diagnosis), sys.stdout)
    raise typer.Exit(0 if diagnosis.ok else FOUND)
