"""A small program that fails, and what decides which experiments apply to it."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FunctionType
from typing import Any

import torch

from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation.advice import text_at
from lpkit_conformance.explanation.changes import MakeHost, noting_reads, renewed
from lpkit_conformance.explanation.findings import Style, number_read, style_of
from lpkit_conformance.explanation.following import history_of
from lpkit_conformance.explanation.hazards import CHANGES, Hazard, hazards
from lpkit_conformance.explanation.missed_rows import Displaced, displaced
from lpkit_conformance.explanation.row_values import Apart
from lpkit_conformance.explanation.scenes import Culprit
from lpkit_conformance.explanation.state import attributes
from lpkit_conformance.explanation.writes import Line, key_at
from lpkit_conformance.hosts import Host
from lpkit_conformance.instruments.author_lines import syntax_of
from lpkit_conformance.programs.generate import Arrive, Op, Program
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1, V2


@dataclass(frozen=True)
class Reproduction:
    """A small program that fails, and what decides which experiments apply to it.

    Attributes:
        mismatch: the row that differs.
        finding: the evidence.
        line: ``file:line`` that edited the row.
        culprit: the state at fault, if some is.
        apart: the first difference from the solo run, if there is one.
        judged: the only request that has to be right; empty: all have to.
    """

    subject: Subject
    make_host: MakeHost
    program: Program
    mismatch: Mismatch
    finding: Finding
    line: str
    culprit: Culprit | None
    apart: Apart | None
    judged: str = ""

    @property
    def request(self) -> str:
        return self.mismatch.request

    @property
    def ops(self) -> Sequence[Op]:
        return self.program.ops

    @property
    def interface(self) -> str:
        return self.subject.setup.interface

    @cached_property
    def style(self) -> Style:
        return style_of(self.subject.plugin.cls, self.subject.setup.host)

    @cached_property
    def hazards(self) -> set[Hazard]:
        return hazards(self.ops, self.interface, self.program.max_num_seqs)

    @property
    def uses(self) -> bool:
        """True if the request whose row differs uses the plugin."""
        return any(isinstance(op, Arrive) and op.request == self.request and op.variant is not None for op in self.ops)

    @property
    def mixes(self) -> bool:
        """True if other requests' values may be taken for the row's own: no state of a row is known to hold them."""
        return not (self.culprit and self.culprit.stored) and not (self.apart and self.apart.kind in ("asked", "all"))

    @property
    def pads(self) -> bool:
        """True if the padding behind the row's own values may be taken for values."""
        return self.mixes and self.style != "adapter" and not (self.culprit and self.culprit.holder)

    @property
    def keyed(self) -> bool:
        """True if what was kept for another request was found by its key."""
        if self.culprit:
            return self.culprit.keyed
        return bool(self.apart and self.apart.kind == "asked" and key_at(self.apart.line, self.apart.name))

    @property
    def at(self) -> tuple[Subject, Sequence[Op], int, Mismatch, MakeHost]:
        return self.subject, self.ops, self.program.max_num_seqs, self.mismatch, self.make_host

    @property
    def kept_in(self) -> str:
        """The name of the state at fault, or else of what the first difference is looked up in; empty without one."""
        return self.culprit.name if self.culprit else self.apart.name if self.apart else ""

    @cached_property
    def changed_inside(self) -> Line | None:
        """The line that changed what an entry of the state at fault holds, if one did."""
        history = history_of(*self.at, self.kept_in) if self.keyed else None
        return history.changed_inside if history else None

    @property
    def unequal(self) -> list[str]:
        """Names of arguments whose value differs between the wrong row's request and another request of the program."""
        cases = self.subject.cases
        users = [op for op in self.ops if isinstance(op, Arrive) and op.variant is not None]
        fields = {op.request: cases[(op.variant or 0) % len(cases)].fields for op in users}
        given = {
            name: {**args, **_flat(args.get("extra_args") or {}), "extra_args": 0} for name, args in fields.items()
        }
        judged = given.pop(self.request, {})
        names = dict.fromkeys(name for fields in (judged, *given.values()) for name in fields)
        differ = [name for name in names if any(other.get(name) != judged.get(name) for other in given.values())]
        everywhere = judged.keys() & set.intersection(*map(set, given.values())) if given else set[str]()
        return [*dict.fromkeys(name if name in everywhere else name.partition("[")[0] for name in differ)]

    def last_read(self, early: bool) -> str:
        """Return ``file:line`` of the last read of an output list, or empty; ``early``: one with an unknown token."""
        reads = list[tuple[str, bool]]()
        if self.interface == V1 and self.style != "portable":
            played(self, noting_reads(self.make_host, reads))
        return next((line for line, unknown in reversed(reads) if line and (unknown or not early)), "")

    @cached_property
    def late(self) -> tuple[str, str]:
        """``file:line`` of the functions that share a variable, and its name if it is not the state at fault; empty if
        they do not."""
        name = self.culprit.name if self.culprit else ""
        holds = name.isidentifier() or (self.culprit is not None and self.culprit.opaque)
        line, variable = _shared_variable(played(self, self.make_host), name) if holds else ("", "")
        return line, variable * (variable != name)

    @cached_property
    def ended(self) -> str:
        """``file:line`` that ended the call for all rows before it came to this row; empty if none did.

        That is a return in a loop, or the condition around one if it has another result than alone.
        """
        several = sum(isinstance(op, Arrive) for op in self.ops) > 1
        if not (several and self.mismatch.kind == "lost" and self._by_rows):
            return ""
        file, _, number = self.line.rpartition(":")
        nodes = list(ast.walk(syntax_of(file)))
        loops = [
            node for node in nodes if isinstance(node, ast.For) and node.lineno < int(number) <= (node.end_lineno or 0)
        ]
        if loops and re.match(r"\s*return\b", text_at(self.line)):
            return self.line
        calls = [
            part
            for node in nodes
            if isinstance(node, ast.FunctionDef) and node.name == "apply"
            for part in ast.walk(node)
        ]
        ways = [
            f"{file}:{node.lineno}"
            for node in calls
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return)
        ]
        return self.apart.line if self.apart and self.apart.kind == "way" and self.apart.line in ways else ""

    @cached_property
    def displaced(self) -> Displaced | None:
        """The other request whose edit the row got, in a batch that stays as it is."""
        return displaced(*self.at) if self._by_rows else None

    @property
    def _by_rows(self) -> bool:
        """True if the plugin edits the rows of a batch that stays as it is, and no state is at fault."""
        return not (self.culprit or self.style == "adapter" or self.hazards & CHANGES)

    @cached_property
    def afresh(self) -> bool:
        """True if a new instance that gets the requests of the step makes the same row: no earlier step is at fault."""
        rows = list[torch.Tensor]()
        for make_host in (self.make_host, renewed(self.make_host, self.mismatch.step)):
            with contextlib.suppress(Exception), self.subject.as_imported():  # whatever a new instance raises
                host = make_host(self.subject, self.program.max_num_seqs)
                seen = next(seen for seen in host.run(self.ops) if seen.shows(self.mismatch.step, self.request))
                rows.append(seen.after[self.mismatch.row])
        return len(rows) > 1 and torch.equal(*rows)

    @property
    def number(self) -> str:
        """The number of a row or slot that the first line with another value reads; empty if it has no usual name."""
        return number_read(self.apart.line) if self.apart else ""

    @property
    def by_slot(self) -> bool:
        """True if a value of another slot may be taken for that of the row, which keeps its slot."""
        number = self.culprit is not None and self.culprit.common and not self.culprit.table
        return self.style == "raw" and self.interface == V2 and self.mixes and not (number or self.hazards & CHANGES)

    def judging(self, request: str, *programs: Sequence[Op]) -> list[Reproduction]:
        """Return the same of a single request, with each of these programs; none if one of them is empty."""
        return [replace(case, judged=request) for case in self.doing(*programs)] if all(programs) else []

    def doing(self, *programs: Sequence[Op]) -> list[Reproduction]:
        """Return the same with each of these programs; an empty one is none."""
        return [replace(self, program=replace(self.program, ops=tuple(ops))) for ops in programs if ops]


def _flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with an entry for each argument inside an object."""
    objects = {name: value for name, value in arguments.items() if isinstance(value, dict)}
    inner = {f"{name}[{key!r}]": item for name, value in objects.items() for key, item in value.items()}
    return {name: value for name, value in arguments.items() if name not in objects} | inner


def played(case: Reproduction, make_host: MakeHost) -> Host:
    """Return a host that has run the program."""
    with case.subject.as_imported():
        host = make_host(case.subject, case.program.max_num_seqs)
        for _ in host.run(case.ops):
            pass
    return host


def _shared_variable(host: Host, name: str) -> tuple[str, str]:
    """Return ``file:line`` of functions that are kept for two requests and share a variable, and its name; else empty.

    Args:
        host: one that has run.
        name: of the variable, or else of the attribute that holds the functions.
    """
    kept = [value for key, value in attributes(host.processor) if name.isidentifier() or f"self.{key}" in name]
    for _ in range(2):  # tables of functions, or of tuples with functions
        parts = [[*part.values()] if isinstance(part, dict) else part for part in kept]
        kept = [item for part in parts for item in (part if isinstance(part, list | tuple) else [part])]
    met: set[tuple[str, int]] = set()
    for function in (part for part in kept if isinstance(part, FunctionType)):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for variable in (name,) if name.isidentifier() else cells.keys() - {"self"}:
            if (variable, id(cells.get(variable))) in met:
                return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}", variable
            met |= {(variable, id(cells[variable]))} if variable in cells else set()
    return "", ""
