"""The parts of a document that are contract: keys, types, codes and verdicts, without the prose."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

NAMES = {bool: "<bool>", int: "<number>", float: "<number>", str: "<text>", type(None): None}


def shape(value: Any, literal: Collection[str] = (), key: str = "") -> Any:
    """Return ``value`` with every leaf replaced by its type, except below the keys ``literal``.

    A list becomes a single shape that fits all of its items, independent of their number.
    """
    if key in literal:
        return value
    if isinstance(value, Mapping):
        return {name: shape(item, literal, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        merged: Any = None
        for number, item in enumerate(value):
            now = shape(item, literal)
            merged = now if not number else merge(merged, now)
        return [merged] if value else []
    return NAMES[type(value)]


def merge(first: Any, second: Any) -> Any:
    """A shape that allows both; objects are merged key by key, lists item by item."""
    options = _options(first)
    for option in _options(second):
        kin = next((item for item in options if type(item) is type(option) and isinstance(item, dict | list)), None)
        if kin is None:
            options += [] if option in options else [option]
        else:
            options[options.index(kin)] = _merged(kin, option)
    return options[0] if len(options) == 1 else {"or": sorted(options, key=repr)}


def _options(value: Any) -> list[Any]:
    return [*value["or"]] if isinstance(value, dict) and value.keys() == {"or"} else [value]


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, list):
        return [merge(first[0], second[0])] if first and second else first or second
    names = dict.fromkeys((*first, *second))
    return {name: merge(first.get(name, "<absent>"), second.get(name, "<absent>")) for name in names}


def report(document: dict[str, Any]) -> dict[str, Any]:
    """A ``lpkit.check/1`` document: its shape, and of each target what programs decide by."""
    return {
        **shape(document),
        "schema": document["schema"],
        "verdict": document["verdict"],
        "facts": [
            {
                **{key: target[key] for key in ("target", "verdict", "hosts", "interface")},
                "error": bool(target["error"]),
                "checks": _by_status(target["checks"]),
                "failures": sorted(_failure(item) for item in target["checks"] if item["finding"]),
                "findings": [" ".join((item["code"], item["status"], *item["checks"])) for item in target["findings"]],
            }
            for target in document["targets"]
        ],
    }


def _by_status(checks: list[dict[str, Any]]) -> dict[str, str]:
    """Labels of checks by their status and family, a line each; codes.txt holds their names."""
    table: dict[str, list[str]] = {}
    for item in sorted(checks, key=lambda item: (item["code"], item["host"])):
        label = item["code"] + (f"[{item['host']}]" if item["host"] else "")
        table.setdefault(f"{item['status']} {item['code'][:3]}", []).append(label)
    return {key: " ".join(labels) for key, labels in table.items()}


def _failure(item: dict[str, Any]) -> str:
    location = re.sub(r".*/(.*:)\d+$", r"\1<line>", item["finding"]["location"])
    parts = (item["code"], item["name"], item["host"], item["status"], location, item["finding"]["saved"])
    return " ".join(filter(None, parts))
