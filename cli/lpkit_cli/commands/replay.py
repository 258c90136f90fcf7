"""``lpkit replay``: run a saved failure again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lpkit_cli.commands.options import EngineChoice, Limit
from lpkit_cli.console import write

EXIT_CODES = {"fixed": 0, "failing": 1, "unknown": 2, "silent": 4}


def replay(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A failure that `lpkit check` saved, or a trace that `lpkit watch` saved."),
    ],
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON", help="Arguments with which a trace's requests use the plugin; see lpkit check."),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script", metavar="FILE", help="Also write a self-contained test for pytest that reproduces it."
        ),
    ] = None,
    limit: Limit = None,
    engine: Annotated[
        EngineChoice,
        typer.Option(help="Replay in lpkit's reference runtime, or its requests in a real vLLM on the CPU."),
    ] = EngineChoice.reference,
) -> None:
    """Replay exactly the operations of a saved failure, or the batches of a trace from a server.

    With `--engine vllm`, a real engine serves their requests: the same arrivals, finishes, arguments and texts. The
    engine decides on preemptions, swaps, the order of rows, and drafts unless a trace has them. For a trace, the report
    counts the reproduced events.

    Exit code 0: the plugin passes now; 1: it still fails; 2: could not run; 4: did not reproduce, for example because
    the plugin never acted, or because a trace has no values of arguments.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # as in lpkit check
    from lpkit_conformance.report import replay as report
    from lpkit_conformance.report.terminal import show
    from lpkit_conformance.run import failures

    failure = failures.load(file, case or ())
    on_engine = engine is EngineChoice.vllm
    if on_engine:
        result = failures.rerun_on_engine(failure, limit)
        outcome = failures.outcome_on_engine(result)
    else:
        result = failures.rerun(failure, limit)
        outcome = failures.outcome(failure, result)
    show(report.lines(failure, result, outcome, on_engine), sys.stdout)
    if script is not None:
        from lpkit_conformance.report.script import script as text_of

        text = text_of(failure, next(iter(result.checks), None), *failures.whereabouts(failure), script.parent)
        write(script, lambda stream: stream.write(text))
    raise typer.Exit(EXIT_CODES[outcome])
