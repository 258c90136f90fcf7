"""The text of ``lpkit list``: the installed plugins."""

from __future__ import annotations

import sys
from typing import IO, Literal

from lpkit_conformance.discovery.installed import DiscoveredPlugin, Inventory
from lpkit_conformance.report import terminal
from lpkit_conformance.report.terminal import one_line
from lpkit_conformance.settings.hosts import RUNNER_HOSTS, in_words
from lpkit_conformance.vllm_api.facts import in_short
from lpkit_conformance.vllm_api.releases import V2_PROCESSORS_SINCE

COLUMNS = ("NAME", "TARGET", "DISTRIBUTION", "INTERFACE", "DEFAULT VLLM STARTS")
INTERFACES = {"v1": "V1", "v2": "V2", "both": "V1 + V2", "unknown": "unknown"}
ANSWERS = {True: "yes", False: "no", None: "unknown"}


def show(inventory: Inventory, file: IO[str], *, loaded: bool = False, verbose: bool = False) -> None:
    """Print the plugins as a table, and vLLM's treatment of them.

    Args:
        loaded: the plugins were imported.
        verbose: also print where each plugin can run.
    """
    lines = [f"No logits processor is installed in {sys.prefix}.", "Start one with: lpkit new my-proc"]
    if inventory.plugins:
        lines = plain_table(inventory.plugins)
    lines += ["", *summary(inventory, loaded=loaded)]
    if verbose and inventory.plugins:
        lines += ["", *map(_where, inventory.plugins)]
    terminal.show(lines, file)


def _cells(plugin: DiscoveredPlugin) -> tuple[str, ...]:
    cells = (
        plugin.name,
        plugin.target,
        f"{plugin.distribution} {plugin.version}",
        INTERFACES[plugin.interface],
        ANSWERS[plugin.starts_v2],
    )
    return tuple(one_line(cell) for cell in cells)


def _where(plugin: DiscoveredPlugin) -> str:
    """The runners and the exports that a plugin works with."""
    from lpkit import export

    runners = in_words(runner for runner in RUNNER_HOSTS if plugin.interface in (runner, "both"))
    where = f"vLLM's {runners}" if runners else "no runner that is known"
    # Continuous batching shows a processor no history.
    no_history = plugin.reads == "none" and plugin.interface == "both"
    engines = ", ".join(name for name in export.__all__ if no_history or name != "continuous_batching")
    elsewhere = {
        True: f"; in other engines through lpkit.export ({engines})",
        False: "; not in other engines: lpkit.export needs V1's interface",
        None: "; whether lpkit.export takes it to other engines is not known",
    }
    return f"{one_line(plugin.name)} runs on {where}{elsewhere[plugin.exports]}."


def plain_table(plugins: tuple[DiscoveredPlugin, ...]) -> list[str]:
    """Return aligned lines, each plugin's remark below its line."""
    heading, *rows = terminal.table([COLUMNS, *map(_cells, plugins)])
    remarks = (one_line("; ".join(filter(None, (plugin.problem, plugin.note)))) for plugin in plugins)
    pairs = ((row, f"  ! {remark}" if remark else "") for row, remark in zip(rows, remarks, strict=True))
    return [heading, *(line for pair in pairs for line in pair if line)]


def summary(inventory: Inventory, *, loaded: bool = False) -> list[str]:
    """Describe the effect in a default vLLM, and in the installed vLLM."""
    lines = []
    if inventory.plugins:
        lines.append(
            f"A default vLLM ({in_short(V2_PROCESSORS_SINCE)} or newer, V2 runner) {_verdict(inventory, 'v2', loaded)}"
        )
        lines += ["lpkit doctor says what to do about it."] if inventory.blocking("v2") else []
    lines += [f"{one_line(target)} is installed twice and runs twice." for target in inventory.doubled()]
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
        return "may or may not start." if loaded else "may or may not start; run lpkit list --load to find out."
    if starts:
        count = len(inventory.plugins)
        return f"starts with {'this plugin' if count == 1 else f'these {count} plugins'}."
    reasons = []
    for plugin in inventory.blocking(runner):
        why = "is broken"
        if plugin.interface in ("v1", "v2"):
            why = f"implements {INTERFACES[plugin.interface]} only"
        elif "neither" in plugin.problem or "not a class" in plugin.problem:
            why = "is not a logits processor of that interface"
        reasons.append(f"{one_line(plugin.name)} {why}")
    return f"does NOT start: {'; '.join(reasons)}."
