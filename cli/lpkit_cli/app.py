"""``lpkit``: the command's entry point, and its handling of users' mistakes and internal errors.

Exit codes: 0 conformant, 1 a check failed, 2 could not run or nothing ran, 3 internal error, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from lpkit_conformance.errors import UserError
from typer.core import TyperGroup

from lpkit_cli.commands.bench import bench
from lpkit_cli.commands.check import check
from lpkit_cli.commands.doctor import doctor
from lpkit_cli.commands.explain import explain
from lpkit_cli.commands.list_ import list_
from lpkit_cli.commands.new import new
from lpkit_cli.commands.record import record
from lpkit_cli.commands.replay import replay
from lpkit_cli.commands.rules import app as rules
from lpkit_cli.commands.show import show
from lpkit_cli.commands.update import update
from lpkit_cli.commands.watch import watch

COULD_NOT_RUN = 2
INTERNAL_ERROR = 3
INTERRUPTED = 130

EXTRAS = {"torch": "check", "numpy": "check", "pytest": "check", "cookiecutter": "new"}
"""Packages that only some commands need, and the extra that installs each."""


class _Commands(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options; a switch that was not given is False."""
        params = super().get_params(ctx)
        for option in params:
            # Typer's own switches default to None, which it converts with pydantic: half of the time of `lpkit list`.
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return params

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, with the same default for its help switch."""
        command = super().get_command(ctx, cmd_name)
        option = command and command.get_help_option(ctx)
        if option:
            option.default = False
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a user's mistake is one line and exit code 2."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"{ctx.command_path} {ctx.invoked_subcommand}: {error}", err=True)
            if error.details and _debugging():
                typer.echo(error.details, err=True)
            raise typer.Exit(COULD_NOT_RUN) from None


# rich_markup_mode=None: plain help needs no rich, whose import would double the time `lpkit --help` takes.
app = typer.Typer(
    name="lpkit",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from lpkit import __version__

        typer.echo("\n".join([f"lpkit {__version__}", *_surroundings()]))
        raise typer.Exit


def _surroundings() -> list[str]:
    """Show the vLLM release of lpkit's rules and the installed vLLM and torch, without importing them."""
    from lpkit_conformance.checks.catalogue import by_code
    from lpkit_conformance.discovery import metadata
    from lpkit_conformance.discovery.installed import provides_vllm
    from lpkit_conformance.vllm_api.facts import VLLM

    vllm = next((dist for name, dist in metadata.unique() if provides_vllm(dist, name)), None)
    lines = [f"rules  {len(by_code())} checks, of vLLM {VLLM.developed_with}"]
    for title, dist in (("vLLM", vllm), ("torch", metadata.find("torch"))):
        lines.append(f"{title:6} {dist.version if dist else 'not installed'}")
    return lines


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the versions of lpkit, vLLM and torch."),
    ] = False,
) -> None:
    """Scaffold, test and benchmark logits processors for vLLM.

    Exit codes: 0 conformant, 1 a check failed, 2 could not run or nothing ran, 3 internal error,
    130 interrupted.
    """


for _command in (new, update, check, list_, doctor, explain, record, replay, bench, show, watch):
    app.command(_command.__name__.rstrip("_"))(_command)
app.add_typer(rules, name="rules", cls=_Commands)


def main() -> None:
    """Run the command; it shows a traceback only if ``LPKIT_DEBUG`` is set."""
    for stream in (sys.stdout, sys.stderr):
        # A Windows console or a C locale cannot print every character; this must not end a run.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(prog_name="lpkit")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            _report(error)
            sys.exit(INTERNAL_ERROR)
        print(f"lpkit: this command needs {error.name}; install vllm-lpkit[{extra}]", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
    except Exception as error:
        _report(error)
        sys.exit(INTERNAL_ERROR)


def _report(error: Exception) -> None:
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    print(f"lpkit: internal error: {summary}", file=sys.stderr)
    if _debugging():
        traceback.print_exception(error)
        return
    saved = _save(error)
    where = f"The traceback is in {saved}; " if saved else ""
    print(f"{where}LPKIT_DEBUG=1 prints it. This is a bug in lpkit: please report it.", file=sys.stderr)


def _debugging() -> bool:
    return os.environ.get("LPKIT_DEBUG", "") not in ("", "0")


def _save(error: Exception) -> Path | None:
    try:
        handle, name = tempfile.mkstemp(prefix="lpkit-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return None
    return Path(name)


if __name__ == "__main__":
    main()
