"""Runs programs on a subject and turns the first departure from the oracle into a finding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from lpkit_conformance.expectation.compare import Mismatch, compare
from lpkit_conformance.expectation.solo import SoloRuns, solo_runs
from lpkit_conformance.explanation.blame import blamed
from lpkit_conformance.explanation.experiments import MakeHost
from lpkit_conformance.explanation.fault import look_again
from lpkit_conformance.explanation.findings import cause_of, departure, raised, settings_of
from lpkit_conformance.explanation.hazards import (
    ORDER_FIX,
    SHORT,
    Hazard,
    fix_for,
    with_swaps_apart,
)
from lpkit_conformance.explanation.picture import draw, record_frames
from lpkit_conformance.explanation.styles import FIXES as FIXES_BY_STYLE
from lpkit_conformance.explanation.styles import style_of
from lpkit_conformance.explanation.timeline import timeline
from lpkit_conformance.explanation.unrepeated import unrepeated
from lpkit_conformance.hosts import Observation, PluginError, default_host
from lpkit_conformance.hosts.v2 import Manner
from lpkit_conformance.programs import shrink
from lpkit_conformance.programs.as_json import program_to_json
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Op, Program
from lpkit_conformance.results import Failed, Finding, NeverActive
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1

Outcome = Callable[[Sequence[Op]], Mismatch | PluginError | None]


def verify(
    subject: Subject,
    programs: Iterable[Program],
    make_host: MakeHost = default_host,
    hazard: Hazard | None = None,
) -> str:
    """Hold every program against its requests' solo runs.

    Args:
        hazard: what the programs are there for; a finding has the fix for it if its program still holds it.

    Raises:
        Failed: with the shrunk program, on the first row that differs or when the plugin raises.
        NeverActive: if the plugin never changed a logit.
    """
    solo = solo_runs(subject)
    acted = False
    rows = 0
    if subject.setup.program is not None:
        programs = [subject.setup.program]
    for program in programs:
        mismatch, acted_alone, judged = _run(subject, program, solo, make_host)
        acted |= acted_alone
        rows += judged
        if mismatch is not None:
            found = partial(_outcome, subject, program, make_host)
            finding, small = _finding(subject, program, mismatch, found, make_host)
            raise Failed(replace(finding, fix=finding.fix or _fix(subject, small, finding, mismatch, hazard)))
    if not acted:
        raise NeverActive
    return f"{rows} rows"


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
        raise Failed(_finding(subject, program, error, fails, default_host)[0])


def _run(
    subject: Subject, program: Program, solo: SoloRuns, make_host: MakeHost
) -> tuple[Mismatch | PluginError | None, bool, int]:
    seen: list[Observation] = []
    try:
        with subject.as_imported():  # so that a program alone fails as it does behind others
            host = make_host(subject, program.max_num_seqs)
            seen.extend(host.run(program.ops))
        acted = solo.prepare(host.pool.requests)
    except PluginError as error:
        return error, False, 0
    judged = 0
    for observation in seen:
        judged += sum(not row.discarded for row in observation.rows)
        mismatch = compare(observation, solo)
        if mismatch is not None:
            return mismatch, acted, judged
    return None, acted, judged


def _outcome(
    subject: Subject, program: Program, make_host: MakeHost, ops: Sequence[Op]
) -> Mismatch | PluginError | None:
    """What is wrong when only these operations of the program are done."""
    return _run(subject, Program(program.name, tuple(ops), program.max_num_seqs), solo_runs(subject), make_host)[0]


def _alike(one: Mismatch | PluginError, other: Mismatch | PluginError | None) -> bool:
    """Whether a smaller program shows the same thing: an exception at its line, or any row that differs."""
    if isinstance(one, PluginError):
        return isinstance(other, PluginError) and (one.exception, one.location) == (other.exception, other.location)
    return isinstance(other, Mismatch)


def _finding(
    subject: Subject,
    program: Program,
    mismatch: Mismatch | PluginError,
    outcome: Outcome,
    make_host: MakeHost,
) -> tuple[Finding, Program]:
    """The evidence, and the program made small; marked if the small program does not fail each time."""
    finding, small = _made_small(subject, program, mismatch, outcome, make_host)
    return finding if _alike(mismatch, outcome(small.ops)) else unrepeated(finding), small


def _made_small(
    subject: Subject,
    program: Program,
    mismatch: Mismatch | PluginError,
    outcome: Outcome,
    make_host: MakeHost,
) -> tuple[Finding, Program]:
    """The evidence of a program with as few operations as fail alike."""

    def fails(ops: Sequence[Op]) -> Mismatch | PluginError | None:
        found = outcome(ops)
        return found if _alike(mismatch, found) else None

    ops, mismatch = shrink.shrink(shrink.single_steps(program.ops), mismatch, fails)
    ops, mismatch = shrink.simplify(ops, mismatch, fails)
    ops = shrink.joined_steps(ops)
    small = Program(program.name, tuple(ops), program.max_num_seqs)
    operations = collapse(ops)
    if isinstance(mismatch, PluginError):
        finding = raised(subject.plugin.cls, mismatch, operations)
        culprit = None
    else:
        finding = departure(mismatch, {"program": program.name}, operations)
        finding = replace(finding, cause=cause_of(mismatch, ops))

        def mends(other: Subject = subject, host: MakeHost = make_host, changed: Sequence[Op] = small.ops) -> bool:
            found, still = _outcome(other, small, host, changed), _outcome(subject, small, make_host, small.ops)
            return found is None and still is not None

        fault = look_again(subject, ops, program.max_num_seqs, mismatch, make_host)
        finding = blamed(subject, finding, small, fault, make_host, mends)
        culprit = (mismatch.step, mismatch.request)
    finding = replace(finding, where={**finding.where, **_short_prompts(ops)})
    frames, arguments = record_frames(subject, ops, program.max_num_seqs, make_host)
    unit = HOSTS[subject.setup.host].position
    finding = replace(
        finding,
        picture=draw(frames, arguments, unit, culprit),
        timeline=timeline(frames, ops, arguments, unit, culprit, raised=culprit is None),
        scenario=scenario_of(subject, small, make_host),
    )
    return finding, small


def _short_prompts(ops: Sequence[Op]) -> dict[str, str]:
    """What the picture does not show of them."""
    short = [op for op in ops if isinstance(op, Arrive) and op.prompt_len <= SHORT]
    return {f"prompt of {op.request}": f"{op.prompt_len} token{'s' * (op.prompt_len > 1)}" for op in short}


def _fix(
    subject: Subject,
    small: Program,
    finding: Finding,
    outcome: Mismatch | PluginError,
    hazard: Hazard | None,
) -> str:
    """What to change, by what is left of the program; where only an unusual host shows it, what suits all of them."""
    style = style_of(subject.plugin.cls, subject.setup.host)
    own = FIXES_BY_STYLE[style]
    raised = bool(finding.exception)
    usual = _outcome(subject, small, default_host, small.ops)
    if not _alike(outcome, usual):
        return "" if raised else own.get(hazard or "alone", "")
    apart = with_swaps_apart(small.ops) if style == "raw" and subject.setup.interface == V1 and not raised else None
    if apart is not None and _outcome(subject, small, default_host, apart) is None:
        return ORDER_FIX
    return fix_for(small.ops, subject.setup.interface, small.max_num_seqs, hazard, raised, own)


def scenario_of(subject: Subject, program: Program, make_host: MakeHost) -> dict[str, Any]:
    """Everything that `lpkit replay` needs, but for target, check and host."""
    manner: Manner | None = None
    with contextlib.suppress(PluginError):
        manner = getattr(make_host(subject, program.max_num_seqs), "manner", None)
    return {
        **settings_of(subject),
        "manner": {key: str(value) for key, value in asdict(manner).items()} if manner else {},
        "program": program_to_json(program),
    }
