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
    answers: list[Answer] = []
    while left := inventory.plugins[len(answers) :]:
        with Child("lpkit_conformance.discovery.child:load") as child:
            try:
                child.call(sys.path, limit)
                for plugin in left:
                    entry = [plugin.name, plugin.target]
                    answers.append({} if entry == ["?", "?"] else child.call(entry, limit))
            except Lost as loss:
                answers.append({"problem": f"importing it {import_problem(loss)}"})
    return replace(inventory, plugins=tuple(map(_rejudged, inventory.plugins, answers)))


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
