"""The state at fault, found by experiment: set back to the request's own value, it makes the row right."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from lpkit.runtime import Request

from lpkit_conformance.activity.stand import Standing
from lpkit_conformance.expectation.compare import Mismatch, first_difference
from lpkit_conformance.expectation.solo import fresh_batch, solo_runs
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.state import (
    ABSENT,
    ENTRY,
    MISSING,
    MOST_LEVELS,
    MOST_PARTS,
    State,
    leaves,
    same,
    short_texts,
    state_of,
)
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts import Host, Observation, PluginError
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.instruments.module_state import owners
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.subject.subject import Subject

CALLABLES = "self._calls"
"""The callables of ``lpkit.AdapterLogitsProcessor``: only what is inside them is the author's."""

WRAPPED = "call"
"""The variable of lpkit's own function around a callable of two arguments."""

MOST_CALLS = 64
"""Calls of ``apply`` among which one is looked for that gives another result."""

MOST_TOGETHER = 3
"""Attributes or variables that are at fault together."""

MOST_FOLLOWED = 64
"""Steps before the failing step in which the author's lines are followed."""

MakeHost = Callable[[Subject, int], Host]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Culprit:
    """State that makes a request's row wrong.

    Attributes:
        name: as the author writes it.
        value, own: its value, and the value that makes the row right, as short texts; empty if they are long.
        holder: the request that it belongs to; empty if no other request's value is the same.
        common: True if it is one value for all requests.
        kept: True if an earlier step left it, and a new instance gives the row without it.
        line: ``file:line`` of the last write to it, or of the branch that did not write; empty if unknown.
        others: further state that has to be right, too.
    """

    name: str
    value: str
    own: str
    holder: str
    common: bool
    kept: bool
    line: str
    others: tuple[str, ...] = ()

    def cause(self, request: str) -> str:
        """Return what is wrong, with the proof; ``request``: the one whose row is wrong."""
        held = f"{self.holder}'s" if self.holder else "not its own"
        value = f"{self.value}, {held}" if self.value else held
        key = "missing" if self.value == ABSENT else "left" if self.own == ABSENT else "held"
        key = "together" if self.others else "kept" if self.kept else key
        own = f", {self.own}," if self.own else ""
        texts = {"name": "` and `".join((self.name, *self.others)), "value": value, "own": own, "request": request}
        return advice.cause(key, "culprit").format(**texts)


def find_culprit(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> Culprit | None:
    """Return the state at fault; None if no state alone is, or what ``apply`` makes of it is at fault.

    The request's own values are those of a new instance in which nobody else uses the plugin, or else of an instance
    that serves the request alone from its arrival on. If neither makes the row right, the solo run itself may depend on
    what an earlier step left.
    """
    solo = solo_runs(subject)

    def alone(host: Host, seen: Observation, row: int) -> torch.Tensor | None:
        solo.prepare(host.pool.requests)
        return solo.expected(seen.rows[row].request, seen.rows[row].position)

    scene = _Scene(subject, ops, max_num_seqs, mismatch, make_host, _in_its_place, alone)
    found = scene.search() or replace(scene, own_instance=_from_its_arrival).search()
    arrived = next((op for op in ops if isinstance(op, Arrive) and op.request == mismatch.request), None)
    if found or arrived is None or arrived.variant is None or arrived.twin_of:
        return found
    steps = mismatch.position - arrived.prompt_len + 1
    return kept_state(subject, [arrived, Step(steps)], max_num_seqs, replace(mismatch, step=steps), make_host)


def kept_state(
    subject: Subject, ops: Sequence[Op], max_num_seqs: int, mismatch: Mismatch, make_host: MakeHost
) -> Culprit | None:
    """Return the state that an earlier step left, and that a new instance with the same requests lacks.

    None if it makes no difference to the row, or no state alone does.
    """

    def renewed(host: Host, seen: Observation, row: int) -> torch.Tensor:
        actives = [host.pool.requests[item.request] for item in seen.rows]
        return fresh_batch(subject, actives, seen)[row]

    return _Scene(subject, ops, max_num_seqs, mismatch, make_host, _in_its_place, renewed, kept=True).search()


def advancing(cls: Any, standing: Standing) -> tuple[str, str]:
    """Return the name of the state that ``apply`` changes and depends on, and ``file:line`` of the write; else empty.

    ``cls``: the plugin's class.
    """

    def apply() -> torch.Tensor:
        found: torch.Tensor = standing.again(standing.logits.clone())
        return found

    with contextlib.suppress(Exception):  # as above
        root = State.of(standing.driver.processor, list(owners(cls)))
        before = [(parts, name, copy.deepcopy(parts.get(name))) for parts, name in leaves(root)]
        before = [leaf for leaf in before if same(leaf[0].get(leaf[1]), leaf[2])]  # the others cannot be compared
        first = apply().clone()
        if all(torch.equal(apply(), first) for _ in range(MOST_CALLS)):
            return "", ""
        changed = [leaf for leaf in before if not same(leaf[0].get(leaf[1]), leaf[2])]
        for name in dict.fromkeys(name for _, name, _ in changed):
            of_name = [(parts, value) for parts, other, value in changed if other == name]
            for parts, value in of_name:
                parts.put_value(name, copy.deepcopy(value))
            if torch.equal(apply(), first):
                writes = Writes(cls, name, 0)
                with writes.around("apply", (), functools.partial(of_name[0][0].get, name)):
                    apply()
                return name, writes.line
    return "", ""


@dataclass
class _Scene:
    """The failing step, which is run again with parts of the instance set back.

    Attributes:
        own_instance: returns an instance with the request's own values.
        expected: returns the right row, or None for a row that nothing is known of.
        kept: see :class:`Culprit`.
    """

    subject: Subject
    ops: Sequence[Op]
    size: int
    mismatch: Mismatch
    make_host: MakeHost
    own_instance: Callable[[_Scene, Host, Request | None], Any]
    expected: Callable[[Host, Observation, int], torch.Tensor | None]
    kept: bool = False
    _position: int = field(default=0, init=False)

    def search(self) -> Culprit | None:
        """Return the smallest part of the state that makes the row right when it is set back."""
        with contextlib.suppress(Exception):  # whatever the plugin or its objects raise: a clue is being looked for
            return self._below(()) or self._below((CALLABLES, f"{CALLABLES}[{self._position}]"))  # V2 holds them twice
        return None

    def _below(self, path: Path) -> Culprit | None:
        keys: list[str] = []
        for _ in range(MOST_LEVELS):
            keys = self.needed(path)
            if len(keys) != 1:
                break
            path = (*path, *keys)
        if 1 < len(keys) <= MOST_TOGETHER and not any("[" in key for key in keys):
            return replace(self.culprit((*path, keys[0])), others=tuple(keys[1:]))
        own = path and (path[0] != CALLABLES or len(path) > 2) and path[-1] != WRAPPED
        return self.culprit(path) if own else None

    @functools.cached_property
    def _owners(self) -> list[Any]:
        return list(owners(self.subject.plugin.cls))

    def needed(self, path: Path) -> list[str]:
        """Return the fewest parts of the value at ``path`` that make the row right when they are set back."""
        found: list[str] = []

        def look(host: Host) -> None:
            here, own = self._parts(host.driver.processor, path), self._own(host, path)
            names = {**here.places, **own.places}
            found[:] = [name for name in names if not same(here.get(name), own.get(name))]

        self._row_right(look)
        if not path and self._right_with(path, []):
            return []  # the new instance that was made for comparison makes the row right: no part of the state does
        # What is private may hold objects that refer to the instance: it is tried last, and given up first.
        keys = sorted(found, key=lambda key: not key.startswith("self._"))
        if len(keys) > MOST_PARTS:
            return []
        for key in reversed(keys):
            if self._right_with(path, [key]):
                return [key]
        if len(keys) < 2 or not self._right_with(path, keys):
            return []
        for key in list(keys):
            rest = [other for other in keys if other != key]
            if rest and self._right_with(path, rest):
                keys = rest
        return keys

    def culprit(self, path: Path) -> Culprit:
        """Describe the value at ``path``."""
        *outer, name = path
        found: list[Culprit] = []

        def look(host: Host) -> None:
            wrong = self._parts(host.driver.processor, outer).get(name)
            right = self._own(host, outer).get(name)
            common = len(path) == 1 and ENTRY not in name and not isinstance(wrong, dict)
            shown = name.replace(ENTRY, f"[{self._place(host.driver.processor)}]")
            holder = self._holder(host, path, wrong, right)
            found.append(Culprit(shown, *short_texts(wrong, right), holder, common, self.kept, ""))

        self._row_right(look)
        writes = Writes(self.subject.plugin.cls, name, self._position)

        def around(host: Host, method: str, args: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
            def value() -> Any:
                return self._parts(host.driver.processor, outer).get(name)

            late = host.step >= self.mismatch.step - MOST_FOLLOWED
            return writes.around(method, args, value) if late else contextlib.nullcontext()

        self._row_right(lambda host: None, around)
        return replace(found[-1], line=writes.line)

    def _right_with(self, path: Path, names: Sequence[str]) -> bool:
        def set_back(host: Host) -> None:
            here, own = self._parts(host.driver.processor, path), self._own(host, path)
            for name in names:
                here.put(name, own)

        try:
            return self._row_right(set_back)
        except PluginError:
            return False

    def _row_right(
        self,
        change: Callable[[Host], None],
        around: Callable[[Host, str, tuple[Any, ...]], contextlib.AbstractContextManager[None]] | None = None,
    ) -> bool:
        """Run the program with a change right before the failing ``apply``; True if the row is right then."""

        @contextlib.contextmanager
        def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
            if method == "apply" and host.step == self.mismatch.step:
                self._position = host.position(self.mismatch.row, self.mismatch.request)
                change(host)
            with around(host, method, args) if around else contextlib.nullcontext():
                yield

        with self.subject.as_imported():
            host = self.make_host(self.subject, self.size)
            with host.driver.watched(watch):
                for seen in host.run(self.ops):
                    if seen.step == self.mismatch.step and any(
                        row.request == self.mismatch.request for row in seen.rows
                    ):
                        return self._judged(host, seen)
        return False

    def _judged(self, host: Host, seen: Observation) -> bool:
        for row, item in enumerate(seen.rows):
            if item.request == self.mismatch.request and not item.discarded:
                expected = self.expected(host, seen, row)
                one = slice(row, row + 1)
                if expected is None or first_difference(seen.before[one], expected.unsqueeze(0), seen.after[one]):
                    return False
        return True

    def _own(self, host: Host, path: Sequence[str], occupant: Request | None = None) -> State:
        """Return the parts of an instance with the request's own values; ``occupant``: another request in its place."""
        with self.subject.as_imported():
            return self._parts(self.own_instance(self, host, occupant), path, host.driver.processor).copied()

    def _parts(self, processor: Any, path: Sequence[str], failing: Any = None) -> State:
        """Return parts of an instance; what is empty in it is divided as in the ``failing`` one."""
        found = State.of(processor, self._owners)
        filled = found if failing is None else State.of(failing, self._owners)
        position = self._place(processor)
        for name, value in [(name, found.get(name)) for name in found.places if name != CALLABLES]:
            if self._by_position(filled.get(name) if isinstance(value, dict) and not value else value):
                del found.places[name]
                found.places[name + ENTRY] = value, position
        for name in path:
            found = state_of(name, found.get(name), position)
        return found

    def _by_position(self, value: Any) -> bool:
        """True if a value has an entry for each row or slot: those of other requests are theirs."""
        if isinstance(value, dict):
            return all(type(key) is int and 0 <= key <= self.size for key in value)
        array = isinstance(value, list) or (isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0)
        return array and self.size <= len(value) <= self.size + 1

    def _place(self, processor: Any) -> int:
        """Return the request's row or slot, or the slot that lpkit gave it on V1."""
        binding = getattr(processor, "_v1", None)
        entry = binding._ledger.rows.get(self._position) if binding is not None else None
        return entry.slot if entry is not None else self._position

    def _holder(self, host: Host, path: Path, wrong: Any, right: Any) -> str:
        """Return the other request whose own value is the wrong one."""
        for name, active in host.pool.requests.items():
            if name == self.mismatch.request or active.variant is None or wrong is MISSING:
                continue
            occupant = make_active(self.subject, active.arrived, host.pool.requests.get).request
            occupant.request_id, occupant.output_token_ids = self.mismatch.request, list(active.committed)
            with contextlib.suppress(Exception):
                if same(wrong, self._own(host, path[:-1], occupant).get(path[-1])):
                    return name
        return ""


def _in_its_place(scene: _Scene, host: Host, occupant: Request | None) -> Any:
    """Return a new instance on the failing engine, in which no other request uses the plugin."""
    stranger = scene.subject.params(None)

    def alter(request: Request) -> Request:
        if request.request_id == scene.mismatch.request:
            return occupant or request
        other = copy.copy(request)
        other.params = stranger
        return other

    driver = host.anew(alter)
    assert driver is not None
    return driver.processor


def _from_its_arrival(scene: _Scene, host: Host, occupant: Request | None) -> Any:
    """Return an instance that serves the request alone, just before it applies the failing step."""
    if occupant is not None:
        return None
    request = scene.mismatch.request
    lone = scene.make_host(scene.subject, scene.size)

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method == "apply" and lone.pool.requests[request].request.total_len == scene.mismatch.position:
            raise _Reached
        yield

    with contextlib.suppress(_Reached), lone.driver.watched(watch):
        for _ in lone.run([host.pool.requests[request].arrived, Step(scene.mismatch.position)]):
            pass
    return lone.driver.processor


class _Reached(Exception):
    """An instance has come to the step in question."""
