"""A saved failure as a file for pytest that stands alone: to run, to debug, and to attach to a bug report."""

from __future__ import annotations

import json
import os
import pprint
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from lpkit import __version__

from lpkit_conformance.failures import Failure
from lpkit_conformance.programs.generate import Op, Program
from lpkit_conformance.report.text import finding_lines, rule_of
from lpkit_conformance.results import CheckResult

INDENT = " " * 8
WIDTH = 110


def script(failure: Failure, result: CheckResult | None, spec: str, import_path: list[str], folder: Path) -> str:
    """Return the text of the script.

    Args:
        result: of the check, if it has just run again.
        spec: the target as Python finds it: ``module:Class`` or ``path/to/file.py:Class``.
        import_path: additional folders that the target is imported from.
        folder: the folder of the script; paths in it are relative to this folder.
    """
    plan = failure.plan
    is_file = spec.endswith(".py") or spec.rpartition(":")[0].endswith(".py")
    paths = [] if is_file else [_relative(path, folder) for path in import_path]
    values = {
        "host": failure.host,
        "case": json.loads(plan.cases[0].text),
        "seed": plan.seed,
        "vocab_size": plan.vocab_size,
        "max_num_seqs": plan.max_num_seqs,
        **({"trace": plan.trace} if plan.trace else {}),
    }
    lines = [
        *_docstring(failure, result),
        "",
        *(["import sys"] if paths else []),
        *(["from pathlib import Path"] if paths or is_file else []),
        *([""] if paths or is_file else []),
        *_operations_import(plan.program),
        "from lpkit_conformance.testing import compute_check, require",
        "",
        *(f"sys.path.insert(0, str(Path(__file__).parent / {_literal(path)}))" for path in paths),
        f"TARGET = {_target(spec, folder) if is_file else _literal(spec)}",
        "",
        "",
        f"def test_{_name(failure)}() -> None:",
        *_program(plan.program),
        "    result = compute_check(",
        f"{INDENT}{_literal(failure.code)},",
        f"{INDENT}TARGET,",
        *(_argument(key, value) for key, value in values.items()),
        *([f"{INDENT}program=operations,"] if plan.program else []),
        "    )",
        "    require(result)",
    ]
    return "\n".join(lines) + "\n"


def _docstring(failure: Failure, result: CheckResult | None) -> Iterator[str]:
    """Describe the failure; nothing in the text can end the docstring."""
    finding = result.finding if result else None
    evidence = [finding.summary] if finding else ["It passed when this file was written."]
    if finding:
        lines = textwrap.dedent("\n".join(finding_lines(finding))).splitlines()
        evidence += ["", *(part for line in lines for part in _wrapped(line))]
    label = f"{failure.code} on {failure.host.upper()}: {rule_of(failure.code)}."
    written = (
        f"Written by lpkit {__version__}. Run it with pytest; `lpkit explain {failure.code}` tells more of the rule."
    )
    text = "\n".join([label, "", *evidence, "", written])
    yield '"""' + text.replace("\\", "\\\\").replace('"""', "'''") + '\n"""'


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 12, drop_whitespace=True) if len(line) > WIDTH else [line]


def _operations_import(program: Program | None) -> list[str]:
    if program is None:
        return []
    names = sorted({type(op).__name__ for op in program.ops})
    return [f"from lpkit_conformance.programs.generate import {', '.join([*names, 'program'])}"]


def _program(program: Program | None) -> Iterator[str]:
    """The operations, each as source code."""
    if program is None:
        return
    yield "    operations = program("
    yield f"{INDENT}{_literal(program.name)},"
    yield from (f"{INDENT}{_operation(op)}," for op in program.ops)
    yield f"{INDENT}max_num_seqs={program.max_num_seqs},"
    yield "    )"


def _operation(op: Op) -> str:
    """``Arrive('a', 0, prompt_len=9)``: what has no default by position, what differs from it by name."""
    given = []
    for item in fields(op):  # type: ignore[arg-type]
        value = getattr(op, item.name)
        if item.default is MISSING:
            given.append(_literal(value))
        elif value != item.default or item.name == "variant":
            given.append(f"{item.name}={_literal(value)}")
    return f"{type(op).__name__}({', '.join(given)})"


def _argument(key: str, value: Any) -> str:
    text = f"{key}={_literal(value)},"
    if len(text) > WIDTH:
        text = f"{key}={pprint.pformat(value, width=WIDTH, sort_dicts=False)},"
    return textwrap.indent(text, INDENT)


def _literal(value: Any) -> str:
    """Python for plain data, with the quotes that formatters use."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))})"
    return repr(value)


def _target(spec: str, folder: Path) -> str:
    """Import a class from its file, in any working folder."""
    file, name = (spec, "") if spec.endswith(".py") else spec.rsplit(":", 1)
    path = f"Path(__file__).parent / {_literal(_relative(file, folder))}"
    return f"str({path}) + {_literal(f':{name}')}" if name else f"str({path})"


def _relative(path: str, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive
        return Path(path).resolve().as_posix()


def _name(failure: Failure) -> str:
    return re.sub(r"\W", "_", f"{failure.code}_{failure.host}".strip("_").lower())
