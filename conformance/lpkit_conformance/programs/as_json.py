"""Programs as JSON: what a saved failure holds, readable and editable by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from lpkit._nearest import suggest

from lpkit_conformance.errors import FailureFileError
from lpkit_conformance.programs.generate import (
    Arrive,
    Finish,
    Idle,
    Op,
    Preempt,
    Program,
    Resume,
    Speculate,
    Step,
    Swap,
)

KINDS: dict[str, type[Op]] = {
    "arrive": Arrive,
    "finish": Finish,
    "preempt": Preempt,
    "resume": Resume,
    "swap": Swap,
    "step": Step,
    "idle": Idle,
    "speculate": Speculate,
}
NAMES = {kind: name for name, kind in KINDS.items()}

LEAST = {"count": 1, "prompt_len": 1, "drafts": 1}
"""Least values of whole numbers; all others start at 0."""

MOST = 10_000
"""Greatest value of whole numbers: enough for anything, and no typing error runs for a day."""


def op_to_json(op: Op) -> dict[str, Any]:
    """``{"op": "arrive", "request": "a", "variant": 0, ...}``; other fields with their default are left out."""
    fields_by_name: dict[str, Any] = {"op": NAMES[type(op)]}
    for item in fields(op):  # type: ignore[arg-type]
        value = getattr(op, item.name)
        if item.default is MISSING or value != item.default or item.name == "variant":
            fields_by_name[item.name] = value
    return fields_by_name


def op_from_json(value: object) -> Op:
    """Inverse of :func:`op_to_json`.

    Raises:
        FailureFileError: naming the unknown operation or field with its nearest match, or the value that does not fit.
    """
    if not isinstance(value, Mapping):
        raise FailureFileError(f'an operation is an object like {{"op": "step"}}, not {value!r}')
    name = value.get("op")
    if not isinstance(name, str) or name not in KINDS:
        raise FailureFileError(f"unknown operation {name!r}", suggest(str(name), KINDS))
    kind = KINDS[name]
    hints = _hints(name)
    given = {key: item for key, item in value.items() if key != "op"}
    for key, item in given.items():
        if key not in hints:
            raise FailureFileError(f"{name} has no field {key!r}", suggest(key, hints))
        if type(item) not in hints[key]:
            wanted = " or ".join(WORDS[hint] for hint in hints[key])
            raise FailureFileError(f"{name}: {key} must be {wanted}, not {item!r}")
        if type(item) is int and not LEAST.get(key, 0) <= item <= MOST:
            raise FailureFileError(f"{name}: {key} must be between {LEAST.get(key, 0)} and {MOST}, not {item}")
    for item in fields(kind):  # type: ignore[arg-type]
        if item.default is MISSING and item.name not in given:
            raise FailureFileError(f"{name} needs a field {item.name!r}")
    op = kind(**given)
    if isinstance(op, Speculate) and op.accepted > op.drafts:
        raise FailureFileError(f"speculate: accepted ({op.accepted}) cannot exceed drafts ({op.drafts})")
    return op


def program_to_json(program: Program) -> dict[str, Any]:
    """``{"name", "max_num_seqs", "operations"}``."""
    return {
        "name": program.name,
        "max_num_seqs": program.max_num_seqs,
        "operations": [op_to_json(op) for op in program.ops],
    }


def program_from_json(value: Mapping[str, Any]) -> Program:
    """Inverse of :func:`program_to_json`.

    Raises:
        FailureFileError: naming the operation by its number, from 1.
    """
    operations, size = value.get("operations"), value.get("max_num_seqs")
    if not isinstance(operations, list) or not operations:
        raise FailureFileError("operations must be a list with at least one operation")
    if type(size) is not int or not 1 <= size <= MOST:
        raise FailureFileError(f"the program's max_num_seqs must be between 1 and {MOST}, not {size!r}")
    ops = []
    for number, item in enumerate(operations, 1):
        try:
            ops.append(op_from_json(item))
        except FailureFileError as error:
            raise FailureFileError(f"operation {number}: {error}") from None
    return Program(str(value.get("name", "")), tuple(ops), size)


WORDS = {str: "a string", int: "a whole number", bool: "true or false", NoneType: "null"}


@cache
def _hints(name: str) -> dict[str, tuple[type, ...]]:
    return {field: get_args(hint) or (hint,) for field, hint in get_type_hints(KINDS[name]).items()}
