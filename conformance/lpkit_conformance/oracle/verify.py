"""Runs programs on a subject and turns the first departure from the oracle into a finding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from lpkit_conformance.hosts import Host, Observation, PluginError, parts_of
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.v2 import Manner
from lpkit_conformance.oracle import shrink
from lpkit_conformance.oracle.blame import blamed
from lpkit_conformance.oracle.compare import Mismatch, compare
from lpkit_conformance.oracle.experiments import MakeHost
from lpkit_conformance.oracle.findings import cause_of, departure, raised, settings_of
from lpkit_conformance.oracle.hazards import (
    ORDER_FIX,
    SHORT,
    Hazard,
    fix_for,
    with_swaps_apart,
)
from lpkit_conformance.oracle.lines import look_again
from lpkit_conformance.oracle.picture import draw, record_frames
from lpkit_conformance.oracle.repeated import anew, unrepeated
from lpkit_conformance.oracle.solo import SoloRuns
from lpkit_conformance.oracle.styles import FIXES as FIXES_BY_STYLE
from lpkit_conformance.oracle.styles import style_of
from lpkit_conformance.oracle.timeline import timeline
from lpkit_conformance.programs.as_json import program_to_json
from lpkit_conformance.programs.as_text import collapse
from lpkit_conformance.programs.generate import Arrive, Op, Program
from lpkit_conformance.results import Failed, Finding, NeverActive
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.vllm_api.runners import V1

Outcome = Callable[[Sequence[Op]], Mismatch | PluginError | None]


def default_host(subject: PluginUnderTest, max_num_seqs: int) -> Host:
    """As the engine behaves when nothing unusual happens."""
    return parts_of(subject.host).host(subject, max_num_seqs)


def verify(
    subject: PluginUnderTest,
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
    if subject.program is not None:
        programs = [subject.program]
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


def survive(subject: PluginUnderTest, program: Program) -> None:
    """Run a program and compare nothing.

    Raises:
        Failed: with the shrunk program, when the plugin raises an exception.
    """
    program = subject.program or program

    def fails(ops: Sequence[Op]) -> PluginError | None:
        try:
            for _ in default_host(subject, program.max_num_seqs).run(ops):
                pass
        except PluginError as error:
            return error if error.exception else None
        return None

    error = fails(program.ops)
    if error is not None:
        raise Failed(_finding(subject, program, error, fails, default_host)[0])


def solo_runs(subject: PluginUnderTest) -> SoloRuns:
    """The subject's solo runs, shared by all checks that use it."""
    if subject.solo_runs is None:
        subject.solo_runs = SoloRuns(subject)
    found = subject.solo_runs
    assert isinstance(found, SoloRuns)
    return found


def _run(
    subject: PluginUnderTest, program: Program, solo: SoloRuns, make_host: MakeHost
) -> tuple[Mismatch | PluginError | None, bool, int]:
    seen: list[Observation] = []
    try:
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
    subject: PluginUnderTest, program: Program, make_host: MakeHost, ops: Sequence[Op]
) -> Mismatch | PluginError | None:
    """What is wrong when only these operations of the program are done."""
    return _run(subject, Program(program.name, tuple(ops), program.max_num_seqs), solo_runs(subject), make_host)[0]


def _alike(one: Mismatch | PluginError, other: Mismatch | PluginError | None) -> bool:
    """Whether a smaller program shows the same thing: an exception at its line, or any row that differs."""
    if isinstance(one, PluginError):
        return isinstance(other, PluginError) and (one.exception, one.location) == (other.exception, other.location)
    return isinstance(other, Mismatch)


def _finding(
    subject: PluginUnderTest,
    program: Program,
    mismatch: Mismatch | PluginError,
    outcome: Outcome,
    make_host: MakeHost,
) -> tuple[Finding, Program]:
    """The evidence, and the program made small: one that fails in a process of its own, too, if there is one."""
    finding, small = _made_small(subject, program, mismatch, outcome, make_host)
    still = _alike(mismatch, outcome(small.ops))
    changed = subject.modules.changed() if subject.modules is not None else ()
    if _alike(mismatch, anew(subject, outcome, small.ops)):
        return finding, small
    whole = anew(subject, outcome, program.ops)
    if whole is None or not _alike(mismatch, whole):
        return unrepeated(finding, changed, still), small

    def fresh_host(subject: PluginUnderTest, max_num_seqs: int) -> Host:
        subject.restore_modules()
        return make_host(subject, max_num_seqs)

    return _made_small(subject, program, whole, partial(anew, subject, outcome), fresh_host)


def _made_small(
    subject: PluginUnderTest,
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
        finding = raised(subject.cls, mismatch, operations)
        culprit = None
    else:
        finding = departure(mismatch, {"program": program.name}, operations)
        finding = replace(finding, cause=cause_of(mismatch, ops))

        def mends(
            other: PluginUnderTest = subject, host: MakeHost = make_host, changed: Sequence[Op] = small.ops
        ) -> bool:
            found, still = _outcome(other, small, host, changed), _outcome(subject, small, make_host, small.ops)
            return found is None and still is not None

        fault = look_again(subject, ops, program.max_num_seqs, mismatch, make_host)
        finding = blamed(subject, finding, small, fault, make_host, mends)
        culprit = (mismatch.step, mismatch.request)
    finding = replace(finding, where={**finding.where, **_short_prompts(ops)})
    frames, arguments = record_frames(subject, ops, program.max_num_seqs, make_host)
    unit = HOSTS[subject.host].position
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
    subject: PluginUnderTest,
    small: Program,
    finding: Finding,
    outcome: Mismatch | PluginError,
    hazard: Hazard | None,
) -> str:
    """What to change, by what is left of the program; where only an unusual host shows it, what suits all of them."""
    style = style_of(subject.cls, subject.host)
    own = FIXES_BY_STYLE[style]
    raised = bool(finding.exception)
    usual = _outcome(subject, small, default_host, small.ops)
    if not _alike(outcome, usual):
        return "" if raised else own.get(hazard or "alone", "")
    apart = with_swaps_apart(small.ops) if style == "raw" and subject.interface == V1 and not raised else None
    if apart is not None and _outcome(subject, small, default_host, apart) is None:
        return ORDER_FIX
    return fix_for(small.ops, subject.interface, small.max_num_seqs, hazard, raised, own)


def scenario_of(subject: PluginUnderTest, program: Program, make_host: MakeHost) -> dict[str, Any]:
    """Everything that `lpkit replay` needs, but for target, check and host."""
    manner: Manner | None = None
    with contextlib.suppress(PluginError):
        manner = getattr(make_host(subject, program.max_num_seqs), "manner", None)
    return {
        **settings_of(subject),
        "manner": {key: str(value) for key, value in asdict(manner).items()} if manner else {},
        "program": program_to_json(program),
    }
