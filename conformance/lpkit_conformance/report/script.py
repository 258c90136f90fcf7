"""A saved failure as a file for pytest that stands alone: to run, to debug, and to attach to a bug report."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from lpkit import __version__

from lpkit_conformance.programs.generate import Op, Program
from lpkit_conformance.report.text import finding_lines, rule_of
from lpkit_conformance.results import CheckResult
from lpkit_conformance.run.failures import Failure

WIDTH = 110
SCRIPT = '''"""{words}
"""

{imports}
from lpkit_conformance.testing import compute_check, require

{paths}TARGET = {target}


def test_{name}() -> None:
{operations}    result = compute_check(
{arguments}
    )
    require(result)
'''


def script(failure: Failure, result: CheckResult | None, spec: str, import_path: list[str], folder: Path) -> str:
    """Return the text of the script.

    Args:
        result: of the check, if it has just run again.
        spec: the target as Python finds it: ``module:Class`` or ``path/to/file.py:Class``.
        import_path: additional folders that the target is imported from.
        folder: the folder of the script; paths in it are relative to this folder.
    """
    plan = failure.plan
    path, _, name = (spec, "", "") if spec.endswith(".py") else spec.rpartition(":")
    is_file = path.endswith(".py")
    paths = [] if is_file else [f"sys.path.insert(0, str({_path(entry, folder)}))\n" for entry in import_path]
    given = {
        "host": failure.host,
        "case": json.loads(plan.cases[0].text),
        **({"others": [case.to_json() for case in plan.others]} if plan.others else {}),
        "seed": plan.seed,
        "vocab_size": plan.vocab_size,
        "max_num_seqs": plan.max_num_seqs,
        **({"trace": plan.trace} if plan.trace else {}),
    }
    arguments = [_literal(failure.code), "TARGET", *(f"{key}={_literal(value)}" for key, value in given.items())]
    if plan.program:
        arguments.append("program=operations")
    imports = ["import sys"] * bool(paths) + ["from pathlib import Path"] * (is_file or bool(paths))
    in_file = f"str({_path(path, folder)})" + (f" + {_literal(f':{name}')}" if name else "")
    return SCRIPT.format(
        words="\n".join(_words(failure, result)).replace("\\", "\\\\").replace('"""', "'''"),
        imports="\n".join([*imports, *[""] * bool(imports), *_import_of(plan.program)]).rstrip("\n"),
        paths="".join(paths),
        target=in_file if is_file else _literal(spec),
        name=re.sub(r"\W", "_", f"{failure.code}_{failure.host}".strip("_").lower()),
        operations="".join(_operations(plan.program)),
        arguments=_indented(arguments),
    )


def _words(failure: Failure, result: CheckResult | None) -> Iterator[str]:
    """The docstring: the failure as it was reported."""
    finding = result.finding if result else None
    yield from (f"{failure.code} on {failure.host.upper()}: {rule_of(failure.code)}.", "")
    yield finding.summary if finding else "It passed when this file was written."
    if finding:
        yield ""
        for line in textwrap.dedent("\n".join(finding_lines(finding))).splitlines():
            # A line that fits stays as it is: tables are aligned by spaces.
            yield from textwrap.wrap(line, WIDTH, subsequent_indent=" " * 12) if len(line) > WIDTH else [line]
    yield ""
    yield f"Written by lpkit {__version__}. Run it with pytest; `lpkit explain {failure.code}` tells more of the rule."


def _import_of(program: Program | None) -> list[str]:
    names = sorted({type(op).__name__ for op in program.ops}) if program else []
    return [f"from lpkit_conformance.programs.generate import {', '.join([*names, 'program'])}"] if program else []


def _operations(program: Program | None) -> Iterator[str]:
    """The program, each operation as source code."""
    if program is not None:
        parts = [_literal(program.name), *map(_operation, program.ops), f"max_num_seqs={program.max_num_seqs}"]
        yield f"    operations = program(\n{_indented(parts)}\n    )\n"


def _operation(op: Op) -> str:
    """``Arrive("a", variant=0)``: fields without a default by position, fields that differ from it by name."""
    given = []
    for item in fields(op):  # type: ignore[arg-type]
        value = getattr(op, item.name)
        if item.default is MISSING:
            given.append(_literal(value))
        elif value != item.default or item.name == "variant":
            given.append(f"{item.name}={_literal(value)}")
    return f"{type(op).__name__}({', '.join(given)})"


def _indented(arguments: list[str]) -> str:
    return textwrap.indent("".join(f"{argument},\n" for argument in arguments).rstrip("\n"), " " * 8)


def _literal(value: Any) -> str:
    """Python for plain data, with the quotes that formatters use."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        opening, closing = "[]" if isinstance(value, list) else "()"
        return f"{opening}{', '.join(map(_literal, value))}{closing}"
    return repr(value)


def _path(path: str, folder: Path) -> str:
    """A path relative to the script, in any working folder."""
    try:
        relative = os.path.relpath(path, folder)
    except ValueError:  # another drive
        relative = str(Path(path).resolve())
    return f"Path(__file__).parent / {_literal(Path(relative).as_posix())}"
