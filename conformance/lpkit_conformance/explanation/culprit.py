"""The state at fault, found by experiment: set back to the request's own value, it makes the row right."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from lpkit.runtime import Request

from lpkit_conformance.activity.stand import Standing
from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.expectation.solo import fresh_batch, solo_runs
from lpkit_conformance.explanation.advice import text_at
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.instances import as_added, from_its_arrival, in_its_place
from lpkit_conformance.explanation.scenes import Culprit, Scene
from lpkit_conformance.explanation.state import State, leaves, same
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts import Host, Observation, PluginError
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.instruments.module_state import owners
from lpkit_conformance.instruments.trails import parting, trail
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.subject.subject import Subject

MOST_CALLS = 64
"""Calls of ``apply`` among which one is looked for that gives another result."""


def find_culprit(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> Culprit | None:
    """Return the state at fault; None if no state alone is, or what ``apply`` makes of it is at fault.

    The request's own values are those of a new instance in which nobody else uses the plugin, or else of an instance
    that serves the request alone from its arrival on. If neither makes the row right, the solo run itself may depend on
    what an earlier step left.
    """
    scenes = scenes_alone(subject, ops, max_num_seqs, mismatch, make_host)
    for scene in scenes:
        if culprit := scene.search():
            return scene.source_of(culprit)
    several = sum(isinstance(op, Arrive) for op in ops) > 1
    culprit = scenes[0].carried() or replace(scenes[0], how="pinned").search() if several else None
    arrived = next((op for op in ops if isinstance(op, Arrive) and op.request == mismatch.request), None)
    if culprit or arrived is None or arrived.variant is None or arrived.twin_of:
        return culprit
    steps = make_active(subject, arrived).steps_to(mismatch.position)
    return kept_state(subject, [arrived, Step(steps)], max_num_seqs, replace(mismatch, step=steps), make_host)


def scenes_alone(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> tuple[Scene, Scene]:
    """Return the failing step with the request's own values as they are alone, in its place and from its arrival on."""
    solo = solo_runs(subject)

    def alone(host: Host, seen: Observation, row: int) -> torch.Tensor | None:
        solo.prepare(host.pool.requests)
        return solo.expected(seen.rows[row].request, seen.rows[row].position)

    scene = Scene(subject, ops, max_num_seqs, mismatch, make_host, in_its_place, alone)
    return scene, replace(scene, own_instance=from_its_arrival)


def kept_state(
    subject: Subject,
    ops: Sequence[Op],
    max_num_seqs: int,
    mismatch: Mismatch,
    make_host: MakeHost,
    shared: bool = False,
) -> Culprit | None:
    """Return the state that an earlier step left, and that a new instance with the same requests lacks.

    None if it makes no difference to the row, or no state alone does. ``shared``: else what the class or the module has
    and an earlier step left, ``carried``.
    """

    def renewed(host: Host, seen: Observation, row: int) -> torch.Tensor:
        actives = [host.pool.requests[item.request] for item in seen.rows]
        with subject.as_imported():
            return fresh_batch(subject, actives, seen)[row]

    scene = Scene(subject, ops, max_num_seqs, mismatch, make_host, in_its_place, renewed, how="kept")
    culprit = scene.search()
    return scene.carried() if shared and culprit is None else culprit


def find_raising(subject: Subject, ops: Sequence[Op], max_num_seqs: int, make_host: MakeHost) -> Culprit | None:
    """Return the state for which ``apply`` raises in the last step, and a new instance with the same requests does not,
    or else an instance that serves one of them alone.

    None if no state alone is at fault, or the instance cannot be made again.
    """
    host: Host | None = None
    with contextlib.suppress(PluginError), subject.as_imported():
        host = make_host(subject, max_num_seqs)
        for _ in host.run(ops):
            pass
    if host is None:
        return None
    anyone = Mismatch(host.step, 0, "", 0, 0, 0.0, 0.0, {}, "")
    added = Scene(subject, ops, max_num_seqs, anyone, make_host, as_added, lambda *_: None, how="raised")
    scenes = [added]
    served = host.pool.requests.items()
    for name, active in served if len(served) > 1 else ():
        if active.variant is not None:
            lone = replace(anyone, request=name, position=active.request.total_len)
            instance = functools.partial(_serving_alone, lone)
            scenes.append(replace(added, own_instance=instance, how="alone"))
    return next(filter(None, (scene.search() for scene in scenes)), None)


def _serving_alone(lone: Mismatch, scene: Scene, host: Host, occupant: Request | None) -> Any:
    return from_its_arrival(replace(scene, mismatch=lone), host, occupant)


def advancing(cls: Any, standing: Standing) -> tuple[str, str, str]:
    """Return the cause of a second call's other result: its key, the name in it, and ``file:line``; empty without one.

    ``advances`` names the state that ``apply`` changes and depends on, at the line of the write; ``differs`` the first
    variable that is not as in the call before. ``cls``: the plugin's class.
    """

    def apply(beside: bool = True) -> torch.Tensor:
        if beside:
            standing.again(standing.logits.flip(0).flip(1))  # other logits in between, as in LP303
        applied: torch.Tensor = standing.again(standing.logits.clone())
        return applied

    with contextlib.suppress(Exception):  # as above
        root = State.of(standing.driver.processor, list(owners(cls)))
        before = list[tuple[State, str, Any]]()
        for parts, name in leaves(root):
            with contextlib.suppress(Exception):  # what cannot be copied
                before.append((parts, name, copy.deepcopy(parts.get(name))))
        before = [leaf for leaf in before if same(leaf[0].get(leaf[1]), leaf[2])]  # the others cannot be compared
        with trail() as here:
            first = apply(beside=False).clone()
        with trail() as there:
            apply(beside=False)
        if all(torch.equal(apply(), first) for _ in range(MOST_CALLS)):
            return "", "", ""
        changed = [leaf for leaf in before if not same(leaf[0].get(leaf[1]), leaf[2])]
        for kind in dict.fromkeys(_without_keys(name) for _, name, _ in changed):
            of_kind = [leaf for leaf in changed if _without_keys(leaf[1]) == kind]
            _set_back(of_kind)
            if torch.equal(apply(beside=False), first):
                _set_back(of_kind)
                parts, name, _ = of_kind[0]
                writes = Writes(cls, name, 0)
                with writes.around("apply", (), functools.partial(parts.get, name)):
                    apply()
                return "advances", name, str(writes.line or "")
        name, line = parting(here, there)
        key = "advances" if name.startswith("self.") else "differs" if f"{name} = " in text_at(line) else ""
        return key, name, line
    return "", "", ""


def _set_back(changed: Sequence[tuple[State, str, Any]]) -> None:
    for parts, name, value in changed:
        parts.put_value(name, copy.deepcopy(value))


def _without_keys(name: str) -> str:
    """Return a state's name without the keys of its containers."""
    return re.sub(r"\[[^]]*\]", "", name)
