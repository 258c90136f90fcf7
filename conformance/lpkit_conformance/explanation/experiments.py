"""The table of experiments, each of which proves one cause of a failure, and the line that each blames."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import torch

from lpkit_conformance.expectation.compare import compare
from lpkit_conformance.expectation.solo import solo_runs
from lpkit_conformance.explanation import advice, changes, findings
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.following import history_of
from lpkit_conformance.explanation.hazards import CHANGES, Hazard
from lpkit_conformance.explanation.missed_rows import counting_line
from lpkit_conformance.explanation.reproduction import Reproduction, played
from lpkit_conformance.explanation.row_values import SOLO, applying, first_mixed, with_other_logits
from lpkit_conformance.explanation.state import attributes
from lpkit_conformance.hosts import Host, PluginError, default_host
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Step, Swap
from lpkit_conformance.settings.cases import STANDARD
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.vllm_api.runners import V1, V2


@dataclass(frozen=True)
class Experiment:
    """One cause of a failure.

    Attributes:
        cause, fix: keys of ``advice.toml``; without a fix, that of the cause; where it is empty, nothing is said.
        applies: True if the failure may have this cause.
        change: the failure with one thing changed in its subject, host or operations. All of these runs must pass, and
            there must be one. None: nothing needs to be run.
        blames: ``file:line`` at fault, unless other state is, and the name of the state; empty where it tells none.
        rules: True if this is the line, whatever wrote the state, and if ``blames`` names one, the state, too.
        field: the vLLM field that it makes equal for all requests.
        alone: True if the row of the solo run is the wrong one: the finding's sides change, and no state is at fault.
    """

    applies: Callable[[Reproduction], object]
    change: Callable[[Reproduction], Sequence[Reproduction]] | None = None
    cause: str = ""
    fix: str | None = None
    blames: Callable[[Reproduction], tuple[str, str]] = lambda case: ("", "")
    rules: bool = False
    field: str = ""
    alone: bool = False


def _first(case: Reproduction) -> list[Reproduction]:
    """Return the same with equal arguments, and with the request before all others; none if it is the first."""
    judged = case.judging(case.request, changes.exchanged(case.ops, case.request, 0))
    return judged and [*case.doing(changes.with_equal_arguments(case.ops, case.request)), *judged]


def _differs(case: Reproduction, *hosts: MakeHost) -> bool:
    """Return True if the row, here or alone, is another one on one of these hosts."""
    alone = [op for op in case.ops if isinstance(op, Step | Idle) or getattr(op, "request", "") == case.request]
    for ops in (case.ops, alone):
        rows: list[torch.Tensor] = []
        for make_host in (case.make_host, *hosts):
            with contextlib.suppress(PluginError), case.subject.as_imported():
                host = make_host(case.subject, case.program.max_num_seqs)
                seen = [seen for seen in host.run(ops) if seen.shows(case.mismatch.step, case.request)]
                rows += [item.after[[row.request == case.request for row in item.rows]] for item in seen[:1]]
        if any(not torch.equal(row, rows[0]) for row in rows[1:]):
            return True
    return False


def _resumes_alone(case: Reproduction) -> bool:
    """Return True if the request is served right without others, though it resumes: it follows its output then."""
    ops = [op for op in case.ops if isinstance(op, Step | Idle) or getattr(op, "request", "") == case.request]
    solo = solo_runs(case.subject)
    with contextlib.suppress(PluginError), case.subject.as_imported():
        host = case.make_host(case.subject, case.program.max_num_seqs)
        seen = [*host.run(ops)]
        solo.prepare(host.pool.requests)
        return all(compare(observation, solo) is None for observation in seen)
    return False


def _reads_outside(case: Reproduction) -> bool:
    """Return True if the row depends on what stands outside of the rows' own ``all_token_ids``."""
    tokens = (None, 0, case.subject.setup.vocab_size - 2)
    return _differs(case, *(changes.filled_outside(case.make_host, token) for token in tokens))


def _replaced_twice(case: Reproduction) -> tuple[str, str]:
    """Return the line and the name of an attribute that ``add_request`` sets to another object for each of two requests
    of one step; empty if there is none. The name is empty if the attribute is known to be at fault."""
    replaced: list[tuple[int, list[str]]] = []

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        before = dict(attributes(host.processor))
        yield
        if method == "add_request":
            now = attributes(host.processor)
            replaced.append((host.step, [name for name, value in now if value is not before.get(name)]))

    if case.interface != V2:
        return "", ""
    with case.subject.as_imported():
        host = case.make_host(case.subject, case.program.max_num_seqs)
        with host.driver.watched(watch):
            for _ in host.run(case.ops):
                pass
    pairs = [(first, second) for (step, first), (then, second) in pairwise(replaced) if step == then]
    names = [f"self.{name}" for first, second in pairs for name in first if name in second]
    history = history_of(*case.at, names[0]) if names else None
    lines = [change.lines[0] for change in history.changes if change.method == "add_request"] if history else []
    at_fault = bool(names) and case.culprit is not None and case.culprit.name == names[0]
    return (str(lines[-1]), "" if at_fault else names[0]) if lines else ("", "")


def _evened(case: Reproduction) -> list[Reproduction]:
    """Return the same with lists as long as those of the request."""
    subject, ops = changes.with_equal_lengths(case.subject, case.request, case.ops)
    return [replace(each, subject=subject) for each in case.doing(ops)]


def _with_equal(field: str, case: Reproduction) -> list[Reproduction]:
    """Return the same with the request's value of a vLLM field for all; none if it is equal already."""
    subjects = changes.with_equal_field(case.subject, case.request, case.ops, field)
    return [replace(case, subject=subject) for subject in subjects]


def _in_another_row(case: Reproduction) -> list[Op]:
    """Return the operations with the request first, or else last, of those that use the plugin."""
    return changes.exchanged(case.ops, case.request, 0) or changes.exchanged(case.ops, case.request, -1)


def _remembers(case: Reproduction) -> bool:
    """Return True if the row of the request alone depends on the logits of earlier steps, with the same tokens."""
    arrived = next(op for op in case.ops if isinstance(op, Arrive) and op.request == case.request)
    if arrived.twin_of:
        return False
    steps = make_active(case.subject, arrived).steps_to(case.mismatch.position)

    def with_past(change: Callable[[torch.Tensor], torch.Tensor]) -> MakeHost:
        def apply(host: Host, logits: torch.Tensor, call: Callable[[torch.Tensor], Any]) -> Any:
            if host.step == steps:
                return call(logits)
            call(change(logits.clone()))
            return logits  # unedited, so that the same tokens are sampled

        return applying(case.make_host, apply)

    first, *others = map(with_past, findings.OTHER_LOGITS)
    alone = replace(case, make_host=first, mismatch=replace(case.mismatch, step=steps))
    return any(_differs(each, *others) and not _differs(each, first) for each in alone.doing([arrived, Step(steps)]))


def _reads_lists(case: Reproduction) -> bool:
    """Return True if ``apply`` reads an output list of the engine's."""
    reads, late = list[tuple[str, bool]](), False

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        nonlocal late
        before = len(reads)
        yield
        late |= method == "apply" and len(reads) > before

    with case.subject.as_imported():
        host = changes.noting_reads(case.make_host, reads)(case.subject, case.program.max_num_seqs)
        with host.driver.watched(watch):
            for _ in host.run(case.ops):
                pass
    return late


def _mixed(case: Reproduction) -> tuple[str, str]:
    """Return ``file:line`` and the variable that other rows' logits enter; else the line that edits the row."""
    mixed = first_mixed(*case.at)
    return (mixed.line, mixed.name) if mixed and mixed.kind == "set" else (case.line, "")


def _mapped(cls: type) -> tuple[str, str]:
    """Return ``file:line`` that reads the mapping with an entry for each request, and what it sets."""
    names = ("idx_mapping", "idx_mapping_np")
    return next((reading for name in names if (reading := findings.reading_line(cls, name))[0]), ("", ""))


RETURNS: Final[frozenset[Hazard]] = frozenset({"drafts", "resume", "twins", "prefill"})
"""After which a request has another history or object than before; they have fixes of their own."""

EXPERIMENTS: Final = (
    Experiment(
        cause="slot-by-row",
        rules=True,
        applies=lambda case: case.style == "portable" and findings.read_by_row(case.subject.plugin.cls)[0],
        blames=lambda case: findings.read_by_row(case.subject.plugin.cls),
    ),
    Experiment(
        cause="first-slots",
        applies=lambda case: case.style == "portable" and case.apart and advice.sign("first-slots", case.apart.line),
        blames=lambda case: (case.apart.line, case.apart.source or case.apart.name) if case.apart else ("", ""),
        rules=True,
    ),
    Experiment(
        cause="copied-list",
        alone=True,
        applies=lambda case: (
            case.style == "raw"
            and case.interface == V1
            and "resume" in case.hazards
            and not _reads_lists(case)
            and not _resumes_alone(case)
        ),
        change=lambda case: [replace(case, make_host=changes.with_first_lists(case.make_host))],
        blames=lambda case: (case.last_read(early=False), ""),
        rules=True,
    ),
    Experiment(
        applies=lambda case: case.last_read(early=True),
        change=lambda case: [replace(case, make_host=default_host)],
        blames=lambda case: (case.last_read(early=True), ""),
        rules=True,
    ),
    Experiment(
        cause="between",
        applies=lambda case: (
            case.style == "raw"
            and case.subject.setup.host == V1
            and _differs(case, changes.with_empty_updates(case.make_host))
        ),
        blames=lambda case: findings.unprepared(case.subject.plugin.cls),
        rules=True,
    ),
    Experiment(
        cause="placeholders",
        applies=lambda case: case.style == "adapter",
        change=lambda case: [replace(case, subject=subject) for subject in changes.declaring_tokens(case.subject)],
        blames=lambda case: (findings.declaration(case.subject.plugin.cls, "history"), "history"),
        rules=True,
    ),
    Experiment(
        cause="same-callable",
        applies=lambda case: case.style == "adapter" and "company" in case.hazards and findings.makes_one(case.subject),
        blames=lambda case: (findings.returning_line(case.subject.plugin.cls, "new_req_logits_processor"), ""),
        rules=True,
    ),
    Experiment(
        cause="per-request",
        fix="",
        applies=lambda case: (
            case.style == "raw"
            and case.interface == V2
            and "drafts" in case.hazards
            and _mapped(case.subject.plugin.cls)[0]
        ),
        change=lambda case: [
            replace(each, make_host=changes.with_rows_mapped(case.make_host))
            for each in case.judging(case.request, case.ops)  # another one's drafts may be read wrongly, too
        ],
        blames=lambda case: _mapped(case.subject.plugin.cls),
        rules=True,
    ),
    Experiment(
        cause="past-logits",
        applies=lambda case: case.hazards & {"drafts", "resume", "prefill"} and _remembers(case),
    ),
    Experiment(
        cause="by-address",
        applies=lambda case: any(isinstance(op, Finish) for op in case.ops),
        change=lambda case: [replace(case, make_host=changes.keeping_objects(case.make_host))],
    ),
    Experiment(
        cause="key-changed",
        applies=lambda case: case.changed_inside,
        blames=lambda case: (str(case.changed_inside), ""),
        rules=True,
    ),
    Experiment(
        cause="key-argument",
        applies=lambda case: case.keyed and case.unequal,
        change=lambda case: case.doing(changes.with_equal_arguments(case.ops, case.request)),
    ),
    *(
        Experiment(
            cause="key-argument",
            field=name,
            applies=lambda case: case.keyed,
            change=partial(_with_equal, name),
        )
        for name in STANDARD
    ),
    Experiment(
        cause="key-tokens",
        applies=lambda case: case.keyed,
        change=lambda case: case.doing(changes.with_one_character(case.ops)),
    ),
    Experiment(
        cause="too-early",
        applies=lambda case: case.style == "raw" and case.interface == V2,
        change=lambda case: [replace(case, make_host=changes.blank_slots(case.make_host))],
        blames=lambda case: (
            findings.method_location(case.subject.plugin.cls, HOSTS[case.subject.setup.host].told_by),
            "",
        ),
    ),
    *(
        Experiment(
            cause="kept-buffer",
            applies=lambda case: case.style == "raw" and case.interface == V2,
            change=partial(lambda change, case: [replace(case, make_host=change(case.make_host))], change),
            blames=lambda case: findings.kept_buffer(played(case, changes.keeping_buffers(case.make_host))),
            rules=True,
        )
        for change in (
            changes.sparing_buffers,
            changes.keeping_buffers,
        )  # the expected rows may come of a kept buffer, too
    ),
    Experiment(
        cause="outside",
        applies=lambda case: case.style == "raw" and case.interface == V2 and _reads_outside(case),
        blames=lambda case: findings.reading_line(case.subject.plugin.cls, "all_token_ids"),
        rules=True,
    ),
    Experiment(
        cause="size",
        applies=lambda case: not case.culprit and "alone" in case.hazards and case.program.max_num_seqs > SOLO,
        change=lambda case: [replace(case, program=replace(case.program, max_num_seqs=SOLO))],
    ),
    Experiment(cause="ended", applies=lambda case: case.ended, blames=lambda case: (case.ended, ""), rules=True),
    Experiment(cause="reduces", applies=lambda case: case.mixes and case.apart and case.apart.mixes),
    Experiment(
        cause="leftover",
        applies=lambda case: case.pads and "replace" in case.hazards and len(changes.staying(case.ops)) == 1,
        change=_evened,
    ),
    Experiment(cause="padding", applies=lambda case: case.pads, change=_evened),
    Experiment(cause="late", applies=lambda case: case.late[0], blames=lambda case: case.late, rules=True),
    Experiment(
        cause="one-newcomer",
        applies=lambda case: case.style == "raw" and (case.culprit or (case.apart and case.apart.state)),
        change=lambda case: case.doing(changes.with_apart(case.ops, Arrive)),
        blames=_replaced_twice,
        rules=True,
    ),
    Experiment(
        cause="histories",
        applies=lambda case: (
            case.pads
            and (
                changes.users_at_once(case.ops) or (case.style == "portable" and not (case.apart and case.apart.state))
            )
        ),
        change=lambda case: case.doing(changes.with_equal_totals(case.ops, case.request)),
        blames=lambda case: ("", "") if case.apart else findings.reading_line(case.subject.plugin.cls, "tokens"),
    ),
    Experiment(
        cause="rows-of-before",
        fix="move",
        applies=lambda case: case.by_slot and not case.afresh,
        change=lambda case: [replace(case, make_host=changes.in_order(case.make_host, first)) for first in (1, 2, 3)],
    ),
    Experiment(
        cause="by-row",
        fix="move",
        applies=lambda case: case.by_slot,
        change=lambda case: [
            replace(each, make_host=changes.in_order(case.make_host))
            for each in case.judging(case.request, case.ops, _in_another_row(case) or case.ops)
        ],
    ),
    Experiment(
        cause="displaced",
        applies=lambda case: case.displaced and counting_line(case.line)[1],
        blames=lambda case: counting_line(case.line),
        rules=True,
    ),
    Experiment(
        cause="other-logits",
        applies=lambda case: _differs(case, with_other_logits(case.make_host, case.mismatch)),
        blames=_mixed,
        rules=True,
    ),
    Experiment(cause="first", fix="single", applies=lambda case: case.mixes, change=_first),
    Experiment(
        cause="number",
        applies=lambda case: not case.culprit and case.mixes and not case.hazards & CHANGES,
        change=lambda case: [
            first
            for name in [op.request for op in changes.users_at_once(case.ops)] or [case.request] * bool(case.number)
            for first in case.judging(name, changes.with_first(case.ops, name))
        ],
        blames=lambda case: ("", case.number),
    ),
    Experiment(
        cause="same-object",
        applies=lambda case: "twins" in case.hazards,
        change=lambda case: case.doing(changes.with_own_parameters(case.ops)),
    ),
    Experiment(
        cause="one-length",
        applies=lambda case: (
            case.style == "raw"
            and "drafts" in case.hazards
            and _differs(case, changes.with_longer_texts(case.make_host))
        ),
        change=lambda case: case.doing(changes.without_drafts(case.ops)),
        blames=lambda case: findings.reading_line(case.subject.plugin.cls, "total_len"),
        rules=True,
    ),
    Experiment(
        cause="draft-tokens",
        fix="",
        applies=lambda case: case.style == "raw" and case.interface == V2 and "drafts" in case.hazards,
        change=lambda case: [replace(case, make_host=changes.with_drafts_stored(case.make_host))],
        blames=lambda case: findings.reading_line(case.subject.plugin.cls, "all_token_ids"),
        rules=True,
    ),
    Experiment(
        cause="drafts",
        fix="",
        applies=lambda case: not case.culprit and "drafts" in case.hazards,
        change=lambda case: case.doing(changes.without_drafts(case.ops)),
    ),
    Experiment(
        fix="read",
        applies=lambda case: (
            not case.culprit
            and case.apart
            and case.apart.kind != "padded"
            and case.hazards & CHANGES
            and not case.hazards & RETURNS
        ),
    ),
    Experiment(
        cause="order",
        applies=lambda case: case.style == "raw" and case.interface == V1,
        change=lambda case: case.doing(changes.with_apart(case.ops, Swap)),
        blames=lambda case: (findings.line_of_moves(case.subject.plugin.cls), ""),
        rules=True,
    ),
)
"""The first that is proven explains a failure."""
