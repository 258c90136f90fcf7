"""``lpkit list``: which logits processors a vLLM in this environment would load, and whether it would start."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from lpkit_conformance.discovery.installed import Inventory, Plugin

COLUMNS = ("NAME", "TARGET", "DISTRIBUTION", "INTERFACE", "DEFAULT VLLM STARTS")
INTERFACES = {"v1": "V1", "v2": "V2", "both": "V1 + V2", "unknown": "unknown"}
ANSWERS = {True: "yes", False: "no", None: "unknown"}


def register(app: typer.Typer) -> None:
    """Add ``lpkit list`` to the command line."""
    app.command("list")(list_)


def list_(
    load: Annotated[
        bool, typer.Option("--load", help="Import the plugins, in a child process, instead of reading their source.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON of schema lpkit.list/1.")] = False,
) -> None:
    """List the installed logits processors, and whether vLLM would start with them.

    Nothing is imported unless --load is given.
    """
    from lpkit_conformance.discovery.installed import take_inventory

    inventory = take_inventory()
    if load and inventory.plugins:
        from lpkit_conformance.discovery.load import load as load_all

        inventory = load_all(inventory)
    if as_json:
        typer.echo(inventory.to_json())
        return
    if not inventory.plugins:
        typer.echo(f"No logits processor is installed in {sys.prefix}.\nStart one with: lpkit new my-proc\n")
    elif sys.stdout.isatty():
        _print_rich(inventory)
    else:
        typer.echo("\n".join(plain_table(inventory.plugins)) + "\n")
    typer.echo("\n".join(summary(inventory, loaded=load)))


def _cells(plugin: Plugin) -> tuple[str, ...]:
    cells = (
        plugin.name,
        plugin.target,
        f"{plugin.distribution} {plugin.version}",
        INTERFACES[plugin.interface],
        ANSWERS[plugin.starts_v2],
    )
    return tuple(_printable(cell) for cell in cells)


def _remark(plugin: Plugin) -> str:
    return _printable("; ".join(filter(None, (plugin.problem, plugin.note))))


def _printable(text: str) -> str:
    """Metadata is other people's text: keep terminal escapes out."""
    return "".join(character if character.isprintable() else " " for character in text)


def plain_table(plugins: tuple[Plugin, ...]) -> list[str]:
    """Aligned lines, a plugin's remark below it."""
    rows = [COLUMNS, *(_cells(plugin) for plugin in plugins)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for index in reversed(range(len(plugins))):
        if _remark(plugins[index]):
            lines.insert(index + 2, f"  ! {_remark(plugins[index])}")
    return lines


def _print_rich(inventory: Inventory) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"yes": "green", "no": "red", "unknown": "yellow"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in COLUMNS:
        table.add_column(title.capitalize().replace("vllm", "vLLM"), overflow="fold")
    console = Console(highlight=False)
    for plugin in inventory.plugins:
        *cells, starts = _cells(plugin)
        table.add_row(*(Text(cell) for cell in cells), Text(starts, style=colours[starts]))
    console.print(table)
    for plugin in inventory.plugins:
        if _remark(plugin):
            console.print(Text(f"{_printable(plugin.name)}: {_remark(plugin)}", style="yellow"), soft_wrap=True)
    if any(_remark(plugin) for plugin in inventory.plugins):
        console.print()


def summary(inventory: Inventory, *, loaded: bool = False) -> list[str]:
    """What would happen: in a default vLLM, and in the one installed here."""
    lines = []
    if inventory.plugins:
        lines.append(f"A default vLLM (0.31 or newer, V2 runner) {_verdict(inventory, 'v2', loaded)}")
        lines += _remedies(inventory)
    lines += [f"{_printable(target)} is installed twice and runs twice." for target in inventory.doubled()]
    engine = inventory.engine
    if engine is None:
        lines.append("vLLM is not installed here.")
        return lines
    named = "" if engine.distribution == "vllm" else f" ({engine.distribution})"
    here = f"vLLM {engine.version}{named} is installed here and uses its {engine.runner.upper()} runner"
    ending = "."
    if inventory.plugins:
        ending = f": it {_verdict(inventory, engine.runner, loaded)}"
        if engine.refusal:
            ending = f": it does NOT start with a plugin: {engine.refusal}."
        elif not engine.loads:
            ending = ": it loads none of them."
    lines.append(f"{here} ({engine.reason}){ending}")
    return lines


def _verdict(inventory: Inventory, runner: Literal["v1", "v2"], loaded: bool) -> str:
    starts = inventory.starts(runner)
    if starts is None:
        return "may or may not start." if loaded else "may or may not start; lpkit list --load tells more."
    if starts:
        count = len(inventory.plugins)
        return f"starts with {'this plugin' if count == 1 else f'these {count} plugins'}."
    reasons = []
    for plugin in inventory.blocking(runner):
        why = "is broken"
        if plugin.interface in ("v1", "v2"):
            why = f"implements {INTERFACES[plugin.interface]} only"
        elif "neither" in plugin.problem or "not a class" in plugin.problem:
            why = "is no logits processor of that interface"
        reasons.append(f"{_printable(plugin.name)} {why}")
    return f"does NOT start: {'; '.join(reasons)}."


def _remedies(inventory: Inventory) -> list[str]:
    blocking = inventory.blocking("v2")
    if not blocking:
        return []
    names = " ".join(sorted({_printable(plugin.distribution) for plugin in blocking}))
    ways = [f"pip uninstall {names}"]
    if all(plugin.interface == "v1" for plugin in blocking):
        ways.append("bridge the class in its package (lpkit.Bridged), or derive it from lpkit.LogitsProcessor")
        if inventory.starts("v1"):
            ways.append("run vLLM with VLLM_USE_V2_MODEL_RUNNER=0")
    else:
        ways.append("repair what is broken")
    return [f"Remedy: {', or '.join(ways)}."]
