"""``lpkit doctor``: what is installed, which runner vLLM would choose, and what it would do with each plugin."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from lpkit_conformance.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lpkit_conformance.doctor.examine import Report
    from lpkit_conformance.doctor.finding import Finding

FOUND = 1

COLOURS = {"error": "red", "note": "yellow", "starts": "green", "blocks": "red", "inactive": "red", "unknown": "yellow"}


def register(app: typer.Typer) -> None:
    """Add ``lpkit doctor`` to the command line."""
    app.command("doctor")(doctor)


def doctor(
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
        typer.Option("--vllm", metavar="VERSION", help="Judge this release on a GPU, not the installed one: 0.33.0."),
    ] = None,
    load: Annotated[
        bool, typer.Option("--load", help="Import the plugins, in a child process, instead of reading their source.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON of schema lpkit.doctor/1.")] = False,
) -> None:
    """Tell what vLLM would do with the processors installed here, and what to change.

    Exit code 0: nothing would go wrong; 1: something would; 2: could not run. Notes do not count. Nothing is
    imported unless --load is given.
    """
    if release is not None and not re.fullmatch(r"v?\d+\.\d+(\.\d+)?([.+a-z]\S*)?", release):
        raise UsageError(f"--vllm wants a release such as 0.33.0, not {release!r}")

    from lpkit_conformance.doctor.strangers import strangers

    # First, because everything below imports lpkit.
    broken = [finding for finding in strangers() if finding.code in ("lpkit-shadowed", "lpkit-missing")]
    if broken:
        _only(broken, as_json)
        raise typer.Exit(FOUND)

    from lpkit_conformance.doctor.examine import Settings, examine

    settings = Settings(tuple(passed or ()), drafts, no_async, release.removeprefix("v") if release else None, load)
    report = examine(settings)
    typer.echo(report.to_json() if as_json else "\n".join(text(report)))
    raise typer.Exit(0 if report.ok else FOUND)


def _only(findings: list[Finding], as_json: bool) -> None:
    """Without our own lpkit there is nothing more to tell."""
    if as_json:
        document = {"schema": "lpkit.doctor/1", "environment": sys.prefix, "ok": False}
        typer.echo(json.dumps(document | {"findings": [vars(finding) for finding in findings]}, indent=2))
        return
    typer.echo("\n".join(line for finding in findings for line in _finding(finding)))
    typer.echo("\nNothing else was looked at.")


def text(report: Report) -> list[str]:
    """The report for people; colours are left out where the output is no terminal."""
    lines = [*_facts(report), "", *_plugins(report)]
    for finding in _joined(report.findings):
        lines += ["", *_finding(finding)]
    errors = sum(finding.level == "error" for finding in report.findings)
    notes = len(report.findings) - errors
    noted = f" {notes} note{'s' * (notes != 1)}." if notes else ""
    if not errors:
        return [*lines, "", _coloured("Nothing would go wrong.", "starts") + noted]
    count = f"{errors} thing{'s' * (errors != 1)} would go wrong."
    return [*lines, "", _coloured(count, "error") + noted]


def _facts(report: Report) -> Iterator[str]:
    from lpkit import __version__

    versions, engine = report.versions, report.inventory.engine
    yield f"Environment  {sys.prefix}"
    yield f"Python       {versions.python}"
    yield f"lpkit        {__version__}{'' if versions.lpkit else ' (imported from a checkout, not installed)'}"
    if engine is None:
        yield "vLLM         not installed"
    else:
        yield f"vLLM         {engine.version}{'' if engine.distribution == 'vllm' else f' ({engine.distribution})'}"
    cuda = f", built for {_platform(versions.cuda)}" if versions.torch else ""
    yield f"torch        {versions.torch or 'not installed'}{cuda}"
    yield f"Triton       {versions.triton or 'not installed'}"
    driver = f"NVIDIA driver {versions.driver}" if versions.driver else "a GPU is visible"
    yield f"GPU          {driver if versions.gpu else 'none is visible'}"
    judged = report.situation
    yield f"Judged       {judged.label}, {judged.runner.upper()} runner: {judged.choice.reason}"


def _platform(cuda: str | None) -> str:
    if cuda is None:
        return "CPUs"
    return f"ROCm {cuda[5:]}" if cuda.startswith("rocm ") else f"CUDA {cuda}"


def _plugins(report: Report) -> Iterator[str]:
    rows = []
    for plugin, passed, said in report.verdicts():
        origin = "passed" if passed else f"{plugin.distribution} {plugin.version}"
        rows.append((said, _printable(plugin.name), _printable(plugin.target) if not passed else "", origin))
    if not rows:
        yield "No logits processor is installed here. Start one with: lpkit new my-proc"
        return
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for said, *cells in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        yield f"{_coloured(said.ljust(widths[0]), said)}  {'  '.join(padded)}".rstrip()


def _joined(findings: Sequence[Finding]) -> list[Finding]:
    """What is said of several plugins in the same words is said once."""
    groups: dict[Finding, list[str]] = {}
    for finding in findings:
        groups.setdefault(replace(finding, plugin=""), []).append(finding.plugin)
    return [replace(finding, plugin=", ".join(filter(None, plugins))) for finding, plugins in groups.items()]


def _finding(finding: Finding) -> Iterator[str]:
    about = f"{_printable(finding.plugin)}: " if finding.plugin else ""
    yield f"{_coloured(finding.level, finding.level)}  {about}{_printable(finding.problem)}  [{finding.code}]"
    if finding.evidence:
        yield f"  why     {_printable(finding.evidence)}"
    if finding.remedy:
        yield f"  remedy  {_printable(finding.remedy)}"


def _coloured(word: str, kind: str) -> str:
    return typer.style(word, fg=COLOURS[kind]) if sys.stdout.isatty() else word


def _printable(written: str) -> str:
    """Metadata is other people's text: keep terminal escapes out."""
    return "".join(character if character.isprintable() else " " for character in written)
