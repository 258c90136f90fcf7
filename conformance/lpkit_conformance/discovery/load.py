"""Loads each installed plugin in a child process: a plugin that crashes, hangs or exits becomes a row."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Final

from lpkit_conformance.discovery.installed import DiscoveredPlugin, Inventory, judge
from lpkit_conformance.discovery.interfaces import Deduction
from lpkit_conformance.processes.supervise import Child, Lost

TIME_LIMIT: Final = 120.0
"""Seconds per plugin; importing vLLM takes 5 to 20 of them."""

Answer = dict[str, Any]


def load(inventory: Inventory, limit: float = TIME_LIMIT) -> Inventory:
    """Judge each plugin of an inventory by the object that it loads along ``sys.path``.

    A plugin that ends its process, or takes longer than ``limit`` seconds, gets a problem with that text.
    """
    entries = [(index, plugin.name, plugin.target) for index, plugin in enumerate(inventory.plugins)]
    answers: dict[int, Answer] = {index: {} for index, *entry in entries if entry == ["?", "?"]}
    while todo := [entry for entry in entries if entry[0] not in answers]:
        _load_some(todo, limit, answers)
    plugins = (_rejudged(plugin, answers[index]) for index, plugin in enumerate(inventory.plugins))
    return replace(inventory, plugins=tuple(plugins))


def _load_some(todo: list[tuple[int, str, str]], limit: float, answers: dict[int, Answer]) -> None:
    """Collect answers until the child ends. If it is lost, the plugin that it began last is to blame."""
    current: list[int] = []
    with Child("lpkit_conformance.discovery.child:load") as child:
        child.send({"path": sys.path, "entries": todo}, limit)
        try:
            for event in child.events(limit):
                if event["event"] == "begun":
                    current = [event["index"]]
                else:
                    answers[current[0]] = event["answer"]
        except Lost as loss:
            # Without a begun plugin there is none to blame, and another child would end the same way.
            problem = f"{'importing it' if current else 'the process that imports it'} {import_problem(loss)}"
            answers |= {index: {"problem": problem} for index in current or [entry[0] for entry in todo]}


def import_problem(loss: Lost) -> str:
    """Return how the import ended, as the end of a sentence."""
    return f"{loss.did}{f': {loss.last_line}' if loss.last_line else ''}"


def _rejudged(plugin: DiscoveredPlugin, answer: Answer) -> DiscoveredPlugin:
    if not answer:
        return plugin
    if "skipped" in answer:
        return replace(plugin, note="; ".join(filter(None, (plugin.note.partition("; try")[0], answer["skipped"]))))
    if "interfaces" in answer:
        deduction = Deduction(frozenset(answer["interfaces"]), complete=True, problem=answer["problem"])
    else:
        deduction = Deduction(problem=answer["problem"], importable=False)
    blank = DiscoveredPlugin(plugin.name, plugin.target, plugin.distribution, plugin.version, source="import")
    judged = judge(blank, deduction)
    # Importing shows what a class reads only for classes of lpkit; otherwise its source does.
    return replace(judged, defined=answer.get("defined", plugin.defined), reads=answer.get("reads") or plugin.reads)
