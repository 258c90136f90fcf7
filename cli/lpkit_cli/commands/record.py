"""``lpkit record``: records traces of workloads on a real vLLM engine, for ``lpkit check`` to replay anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.errors import EngineUnavailable, OutputError, UsageError

from lpkit_cli.console import rewrite_line

if TYPE_CHECKING:
    from lpkit_conformance.engine.recorded_workloads import RecordedWorkload


def record(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKLOAD]...", help="Workloads, e.g. churn, or v2_churn for one runner."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Record every workload.")] = False,
    output: Annotated[Path, typer.Option("--output-dir", "-o", help="Folder to write the traces to.")] = Path(),
    listing: Annotated[bool, typer.Option("--list", help="Show the workloads and exit.")] = False,
) -> None:
    """Record the calls of a real vLLM engine to its logits processors, as traces (JSON Lines).

    Needs vLLM in this environment; a CPU build is enough. The engine is tiny and downloads nothing.
    """
    from lpkit_conformance.engine.recorded_workloads import WORKLOADS

    recordable = [*WORKLOADS.values()]
    if listing:
        typer.echo("\n".join(f"{workload.trace_name:12}  {workload.summary}" for workload in recordable))
        return
    if not workloads and not every:
        raise UsageError("name a workload, or pass --all", "--list shows them")
    chosen = recordable if every else _choose(workloads or [], recordable)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise OutputError(f"{output}: {error}") from None
    _run(chosen, output)


def _choose(wanted: Iterable[str], recordable: list[RecordedWorkload]) -> list[RecordedWorkload]:
    chosen: list[RecordedWorkload] = []
    for name in wanted:
        matches = [w for w in recordable if name in (w.name, w.trace_name)]
        if not matches:
            raise UsageError(f"unknown workload {name!r}", f"there are {', '.join(w.trace_name for w in recordable)}")
        chosen += [w for w in matches if w not in chosen]
    return chosen


def _run(chosen: list[RecordedWorkload], output: Path) -> None:
    from lpkit_conformance.engine.losses import short
    from lpkit_conformance.engine.process import EngineProcess
    from lpkit_conformance.engine.recording import record_to
    from lpkit_conformance.engine.tiny import EngineError

    try:
        for runner in dict.fromkeys(workload.runner for workload in chosen):
            rewrite_line(f"starting a vLLM engine for the {runner} runner ...")
            with EngineProcess(runner) as worker:
                for workload in (w for w in chosen if w.runner == runner):
                    rewrite_line(f"recording {workload.trace_name} ...")
                    path = output / f"{workload.trace_name}.jsonl"
                    done = worker.call(record_to, workload, str(path))
                    rewrite_line()
                    typer.echo(f"{path}: {done['steps']} steps, {done['requests']} requests, {done['runner_class']}")
    except EngineError as error:
        rewrite_line()
        raise EngineUnavailable(short(error) or type(error).__name__, details=getattr(error, "details", "")) from None
