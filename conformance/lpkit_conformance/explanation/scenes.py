"""A failing step that runs again with parts of the plugin set back: the part that makes the row right is at fault."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, FunctionType, ModuleType
from typing import Any, Literal, get_args

import torch
from lpkit.runtime import Request

from lpkit_conformance.expectation.compare import Mismatch, first_difference
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.findings import declaration, reading_line, style_of
from lpkit_conformance.explanation.state import (
    ABSENT,
    CALLABLES,
    ENTRY,
    MISSING,
    MOST_LEVELS,
    MOST_PARTS,
    State,
    same,
    short_text,
    short_texts,
    size_of,
    state_of,
)
from lpkit_conformance.explanation.writes import ANYWHERE, Line, Writes, author_calling
from lpkit_conformance.hosts import Host, Observation, PluginError
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.instruments.author_lines import following, syntax_of
from lpkit_conformance.instruments.module_state import CACHED, owners
from lpkit_conformance.programs.generate import Op
from lpkit_conformance.subject.subject import Subject

WRAPPED = "call"
"""The variable of lpkit's own function around a callable of two arguments."""

MOST_TOGETHER = 3
"""Attributes or variables that are at fault together."""

MOST_FOLLOWED = 64
"""Steps before the failing step in which the author's lines are followed."""

NEUTRAL = (0, 1)
"""Numbers with which a sum or a product is the other number itself."""

Path = tuple[str, ...]
How = Literal["", "kept", "raised", "alone", "carried", "pinned"]

Point = Literal["reports", "calls", "edits"]
"""Beginnings of the author's functions: of those that the engine or lpkit calls to report a change of the batch, of all
that run while one is reported, and of all that run in ``apply``."""


@dataclass(frozen=True)
class Culprit:
    """State that makes a request's row wrong.

    Attributes:
        name: as the author writes it.
        value, right: its value, and the value that makes the row right, as short texts; empty if they are long.
        holder: the request that it belongs to; empty if no other request's value is the same.
        common: True if it is one value for all requests.
        table: True if it is a list or an array for all requests.
        unwritten: True if it is an entry that is as the constructor left it.
        keyed: True if it is looked up by a key that is not the request's own row or slot, as in a cache.
        of_class: True if it is a container in the body of a class, which all instances share.
        how: key of the cause, if it is not the value that is wrong: an earlier step left it (``kept``), an exception
            goes with it (``raised``), but not if a request is alone (``alone``), it goes from one request to another
            (``carried``), or from one row to the next in ``apply``, where it has to be held at the right value
            (``pinned``).
        line: ``file:line`` of its definition, its key, the last write, or a branch that did not write; else empty.
        reported: the first line that names it in the last call before ``apply`` that does.
        others: further state that has to be right, too.
    """

    name: str
    value: str
    right: str
    holder: str
    common: bool
    how: How = ""
    line: str = ""
    reported: Line | None = None
    others: tuple[str, ...] = ()
    table: bool = False
    unwritten: bool = False
    keyed: bool = False
    of_class: bool = False

    @property
    def stored(self) -> bool:
        """True if the state is kept for some requests, and holds another request's value."""
        return self.how == "carried" or bool(self.holder and not self.common)

    @property
    def opaque(self) -> bool:
        """True for an object: what is wrong may be inside, where several requests share it."""
        return not self.value or "<" in self.value or "..." in self.value

    def cause(self, request: str) -> str:
        """Return the cause with its proof; ``request``: the request whose row is wrong."""
        single = not self.others  # whose values are short enough
        key = "missing" if self.value == ABSENT else "left" if self.right == ABSENT else "held"
        value = self.value if single else ""
        if self.holder:
            key, value = "left by" if key == "left" else "held by", f", {value}" if value else ""
        else:
            value = f"{value}, not its own" if value else "there" if key == "left" else "not its own"
            key = key if single else "together"
        key = "shared" if self.value and self.value == self.right else key
        texts = {
            "name": "` and `".join((self.name, *self.others)),
            "value": value,
            "own": f", {self.right}," if self.right and single else "",
            "request": request,
            "holder": self.holder,
        }
        return advice.cause(self.how or key, "culprit").format(**texts)


@dataclass
class Scene:
    """The failing step, which is run again with parts of the instance set back.

    Attributes:
        own_instance: returns an instance with the request's own values.
        expected: returns the right row, or None for a row that nothing is known of.
        how: see :class:`Culprit`.
        point: where parts are set back, each time that it is reached; None: right before the failing ``apply``.
        tables: attributes that stay.
    """

    subject: Subject
    ops: Sequence[Op]
    size: int
    mismatch: Mismatch
    make_host: MakeHost
    own_instance: Callable[[Scene, Host, Request | None], Any]
    expected: Callable[[Host, Observation, int], torch.Tensor | None]
    how: How = ""
    point: Line | Point | None = None
    tables: Sequence[str] = ()
    _position: int = field(default=ANYWHERE, init=False)
    _captured: dict[Path, State] = field(default_factory=dict, init=False)
    _innermost: Any = field(default=None, init=False)
    _undo: list[Callable[[], object]] = field(default_factory=list, init=False)

    def search(self) -> Culprit | None:
        """Return the smallest part of the state that makes the row right when it is set back."""
        level = logging.root.manager.disable
        logging.disable()  # lpkit logs what it catches when it admits a request
        try:
            return self._below(()) or self._below((CALLABLES + ENTRY,))  # V2 holds them twice
        except Exception:  # whatever the plugin or its objects raise: a clue is being looked for
            return None
        finally:
            logging.disable(level)

    def source_of(self, culprit: Culprit) -> Culprit:
        """Return the state that ``found`` took a wrong value from, such as a list on the host, or a cache."""
        source = self._read_at(culprit) or culprit
        carried = self.carried()
        other = carried is not None and _base(carried) != _base(source)
        return carried if carried and other and (source.holder or source.opaque or carried.keyed) else source

    def neutral(self) -> tuple[str, str, int] | None:
        """Return name and value of the request's own entry of a table, and the number with which its row is right."""
        entries: dict[str, str] = {}

        def look(host: Host) -> None:
            parts = self._parts(host.driver.processor, ())
            entries.update((name, short_text(parts.get(name))) for name in parts.places if ENTRY in name)

        with contextlib.suppress(Exception):  # as in a search
            self._row_right(look)
            for name, number in itertools.product(entries, NEUTRAL):

                def set_to(host: Host, name: str = name, number: int = number) -> None:
                    self._undo.append(self._parts(host.driver.processor, ()).put_value(name, number))

                if self._row_right(set_to):
                    return name.replace(ENTRY, f"[{self._position}]"), entries[name], number
        return None

    def carried(self) -> Culprit | None:
        """Return the state that takes something from one request to another, which no table of the requests does."""
        tables: list[str] = []

        def look(host: Host) -> None:
            parts = State.of(host.driver.processor, self._owners)
            positions = {host.position(row, name) for row, name in enumerate(host.pool.running)}
            for name in parts.places:
                value = parts.get(name)
                many = len(value) > 1 and positions.issuperset(value) if isinstance(value, dict) else True
                tables.extend([name] * (many and self._by_position(value)))

        with contextlib.suppress(Exception):  # as above
            self._row_right(look)
        scenes = (replace(self, point=point, how="carried", tables=tables) for point in get_args(Point))
        return next(filter(None, (scene.search() for scene in scenes)), None)

    def _read_at(self, culprit: Culprit) -> Culprit | None:
        """Return the state that the line which last reported a change to ``found`` reads; None without any."""
        raw = style_of(self.subject.plugin.cls, self.subject.setup.host) == "raw"
        if culprit.reported is None or culprit.others or not raw:
            return None
        other = replace(self, point=culprit.reported).search()
        if other is None or f"{culprit.name}.".startswith((f"{_base(other)}.", f"{_base(other)}[")):
            return None  # the same, or the object that holds it
        if other.right == ABSENT and _base(other) not in culprit.reported.text:
            return None  # a request that is not served yet: without its entry, its row is as the model left it
        if culprit.name.isidentifier() and other.name.endswith("]"):
            return None  # the function that has the variable
        attribute, line = other.name.rpartition(".")[2], other.line
        if "[" not in attribute and attribute not in advice.text_at(line):  # a line before the one that reads it
            line = reading_line(self.subject.plugin.cls, attribute)[0] or line
        return replace(other, line=line, holder=culprit.holder if other.value == culprit.value else "")

    def _below(self, path: Path) -> Culprit | None:
        keys: list[str] = []
        for _ in range(1 if self.how == "raised" else MOST_LEVELS):
            keys = self.needed(path)
            if len(keys) != 1 or (self.how == "carried" and (keys[0].endswith("]") or CALLABLES in path)):
                break
            path = (*path, *keys)
        if 1 < len(keys) <= MOST_TOGETHER and not any(key.endswith("]") for key in keys):
            culprit = self.culprit((*path, keys[0]))
            entry = culprit.name[len(keys[0].partition(ENTRY)[0]) :].partition("]")[0] + "]"
            return replace(culprit, others=tuple(key.replace(ENTRY, entry) for key in keys[1:]))
        if path and not keys and isinstance(self._innermost, FunctionType):  # what it reads of its instance is wrong
            behind = replace(self, tables=[*self.tables, path[0]])._below(())
            if behind is not None:
                return behind
        is_state = path and path[-1] not in (CALLABLES + ENTRY, WRAPPED)
        return self.culprit(path) if is_state else None

    @functools.cached_property
    def _owners(self) -> list[Any]:
        return list(owners(self.subject.plugin.cls))

    def needed(self, path: Path) -> list[str]:
        """Return the fewest parts of the value at ``path`` that make the row right when they are set back."""
        unlike: list[str] = []

        def look(host: Host) -> None:
            here, rights = self._parts(host.driver.processor, path), self._own(host, path)
            self._innermost = here.home
            parts = {} if here.home is MISSING else {**here.places, **rights.places}
            names = [name for name in parts if name not in self.tables]
            earlier = unlike if self.how == "pinned" else ()
            differing = [name for name in names if name in earlier or not same(here.get(name), rights.get(name))]
            unlike[:] = differing
            # Of what is equal, a container may be shared, and change in the call itself.
            unlike[:] = unlike or [name for name in names if path and isinstance(here.get(name), list | dict | set)]

        if self.point is not None:
            self._capture(path)
        self._row_right(look)
        if not path and self.point is None and self._right_with(path, []):
            return []  # the new instance that was made for comparison makes the row right: no part of the state does
        # What is private may hold objects that refer to the instance: it is tried last, and given up first.
        keys = sorted(unlike, key=lambda key: not key.startswith("self._"))
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
        culprits, entries = list[Culprit](), list[int]()

        def look(host: Host) -> None:
            if culprits and self.how == "pinned":  # before the first line
                return
            wrong = self._parts(host.driver.processor, outer).get(name)
            right = self._own(host, outer).get(name)
            kept = vars(host.driver.processor).get(name.removeprefix("self."), MISSING)
            mine = "[" not in "".join(path) or (name.startswith("self.") and kept is wrong is not MISSING)
            mine = mine or (ENTRY not in "".join(path) and self._is_field(name))
            fields = not isinstance(wrong, dict) or all(self._is_field(f"[{key!r}]") for key in wrong)
            common = mine and ENTRY not in name and fields
            shown = name.replace(ENTRY, f"[{self._place(host.driver.processor)}]")
            holder = "" if self.how == "pinned" else self._holder(host, path, wrong, right)
            if self.how == "raised" and isinstance(wrong, dict) and isinstance(right, dict):
                entries.extend(key for key in wrong if key not in right and isinstance(key, int))
            arrays = wrong if isinstance(wrong, tuple) else [wrong]
            table = common and any(size_of(part) for part in arrays if not isinstance(part, tuple))
            texts = short_texts(wrong, right)
            unwritten = ENTRY in name and not holder and self._is_first(host, path, wrong)
            culprits.append(Culprit(shown, *texts, holder, common, self.how, table=table, unwritten=unwritten))

        self._row_right(look)
        until = self.point if isinstance(self.point, Line) else None
        within = self.point == "edits" or self.how == "pinned"
        writes = Writes(self.subject.plugin.cls, name, entries[-1] if entries else self._position, until, within)

        def around(host: Host, method: str, args: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
            def value() -> Any:
                kept = self._parts(host.driver.processor, outer).get(name)
                return kept.get(entries[-1], MISSING) if entries and isinstance(kept, dict) else kept

            late = host.step >= self.mismatch.step - MOST_FOLLOWED
            return writes.around(method, args, value) if late else contextlib.nullcontext()

        self._row_right(lambda host: None, around)
        keyed = self.how == "carried" or (name.endswith("]") and ENTRY not in name and not self._is_field(name))
        owner, cached = self._owner_of(path[0])
        key = path[0].rpartition(".")[2]
        declared = "" if owner is None or cached else declaration(owner, key)  # of data, not of a cache's calls
        changes = self.how == "carried" and not writes.keyed
        of_class = changes and isinstance(owner, type) and isinstance(vars(owner)[key], dict | list | set)
        if changes and writes.last and not of_class:
            declared = ""  # the line that changes what the class or the module has
        line = str((keyed and writes.keyed) or declared or writes.line or "")
        keyed = keyed and (writes.keyed is not None or cached)
        unwritten = culprits[-1].unwritten and writes.first is None
        return replace(
            culprits[-1], line=line, reported=writes.reported, keyed=keyed, unwritten=unwritten, of_class=of_class
        )

    def _is_field(self, name: str) -> bool:
        """Return True for an entry whose key the author's file spells out, as of a dict of options."""
        file, key = inspect.getsourcefile(self.subject.plugin.cls) or "", name.rpartition("[")[2].removesuffix("]")
        nodes = list(ast.walk(syntax_of(file)))
        keys = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
        keys += [part for node in nodes if isinstance(node, ast.Dict) for part in node.keys if part]
        return any(isinstance(part, ast.Constant) and repr(part.value) == key for part in keys)

    def _owner_of(self, name: str) -> tuple[type | ModuleType | None, bool]:
        """Return the class or the module that has this, and True if it is a function with a cache."""
        owner, key = State.of(self._blank().processor, self._owners).places.get(name, (None, ""))
        return (owner, isinstance(vars(owner)[key], CACHED)) if isinstance(owner, type | ModuleType) else (None, False)

    def _blank(self) -> Host:
        """Return a new engine without requests."""
        with self.subject.as_imported():
            return self.make_host(self.subject, self.size)

    def _is_first(self, host: Host, path: Path, wrong: Any) -> bool:
        """True if a value is what it is in an instance that has had no requests."""
        return same(wrong, self._parts(self._blank().processor, path[:-1], host.driver.processor).get(path[-1]))

    def _right_with(self, path: Path, names: Sequence[str]) -> bool:
        def set_back(host: Host) -> None:
            here, rights = self._parts(host.driver.processor, path), self._own(host, path)
            for name in names:
                self._undo.append(here.put(name, rights))

        return self._row_right(set_back)

    def _row_right(
        self,
        change: Callable[[Host], None],
        around: Callable[[Host, str, tuple[Any, ...]], contextlib.AbstractContextManager[None]] | None = None,
    ) -> bool:
        """Run the program with a change at the point; True if the row is right then, or if nothing is raised."""
        request = self.mismatch.request

        def note(frame: FrameType, event: str, _: Any) -> None:
            if self._is_point(frame, event):
                with contextlib.suppress(Exception):  # what cannot be set back stays
                    change(host)

        @contextlib.contextmanager
        def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
            if method == "apply" and host.step == self.mismatch.step and self.point is None:
                self._position = host.position(self.mismatch.row, request) if request else ANYWHERE
                change(host)
            begins = isinstance(self.point, str)
            follows = (self.point == "edits") == (method == "apply") if begins else self.point is not None
            follows |= self.how == "pinned" and method == "apply" and host.step == self.mismatch.step
            with around(host, method, args) if around else following(note) if follows else contextlib.nullcontext():
                yield

        with self.subject.as_imported(), contextlib.suppress(PluginError):
            try:
                host = self.make_host(self.subject, self.size)
                with host.driver.watched(watch):
                    for seen in host.run(self.ops):
                        if seen.shows(self.mismatch.step, request):
                            return self._judged(host, seen)
            finally:
                while self._undo:
                    with contextlib.suppress(Exception):  # what refuses to be set
                        self._undo.pop()()
        return False

    def _is_point(self, frame: FrameType, event: str) -> bool:
        if self.how == "pinned":
            return event == "line"
        if isinstance(self.point, str):
            return event == "call" and (self.point != "reports" or author_calling(frame) is None)
        return event == "line" and Line(frame.f_code, frame.f_lineno) == self.point

    def _capture(self, path: Path) -> None:
        """Keep the parts of an instance without requests, or else the request's own as they are at the line."""
        if isinstance(self.point, str):
            with self.subject.as_imported():
                self._captured[path] = self._parts(self._blank().processor, path).copied()
            return
        scene = replace(self, point=None)

        def look(host: Host) -> None:
            self._position = scene._position
            kept: list[State] = []

            def note(frame: FrameType, event: str, _: Any) -> None:
                processor = frame.f_locals.get("self")
                if self._is_point(frame, event) and isinstance(processor, self.subject.plugin.cls):
                    kept[:] = [self._parts(processor, path, host.driver.processor).copied()]

            with following(note):
                rights = self.own_instance(scene, host, None)
            self._captured[path] = kept[0] if kept else self._parts(rights, path, host.driver.processor).copied()

        scene._row_right(look)

    def _judged(self, host: Host, seen: Observation) -> bool:
        everyone = self.how == "carried"  # without what only carries, all rows are right
        for row, item in enumerate(seen.rows):
            if (everyone or item.request == self.mismatch.request) and not item.discarded:
                expected = self.expected(host, seen, row)
                only = slice(row, row + 1)
                if expected is None or first_difference(seen.before[only], expected.unsqueeze(0), seen.after[only]):
                    return False
        return True

    def _own(self, host: Host, path: Sequence[str], occupant: Request | None = None) -> State:
        """Return the parts of an instance with the request's own values; ``occupant``: another request in its place."""
        if self.point is not None or (self.how == "pinned" and tuple(path) in self._captured):
            return self._captured[tuple(path)].copied()
        with self.subject.as_imported():
            instance = self.own_instance(self, host, occupant)  # kept: its finalizers may close what is copied
            self._captured[tuple(path)] = self._parts(instance, path, host.driver.processor).copied()
            return self._captured[tuple(path)]

    def _parts(self, processor: Any, path: Sequence[str], failing: Any = None) -> State:
        """Return parts of an instance; what is empty in it is divided as in the ``failing`` one."""
        parts = State.of(processor, self._owners)
        filled = parts if failing is None else State.of(failing, self._owners)
        position = self._place(processor)
        for name, value in [(name, parts.get(name)) for name in parts.places]:
            if self._position != ANYWHERE and self._by_position(
                filled.get(name) if isinstance(value, dict) and not value else value
            ):
                del parts.places[name]
                parts.places[name + ENTRY] = value, position
        for name in path:
            parts = state_of(name, parts.get(name), position)
        return parts

    def _by_position(self, value: Any) -> bool:
        """True if a value has an entry for each row or slot, so that the other entries belong to other requests."""
        if isinstance(value, dict):
            return all(type(key) is int and 0 <= key <= self.size for key in value)
        return not isinstance(value, tuple) and self.size <= size_of(value) <= self.size + 1

    def _place(self, processor: Any) -> int:
        """Return the request's row or slot, or the slot that lpkit gave it on V1."""
        binding = getattr(processor, "_v1", None)
        entries = [] if binding is None else binding._ledger.entries[self._position : self._position + 1]
        entry = entries[0] if entries else None
        return entry.slot if entry is not None else self._position

    def _holder(self, host: Host, path: Path, wrong: Any, right: Any) -> str:
        """Return the other request whose own value is the wrong one."""
        for name, active in host.pool.requests.items() if self.point is None and self.mismatch.request else ():
            if name == self.mismatch.request or active.variant is None or wrong is MISSING:
                continue
            occupant = make_active(self.subject, active.arrived, host.pool.requests.get).request
            occupant.request_id, occupant.output_token_ids = self.mismatch.request, list(active.committed)
            with contextlib.suppress(Exception):
                if same(wrong, self._own(host, path[:-1], occupant).get(path[-1])):
                    return name
        return ""


def _base(culprit: Culprit) -> str:
    return culprit.name.partition("[")[0]
