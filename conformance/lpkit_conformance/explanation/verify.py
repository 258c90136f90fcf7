"""Runs programs on a subject and turns the first departure from the oracle into a finding."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lpkit_conformance.activity.stand import Stance, stand_at
from lpkit_conformance.expectation.compare import Mismatch, compare, unequal
from lpkit_conformance.expectation.solo import SoloRuns, fresh_batch, solo_runs
from lpkit_conformance.explanation import findings
from lpkit_conformance.explanation.advice import cause, fix
from lpkit_conformance.explanation.blame import blamed
from lpkit_conformance.explanation.changes import MakeHost, with_rows_mapped
from lpkit_conformance.explanation.culprit import find_culprit, find_raising
from lpkit_conformance.explanation.hazards import SHORT, Hazard, fix_for, fix_for_exception, hazards, without
from lpkit_conformance.explanation.missed_rows import deciding_line
from lpkit_conformance.explanation.picture import record_frames
from lpkit_conformance.explanation.repairs import FORGETS, MOVES, Edited, Missing, find_repair
from lpkit_conformance.explanation.reproduction import Reproduction
from lpkit_conformance.explanation.room import with_room
from lpkit_conformance.explanation.row_values import first_apart
from lpkit_conformance.explanation.steps import RequestRow, rows_of
from lpkit_conformance.explanation.timeline import with_batch
from lpkit_conformance.hosts import Observation, PluginError, default_host
from lpkit_conformance.hosts.v2 import Manner
from lpkit_conformance.programs import shrink
from lpkit_conformance.programs.as_json import program_to_json
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Program, Speculate, Swap
from lpkit_conformance.results import Failed, Finding, NeverActive
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V2

LATER = 3
"""Output tokens of a request that is no longer in its first step."""

Trouble = Mismatch | PluginError
"""A row that differs, or an exception of the plugin."""

Outcome = Callable[[Sequence[Op]], Trouble | None]


def verify(
    subject: Subject, programs: Iterable[Program], make_host: MakeHost = default_host, hazard: Hazard | None = None
) -> str:
    """Hold every program against its requests' solo runs.

    Args:
        hazard: the purpose of the programs; a finding has the fix for it if its program still holds it.

    Raises:
        Failed: with the shrunk program, on the first row that differs or when the plugin raises.
        NeverActive: if the plugin never changed a logit.
    """
    solo = solo_runs(subject)
    acted = False
    rows = 0
    if subject.setup.program is not None:
        programs = [subject.setup.program]
    programs = [*programs]
    for program in programs:
        ran = _run(subject, program, solo, make_host)
        acted |= ran.acts
        rows += ran.judged
        if ran.trouble is not None:
            raise Failed(explained(subject, program, ran.trouble, make_host, hazard, others=programs))
    if not acted:
        raise NeverActive
    return f"{rows} rows"


def explained(
    subject: Subject,
    program: Program,
    trouble: Trouble,
    make_host: MakeHost = default_host,
    hazard: Hazard | None = None,
    solo: SoloRuns | None = None,
    others: Sequence[Program] = (),
) -> Finding:
    """Return the finding for the first trouble of a program; ``hazard``: see :func:`verify`.

    ``solo``: the rows that are expected. ``others``: further programs of the check.
    """
    outcome = partial(_outcome, subject, program, make_host, solo=solo)
    finding, small, proven = _finding(subject, program, trouble, outcome, make_host)
    smallest = outcome(small.ops)
    joins = _joining(subject, small, smallest, make_host) if isinstance(smallest, Mismatch) else None
    finding = _repaired(finding, subject, (small, program, *others), make_host, joins, proven)
    return replace(finding, fix=finding.fix or _fix(subject, small, finding, trouble, hazard))


def survive(subject: Subject, program: Program) -> None:
    """Run a program and compare nothing.

    Raises:
        Failed: with the shrunk program, when the plugin raises an exception.
    """
    program = subject.setup.program or program

    def fails(ops: Sequence[Op]) -> PluginError | None:
        try:
            with subject.as_imported():
                for _ in default_host(subject, program.max_num_seqs).run(ops):
                    pass
        except PluginError as error:
            return error if error.exception else None
        return None

    error = fails(program.ops)
    if error is not None:
        finding, small, _ = _finding(subject, program, error, fails, default_host)
        finding = _repaired(finding, subject, (small, program), default_host)
        raise Failed(replace(finding, fix=finding.fix or _fix(subject, small, finding, error, None)))


class _Ran(NamedTuple):
    """A program that was played.

    Attributes:
        trouble: the first one; None if all rows are right.
        acts: True if the plugin acts on one of the requests alone.
        edits: True if it edited a row in the program.
        judged: the number of rows that were compared.
    """

    trouble: Trouble | None
    acts: bool
    edits: bool
    judged: int


def _run(
    subject: Subject,
    program: Program,
    solo: SoloRuns,
    make_host: MakeHost,
    only: str = "",
    during: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> _Ran:
    """Play a program and compare its rows with their requests' solo runs, up to the first trouble.

    ``only``: the request whose rows are compared, and no others. ``during``: holds while the program is played.
    """
    seen: list[Observation] = []
    try:
        with subject.as_imported(), during():  # so that a program alone fails as it does behind others
            host = make_host(subject, program.max_num_seqs)
            seen.extend(host.run(program.ops))
        acted = solo.prepare(host.pool.requests)
    except PluginError as error:
        return _Ran(error, False, False, 0)
    judged, edits = 0, False
    for observation in seen:
        judged += sum(not row.discarded for row in observation.rows)
        edits |= not torch.equal(observation.before, observation.after)
        mismatch = compare(observation, solo, only)
        if mismatch is not None:
            return _Ran(mismatch, acted, edits, judged)
    return _Ran(None, acted, edits, judged)


def _outcome(
    subject: Subject, program: Program, make_host: MakeHost, ops: Sequence[Op], solo: SoloRuns | None = None
) -> Trouble | None:
    """Return the first trouble when only these operations of the program are done."""
    return _run(subject, replace(program, ops=tuple(ops)), solo or solo_runs(subject), make_host).trouble


def _alike(first: Trouble, second: Trouble | None) -> bool:
    """True if a smaller program shows the same trouble: an exception at its line, or any row that differs."""
    if isinstance(first, PluginError):
        return isinstance(second, PluginError) and (first.exception, first.location) == (
            second.exception,
            second.location,
        )
    return isinstance(second, Mismatch)


def _finding(
    subject: Subject, program: Program, trouble: Trouble, outcome: Outcome, make_host: MakeHost
) -> tuple[Finding, Program, bool]:
    """Return the evidence, and the program made small; marked if the small program does not fail each time.

    True if an experiment proves the line.
    """

    def fails(ops: Sequence[Op]) -> Trouble | None:
        again = outcome(ops)
        return again if _alike(trouble, again) else None

    ops, smallest = shrink.shrink(shrink.single_steps(program.ops), trouble, fails)
    ops, smallest = shrink.simplify(ops, smallest, fails)
    small = replace(program, ops=tuple(shrink.joined_steps(ops)))
    finding, proven = _evidence(subject, small, smallest, make_host)
    if fails(small.ops) is None:
        scenario = {**(finding.scenario or {}), "repeats": False}
        finding = replace(finding, cause=cause("unrepeated"), fix=fix("unrepeated"), scenario=scenario)
    return finding, small, proven


def _evidence(subject: Subject, small: Program, trouble: Trouble, make_host: MakeHost) -> tuple[Finding, bool]:
    """Return the trouble of a small program in the author's terms, with cause and line, batch and scenario.

    True if an experiment proves the line.
    """
    operations = collapse(small.ops)
    differs: tuple[int, str] | None = None
    proven = False
    rows: list[RequestRow] = []
    if isinstance(trouble, PluginError):
        finding = findings.raised(subject.plugin.cls, trouble, operations)
        if any(isinstance(op, Speculate) for op in small.ops) and re.search("shape|size of tensor", trouble.summary):
            finding = replace(
                finding, cause=cause("more rows", "exception"), fix=fix("drafts", *findings.readers_of(subject))
            )
            mapped = with_rows_mapped(make_host) if subject.setup.interface == V2 else None
            line, name = findings.reading_line(subject.plugin.cls, "idx_mapping")
            if mapped and line and _outcome(subject, small, mapped, small.ops) is None:
                finding = replace(finding, cause=cause("per-request"), location=line, state=name)
        finding = replace(finding, vague=finding.exception == "IndexError")  # the line that made the index may be wrong
        if not trouble.location:
            finding = replace(finding, location=findings.at_fault(subject, trouble.method))
        roomier = with_room(finding, subject, trouble, make_host, small.max_num_seqs)
        if roomier is not finding:
            finding = roomier
        elif trouble.method == "apply" and (state := find_raising(subject, small.ops, small.max_num_seqs, make_host)):
            where = {**finding.where, "raised in": finding.location.rpartition("/")[2]}
            line = state.line or finding.location
            table = fix("derived").replace("{name}", state.name) if state.table else ""
            made = fix("single") if state.how == "alone" else table
            finding = replace(finding, where=where, cause=state.cause(""), fix=made, location=line, state=state.name)
    else:
        differs = (trouble.step, trouble.request)
        finding = findings.departure(trouble, {"program": small.name}, operations)
        ends = partial(Observation.shows, step=trouble.step, request=trouble.request)
        line = findings.editing_line(subject, small.ops, small.max_num_seqs, trouble.row, ends, make_host)
        culprit = find_culprit(subject, small.ops, small.max_num_seqs, trouble, make_host)
        apart = first_apart(subject, small.ops, small.max_num_seqs, trouble, make_host)
        case = Reproduction(subject, make_host, small, trouble, finding, line, culprit, apart)
        afresh = trouble.kind == "stale" and case.afresh  # the program is played twice for it
        case = replace(case, finding=replace(finding, cause=findings.cause_of(trouble, small.ops, afresh)))
        finding, proven = blamed(case, _passes)
        with contextlib.suppress(PluginError), subject.as_imported():
            host = make_host(subject, small.max_num_seqs)
            rows = rows_of(subject, host.pool.requests, list(host.run(small.ops)), differs)
    short = [op for op in small.ops if isinstance(op, Arrive) and op.prompt_len <= SHORT]
    prompts = {f"prompt of {op.request}": f"{op.prompt_len} token{'s' * (op.prompt_len > 1)}" for op in short}
    frames, arguments = record_frames(subject, small.ops, small.max_num_seqs, make_host)
    where, scenario = {**finding.where, **prompts}, scenario_of(subject, small, make_host)
    finding = replace(finding, where=where, scenario=scenario, location=deciding_line(finding.location))
    return with_batch(finding, subject, frames, small.ops, arguments, differs, rows=rows), proven


def _joining(subject: Subject, program: Program, mismatch: Mismatch, make_host: MakeHost) -> Callable[[], bool]:
    """Return a test: does a new instance, which gets the request with its outputs, serve the step as the solo run?

    Code that is right has it so; an edit that only makes the batch as wrong as the solo run does not.
    """
    with subject.as_imported():
        host = make_host(subject, program.max_num_seqs)
        seen = next(seen for seen in host.run(program.ops) if seen.shows(mismatch.step, mismatch.request))
    solo = solo_runs(subject)
    solo.prepare(host.pool.requests)
    expected = solo.expected(mismatch.request, mismatch.position)
    rows = slice(mismatch.row, mismatch.row + 1)
    single = replace(seen, before=seen.before[rows], after=seen.after[rows], rows=seen.rows[rows])
    actives = [host.pool.requests[mismatch.request]]

    def joins() -> bool:
        row = fresh_batch(subject, actives, single)[0]
        return expected is not None and not bool(unequal(row, expected).any())

    return joins


def _repaired(
    finding: Finding,
    subject: Subject,
    programs: Sequence[Program],
    make_host: MakeHost,
    joins: Callable[[], bool] | None = None,
    proven: bool = False,
) -> Finding:
    """Return the finding with an edit of the author's code with which these programs pass, if one does.

    ``joins``: a further test of the edited code. ``proven``: an experiment proves the line.
    """
    solo = solo_runs(subject)  # of those who use the plugin, too: edited code must still serve them
    run = partial(_run, subject, programs[0], solo, make_host)

    def right(edited: Edited) -> bool:
        with contextlib.suppress(Exception):  # whatever edited code raises
            edits = False
            for number, program in enumerate(programs):
                ran = _run(subject, program, solo, make_host, during=edited)
                if ran.trouble is not None:
                    return False
                edits |= ran.edits
                if joins is not None and not number:
                    with subject.as_imported(), edited():
                        if not joins():
                            return False
            return edits  # else code that does nothing passes, too
        return False

    missing = _missing(programs[0], subject.setup.interface, finding.where.get("request", ""))
    missing = () if finding.fix == fix("used before", "history") else missing  # an entry that is new, with old contents
    uses = not any(_is_stranger(op, finding) for op in programs[0].ops)
    repair = find_repair(run, right, finding, proven, missing, uses)
    if repair is None:
        return finding
    words = {"old": repair.old, "new": repair.new, "name": finding.state.partition("[")[0]}
    file, _, number = repair.line.rpartition(":")
    words["line"] = number if finding.location.startswith(f"{file}:") else f"{number} of {Path(file).name}"
    why, edit = (text(repair.kind, "repair").format(**words) for text in (cause, fix))
    evidence = finding.cause
    if not repair.old:  # what is missing has no line of its own
        return replace(finding, cause=f"{why}; {evidence}", fix=edit, vague=False)
    if repair.line == finding.location:
        edit = "; ".join(filter(None, (finding.fix, edit)))
    else:  # the fix is for another line, and so is all of the cause but the state at fault
        evidence = evidence.partition("; ")[0]
    causes = "; ".join(filter(None, (evidence, why)))
    return replace(finding, cause=causes, fix=edit, location=repair.line, vague=False)


def _missing(program: Program, interface: str, request: str) -> Sequence[Missing]:
    """Return the kinds of statements that may be missing: none if another request than this one has to move."""
    moves = hazards(program.ops, interface, program.max_num_seqs) & {"move", "swap"}
    changed = [
        op for op in program.ops if isinstance(op, Finish | Preempt | Swap) or getattr(op, "request", "") == request
    ]
    moved = bool(changed) and isinstance(changed[-1], Finish | Preempt | Swap)
    return FORGETS if not moves else MOVES if moved else ()


def _is_stranger(op: Op, finding: Finding) -> bool:
    return isinstance(op, Arrive) and op.variant is None and op.request == finding.where.get("request")


def _passes(case: Reproduction) -> bool:
    return _run(case.subject, case.program, solo_runs(case.subject), case.make_host, case.judged).trouble is None


def _fix(subject: Subject, small: Program, finding: Finding, trouble: Trouble, hazard: Hazard | None) -> str:
    """Return what to change, by what is left of the program; where only an unusual host shows it, in general."""
    readers = findings.readers_of(subject)
    if not _alike(trouble, _outcome(subject, small, default_host, small.ops)):
        return "" if finding.exception else fix(hazard or "alone", readers[0])
    held = hazards(small.ops, subject.setup.interface, small.max_num_seqs)
    held -= {
        name for name, ops in without(small.ops).items() if _alike(trouble, _outcome(subject, small, default_host, ops))
    }
    if not finding.exception or finding.state:
        return fix_for(held, hazard, readers)
    given = range(1 + len(subject.setup.others))
    odd = any(_outcome(subject, small, default_host, _using(number, small.ops)) is None for number in given)
    return fix_for_exception(small.ops, held, hazard, finding.where["method"], odd, _raises_later(subject, trouble))


def _raises_later(subject: Subject, trouble: Trouble) -> bool:
    """Return True if a request of the case that has output meets the same exception."""
    try:
        stand_at(subject, [Stance(0, "later", LATER)])
    except PluginError as error:
        return _alike(trouble, error)
    return False


def _using(variant: int, ops: Sequence[Op]) -> list[Op]:
    """Return the operations with the arguments of one case for all requests that use the plugin."""
    return [
        replace(op, variant=None if op.variant is None else variant) if isinstance(op, Arrive) else op for op in ops
    ]


def scenario_of(subject: Subject, program: Program, make_host: MakeHost) -> dict[str, Any]:
    """Return the input of `lpkit replay`, without target, check and host."""
    manner: Manner | None = None
    with contextlib.suppress(PluginError):
        manner = getattr(make_host(subject, program.max_num_seqs), "manner", None)
    return {
        **findings.settings_of(subject),
        "manner": {key: str(value) for key, value in asdict(manner).items()} if manner else {},
        "program": program_to_json(program),
    }
