"""Template variables of a target for ``lpkit new --wrap``: its import, and the keys that switch it on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lpkit_conformance.errors import CaseError

if TYPE_CHECKING:
    from lpkit_conformance.discovery.bridgeable import Bridgeable

    from lpkit_cli.scaffold.naming import Names

MAX_LINE = 120

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def context(target: Bridgeable, names: Names, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the template's variables for ``target``; without ``cases``, a case is guessed.

    Raises:
        CaseError: a case cannot be written as TOML.
    """
    root, dot, rest = target.name.partition(".")
    alias = f"Wrapped{root}" if root == names.class_name else root
    guessed = not cases and target.kind != "callable"
    cases = cases or [guess(target, names)]
    example: dict[str, Any] = next((case["extra_args"] for case in cases if case.get("extra_args")), {})
    keys = ", ".join(f'"{key}"' for key in target.keys)
    return {
        "wraps": f"{target.module}:{target.name}",
        "_wrap_kind": target.kind,
        "_wrap_import": import_line(target.module, root, alias),
        "_wrapped_name": f"{alias}{dot}{rest}",
        "_wrap_keys": f"{keys}," if len(target.keys) == 1 else keys,
        "_requirement": target.distributions[0] if target.distributions else "",
        "_cases": "\n".join(f"  {toml(case)}," for case in cases),
        "_cases_are_guessed": guessed,
        "_example_json": json.dumps(example),
        "_example_python": python(example),
    }


def import_line(module: str, name: str, alias: str) -> str:
    """Return ``from module import name``, wrapped if it is too long."""
    what = name if name == alias else f"{name} as {alias}"
    line = f"from {module} import {what}"
    return line if len(line) <= MAX_LINE else f"from {module} import (\n    {what},\n)"


def guess(target: Bridgeable, names: Names) -> dict[str, Any]:
    """Make a case with a value for each key that the target's module reads."""
    if target.kind == "callable":
        return {"extra_args": {names.package: True}}
    return {"extra_args": {key: _value(key) for key in target.keys}} if target.keys else {}


def _value(key: str) -> Any:
    words = re.split(r"[_\W]+", key.lower())
    if words[-1] in ("ids", "tokens"):
        return [7, 8]
    if {"token", "id", "target"} & set(words):
        return 7
    if {"p", "prob", "probability", "ratio", "threshold"} & set(words):
        return 0.5
    if {"n", "k", "size", "window", "length", "len", "count", "max", "min", "seed", "after"} & set(words):
        return 2
    return 1.5


def toml(value: Any) -> str:
    """Write a JSON value as inline TOML.

    Raises:
        CaseError: the value holds null, which TOML lacks.
    """
    if value is None:
        raise CaseError("a case in pyproject.toml cannot hold null")
    if isinstance(value, Mapping):
        parts = (
            f"{key if _BARE_KEY.fullmatch(key) else json.dumps(key)} = {toml(item)}" for key, item in value.items()
        )
        return f"{{ {', '.join(parts)} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return json.dumps(value)


def python(value: Any) -> str:
    """Write a JSON value as Python, with double quotes."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)}: {python(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(python, value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
