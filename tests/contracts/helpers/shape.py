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
    """A shape that allows both."""
    if first == second:
        return first
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return {
            name: merge(first.get(name, "<absent>"), second.get(name, "<absent>"))
            for name in sorted({**first, **second})
        }
    if isinstance(first, list) and isinstance(second, list):
        return [merge(first[0], second[0])] if first and second else first or second
    options = [*(first["or"] if isinstance(first, dict) and "or" in first else [first])]
    return {"or": sorted([*options, *([second] if second not in options else [])], key=repr)}


def report(document: dict[str, Any]) -> dict[str, Any]:
    """A ``lpkit.check/1`` document: the checks sorted by label, the evidence by its keys."""
    return {
        **document,
        "targets": [
            {
                **target,
                "against": "<text>",
                "error": bool(target["error"]),
                "notes": [] if target["notes"] == [] else ["<text>"],
                "settings": shape(target["settings"]),
                "findings": [{**entry, "message": "<text>", "location": "<text>"} for entry in target["findings"]],
                "checks": [
                    _check(item) for item in sorted(target["checks"], key=lambda item: (item["code"], item["host"]))
                ],
            }
            for target in document["targets"]
        ],
    }


PASSED = {"message": "<text>", "finding": None, "seconds": "<number>"}


def _check(item: dict[str, Any]) -> Any:
    """One line for most checks; failures in full."""
    found = {
        **item,
        **shape({"message": item["message"], "seconds": item["seconds"]}),
        "finding": None if item["finding"] is None else _finding(item["finding"]),
    }
    label = {key: found.pop(key) for key in ("code", "name", "host", "status")}
    return " ".join(filter(None, label.values())) if found == PASSED else {**label, **found}


def _finding(finding: dict[str, Any]) -> dict[str, Any]:
    return {
        **shape(finding),
        "where": shape(finding["where"]),
        "location": re.sub(r".*/(.*:)\d+$", r"\1<line>", finding["location"]),
        "saved": finding["saved"],
    }
