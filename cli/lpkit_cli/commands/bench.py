"""``lpkit bench``: the cost of a processor per step, next to its alternatives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.settings.hosts import HOSTS

from lpkit_cli.commands.options import Device, Host, Targets
from lpkit_cli.console import rewrite_line, write

if TYPE_CHECKING:
    from lpkit_conformance.bench.results import Bench
    from lpkit_conformance.bench.run import Tell


def bench(
    targets: Targets = None,
    case: Annotated[
        str,
        typer.Option(
            "--case",
            metavar="JSON",
            help='SamplingParams of the requests; by default the first case of the project. {"extra_args": {...}}',
        ),
    ] = "",
    host: Annotated[
        Host, typer.Option(help="Runner to measure on; all: every one whose interface the class has.")
    ] = "all",
    batch: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Requests per step, also as a list: 1,8. By default 1,8,64,256,1024."),
    ] = None,
    vocab: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Vocabulary size, or 32k, 128k, 152k (all three by default)."),
    ] = None,
    device: Annotated[
        Device, typer.Option(help="Device of the logits; auto is CUDA if a GPU is present.")
    ] = Device.cpu,
    threads: Annotated[int, typer.Option(help="Number of torch threads.", min=1)] = 1,
    context: Annotated[int, typer.Option(help="Tokens of a request when it enters the batch.", min=2, max=65536)] = 256,
    share: Annotated[
        float, typer.Option(help="Share of the requests that use the processor; 0.1 is a tenth.", min=0.0, max=1.0)
    ] = 1.0,
    against: Annotated[
        list[str] | None, typer.Option(metavar="TARGET", help="Also measure this processor, in the same rounds.")
    ] = None,
    against_case: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON", help="Case of the --against at the same position; by default the target's."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two sizes and fewer rounds.")] = False,
    budget: Annotated[
        Path | None,
        typer.Option(
            "--budget",
            metavar="FILE",
            help="Compare with an older --json FILE, by ratios and counts; exit code 1 if any is worse.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the logits and the batches.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers as JSON; - is standard output.")
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw time per step against the number of requests, as SVG; - is standard output.",
        ),
    ] = None,
    limit: Annotated[float, typer.Option(help="Time limit of one measurement, in seconds.", min=1.0)] = 300.0,
) -> None:
    """Measure what processors cost per step, next to the alternatives.

    All candidates alternate on the same logits: the processor on each runner, the processors that --against names, and
    this device's lower bound: a single pass over the logits.
    Exit code 0: measured; 1: worse than --budget allows; 2: could not run.
    """
    from lpkit.interfaces import lookup

    lookup.do_without()  # only the processes that run plugins need vLLM, whose import takes seconds
    from lpkit_conformance.errors import UsageError

    if json_file == plot_file == Path("-"):
        raise UsageError("only one of --json and --plot can be standard output")
    from lpkit_conformance.bench import run as benches

    options = benches.BenchOptions(
        case=case,
        hosts=None if host == "all" else (HOSTS[host].name,),
        batches=_numbers("--batch", batch, {}),
        vocabs=_numbers("--vocab", vocab, benches.VOCABS),
        device=device.value,
        threads=threads,
        context=context,
        share=share,
        quick=quick,
        seed=seed,
        against=tuple(against or ()),
        against_cases=tuple(against_case or ()),
        limit=limit,
        budget=budget,
    )
    measured = benches.run(targets or (), options, tell_of=_tell)
    _show(measured, json_file, plot_file)
    for target in measured.targets:
        if target.error:
            typer.echo(f"lpkit bench: {target.target}: {target.error}", err=True)
    raise typer.Exit(measured.exit_code)


def _numbers(option: str, given: list[str] | None, names: dict[str, int]) -> tuple[int, ...]:
    from lpkit._nearest import suggest
    from lpkit_conformance.errors import UsageError

    numbers = []
    for word in (word.strip() for text in given or () for word in text.split(",")):
        number = names.get(word.lower())
        if number is None and word.isdecimal() and 1 <= int(word) <= 2**24:
            number = int(word)
        if number is None:
            problem = f"{option} takes whole numbers of at least 1, not {word!r}"
            raise UsageError(problem, suggest(word, names) if names else "")
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))


def _tell(target: str) -> Tell:
    """Rewrite one line of the terminal."""
    return lambda label: rewrite_line(label and f"{target}: {label}")


def _show(measured: Bench, json_file: Path | None, plot_file: Path | None) -> None:
    from lpkit_conformance.report import as_json
    from lpkit_conformance.report import bench as reports

    if Path("-") not in (json_file, plot_file):
        reports.show(measured, sys.stdout)
    if json_file is not None:
        write(json_file, lambda file: as_json.write(measured, file))
    if plot_file is not None:
        write(plot_file, lambda file: reports.write_plot(measured, file))
