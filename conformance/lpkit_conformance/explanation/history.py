"""The history of the state at fault: the author's lines that changed it, step by step, and the line that lost it."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.state import (
    Keys,
)
from lpkit_conformance.explanation.writes import (
    Line,
    branches,
    is_test,
)
from lpkit_conformance.instruments.author_lines import syntax_of

MOST_SHOWN = 4
"""Changes in a report: the last ones."""


class Change(NamedTuple):
    """A part of the state that has another value from here on.

    Attributes:
        step, method: of the engine's call; ``number`` counts the calls.
        lines: the line that made the change, and the author's lines that had called it.
        path: of the part.
        value: as a short text; None if it is gone.
    """

    step: int
    method: str
    number: int
    lines: tuple[Line, ...]
    path: Keys
    value: str | None


class Reason(NamedTuple):
    """Why the state is wrong, and the line to change with the change, as far as they are known."""

    cause: str
    fix: str
    line: Line | str | None


@dataclass
class StateHistory:
    """Changes of one attribute in a failing program.

    Attributes:
        name: as the author writes it.
        request: whose row is wrong.
        changes: in the order in which they were made.
        held: the requests, by row or slot, in each step.
        entered: the steps in which the request was added.
        added: of V1's updates with one move, by step, the rows that were added to, and True for the request's own.
        outputs: the number of its output tokens, by step.
        calls: numbers of the calls in which a change of the batch was reported, by step.
        file: of the class.
        moves: ``file:line`` where its ``update_state`` begins with the moves; empty if it is not known.
        moved_by: by step, the last line that ran for the moves.
        follows: True if something else than the author's lines changes it, as the engine does its lists.
        per_callable: True if each request's callable has the state, so that entries belong to rows or slots.
        inherited: the code of the methods of the class's bases: what they do is asked for by the class's own.
        holders: by ``id``, the author's objects that entries were, each with the request that had it first.
        objects: the objects that the entries are now, by row or slot.
        shared: entries that hold one object at the end, with the line that stored the second, and its step.
        ran: file and number of the lines that ran while the batch changed, by step.
        made: ``file:line`` where the constructor makes entries that are one object; empty if it does not.
        part: of the entry of a row or slot, as the author writes it, what is at fault; empty for all of the entry.
    """

    name: str
    request: str
    changes: list[Change] = field(default_factory=list)
    held: dict[int, dict[int, str]] = field(default_factory=dict)
    entered: Sequence[int] = ()
    added: dict[int, dict[int, bool]] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)
    calls: dict[int, list[int]] = field(default_factory=dict)
    file: str = ""
    moves: str = ""
    moved_by: dict[int, Line] = field(default_factory=dict)
    follows: bool = False
    per_callable: bool = False
    inherited: set[CodeType] = field(default_factory=set)
    holders: dict[int, tuple[Any, str]] = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict)
    shared: dict[frozenset[Any], tuple[int, Line]] = field(default_factory=dict)
    ran: dict[int, dict[tuple[str, int], None]] = field(default_factory=dict)
    made: str = ""
    part: str = ""

    @cached_property
    def positions(self) -> dict[int, int]:
        """The request's row or slot, by step."""
        return {step: at for step, held in self.held.items() for at, name in held.items() if name == self.request}

    @property
    def first_move(self) -> int:
        """The number of the line where the moves of an update begin; 0 if it is not known."""
        return int(self.moves.rpartition(":")[2] or 0)

    @property
    def by_position(self) -> bool:
        """True if entries of the state belong to rows or slots."""
        keys = {change.path[0] for change in self.changes if change.path}
        return bool(keys) and all(type(key) is int for key in keys)

    @property
    def changed_inside(self) -> Line | None:
        """The last line that changed what an entry holds, unless an instance has it for a row or slot."""
        changes = [change for change in reversed(self.changes) if len(change.path) > 1]
        by_row = self.name.startswith("self.")
        return next((c.lines[0] for c in changes if not (by_row and c.path[0] in self.held.get(c.step, {}))), None)

    @property
    def of_request(self) -> list[Change]:
        """The changes at the request's row or slot: where it was or came from, or is to come."""
        if not self.by_position:
            return self.changes
        since = min(self.positions, default=0)
        changes = [
            change
            for change in self.changes
            if change.path and change.path[0] in {self.positions.get(max(since, change.step - back)) for back in (0, 1)}
        ]
        return changes or self.changes

    @property
    def of_part(self) -> list[Change]:
        """The same for the part of the entry that is at fault, if it has changed."""
        changes = [change for change in self.of_request if _written(change.path[1:]).startswith(self.part)]
        return changes if self.by_position and changes else self.of_request

    def texts(self) -> tuple[str, ...]:
        """Return the last changes, a line of text each; several of one line in one step are one."""
        shown: dict[tuple[int, str], str] = {}
        for change in self.of_part:
            name = self.name + _written(change.path[1:] if self.per_callable else change.path)
            file, _, number = str(change.lines[0]).rpartition(":")
            line = f"line {number}" if file == self.file else f"{Path(file).name}:{number}"
            made = f"removes {name}" if change.value is None else f"sets {name}"
            text = f"step {change.step}: {line} {made}{f' to {change.value}' if change.value else ''}"
            shown[change.step, line] = text
        return tuple(shown.values())[-MOST_SHOWN:]

    def _of_entry(self, here: int) -> list[Change]:
        """Changes of the entry of this row or slot; all changes if entries do not belong to rows or slots."""
        return [change for change in self.changes if not self.by_position or change.path[:1] == (here,)]

    @property
    def _since(self) -> list[Change]:
        """The changes since the request arrived."""
        return self._later(self.of_request)

    def _later(self, changes: Sequence[Change]) -> list[Change]:
        return [change for change in changes if change.step >= min(self.positions, default=0)]

    def kept(self) -> Reason | None:
        """Return why a new instance, that gets the request with its outputs so far, has another value."""
        last = next(reversed(self._later(self.of_part)), None)
        if last is None:
            return None
        key = "advanced" if last.step > min(self.positions, default=0) else "" if self.follows else "once"
        return self._reason(key, last.lines[0], line=last.lines[0].number) if key else None

    def reason(self, last: int, blamed: str, proven: bool) -> Reason | None:
        """Return why the request's entry is wrong in step ``last``; None if the changes do not tell.

        ``blamed``: ``file:line`` of the last write, or of what went past it. ``proven``: another cause is known.
        """
        here = self.positions.get(last)
        if here is None:
            return None
        came_from = {
            step: next(
                (row for row, is_requests in self.added.get(step, {}).items() if is_requests),
                self.positions.get(step - 1),
            )
            for step in self.positions
        }
        moved = [step for step, there in came_from.items() if there not in (None, self.positions[step])]
        if self.by_position and (two := self._two(here)):
            return two
        if self.made:
            return self._reason("one for all", self.made)
        if moved and not (proven and blamed == self.moves):  # else the order within the update is at fault
            return self._lost(moved[-1], came_from[moved[-1]] or 0, here, blamed)
        always = self._counter() or self._used_before(here) or self._remade(here)
        if always or proven:
            return always
        if grown := self._grown(here):
            return grown
        early = self._early(here, min(self.positions), "came")
        return self._added_again() or self._taken_back() or self._of_another(here) or early or self._again()

    def _added_again(self) -> Reason | None:
        """Return the reason if the request comes back and its entry is made again, which others do not write to."""
        if not self.by_position and len({name for held in self.held.values() for name in held.values()}) > 1:
            return None
        step = self.entered[-1] if self.entered[1:] else 0
        made = [change for change in self._since if change.step == step and change.value is not None]
        if not made:
            return None
        advanced = made[-1].method == "apply" or any(change.step not in self.entered for change in self._since)
        first, again = ({(c.path, c.value) for c in self._since if c.step == at} for at in (self.entered[0], step))
        key = "added again" if not advanced else "begun again" if again <= first else "rebuilt"
        return self._reason(key, None, line=made[-1].lines[0].number, step=step, count=self.outputs[step])

    def _taken_back(self) -> Reason | None:
        """Return the reason if the entry was made of output tokens that were taken back."""
        fewer = {step: self.outputs.get(step - 1, 0) - count for step, count in self.outputs.items()}
        step = max((step for step, count in fewer.items() if count > 0), default=0)
        made = [change.lines[0].number for change in self._since if change.step < step]
        return self._reason("taken back", None, line=made[-1], step=step, count=fewer[step]) if made else None

    def _of_another(self, here: int) -> Reason | None:
        """Return the reason if the entry was last written when another request came."""
        changes = self._of_entry(here)
        if not changes or changes[-1].method == "apply" or changes[-1].value is None:
            return None
        step, line = changes[-1].step, changes[-1].lines[0].number
        here, before = here if self.by_position else -1, self.held.get(step - 1, {}).values()
        came = [name for at, name in self.held.get(step, {}).items() if here in (-1, at) and name not in before]
        is_others = len(came) == 1 and came[0] != self.request
        return self._reason("another", None, line=line, step=step, other=came[0]) if is_others else None

    def _used_before(self, here: int) -> Reason | None:
        """Return the reason if the entry is an object that was another request's."""
        held = self.objects.get(here)
        _, other = self.holders.get(id(held), (None, self.request))
        stored = [change for change in self.of_request if change.path == (here,)]
        changed = any(len(change.path) > 1 for change in self.changes)
        if other == self.request or not stored or not changed:
            return None
        return self._reason("used before", None, line=stored[-1].lines[0].number, other=other)

    def _remade(self, here: int) -> Reason | None:
        """Return the reason if the table is made again after the write of the request's entry, and loses it."""
        changes = [change for change in self._of_entry(here) if change.step >= min(self.positions)]
        if "." not in self.name or self.per_callable or not self.by_position or len(changes) < 2:
            return None
        former, last = (change.lines[0] for change in changes[-2:])
        if changes[-2].value is None or not self._sets.search(last.text) or self._sets.search(former.text):
            return None
        return self._reason("remade", last, line=last.number, step=changes[-1].step, former=former.number)

    def _grown(self, here: int) -> Reason | None:
        """Return the reason if nothing but the growth of the table has written the entry."""
        changes = [change for change in self._of_entry(here) if change.path]
        if (
            "." not in self.name
            or self.per_callable
            or not self.by_position
            or len(changes) != 1
            or changes[0].value is None
        ):
            return None
        line = changes[0].lines[0]
        grown = self._sets.search(line.text) and line.text.count(f".{self._attribute}") > 1
        return self._reason("grown", line, line=line.number, here=here, value=changes[0].value) if grown else None

    def _early(self, here: int, changed: int, what: str) -> Reason | None:
        """Return the reason if ``apply`` made the entry before the step that changed the batch, and nothing since.

        ``what``: the verb for the request, ``came`` or ``moved``.
        """
        last = next(reversed(self._of_entry(here) or self.changes), None)
        if not last or last.method != "apply" or last.step >= changed:
            return None
        if re.search(r"[-+*/|&]= ", last.lines[0].text):
            return None  # a count goes on, and is not made anew
        line, names = last.lines[0], {"step": changed, "what": what}
        if test := self._skipping(line, changed):
            return self._reason("not reset", f"{line.code.co_filename}:{test.lineno}", **names, line=test.lineno)
        named = re.compile(rf"\b{self._attribute}\b")
        guards = (test for test in branches(line.code, line.number) if named.search(test.text))
        return self._reason("early", next(guards, line), **names, line=line.number, made=last.step)

    def _skipping(self, line: Line, step: int) -> ast.If | None:
        """Return the condition for which a line that would set the state back did not run in this step.

        ``line``: the line that makes it.
        """
        file, ran = line.code.co_filename, self.ran.get(step, {})
        for function in ast.walk(syntax_of(file)):
            if not isinstance(function, ast.FunctionDef) or function.lineno == line.code.co_firstlineno:
                continue
            inside = list(ast.walk(function))
            tests = [node for node in inside if isinstance(node, ast.If) and (file, node.lineno) in ran]
            for node in inside:
                resets = isinstance(node, ast.stmt) and (file, node.lineno) not in ran
                if resets and isinstance(node, ast.Assign | ast.Expr) and self._sets.search(ast.unparse(node)):
                    around = [test for test in tests if any(node in ast.walk(part) for part in test.body)]
                    left = [test for test in tests if any((file, part.lineno) in ran for part in _returns(test))]
                    if around or left:
                        return [*left, *around][-1]
        return None

    @property
    def _attribute(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def _sets(self) -> re.Pattern[str]:
        """Found in a line that sets the whole attribute, or empties it."""
        return re.compile(rf"\b{self._attribute}((, [\w.]+)* = |\.clear\()")

    def _again(self) -> Reason | None:
        """Return the reason if ``apply`` changed the entry in a step in which the request had no new token."""
        changes = [change for change in self._since if change.method == "apply"]
        again = [c for c in changes[1:] if self.outputs.get(c.step, -1) == self.outputs.get(c.step - 1)]
        return self._reason("again", None, line=again[0].lines[0].number, step=again[0].step) if again else None

    def _two(self, here: int) -> Reason | None:
        """Return the reason if the entry and one of another row are the same object, which has changed since."""
        for keys, (step, line) in self.shared.items():
            if here in keys and any(change.step >= step and len(change.path) > 1 for change in self.of_request):
                other = next(iter(keys - {here}))
                return self._reason("two", line, here=here, other=other, step=step, line=line.number)
        return None

    def _lost(self, step: int, there: int, here: int, blamed: str) -> Reason | None:
        """Return the reason if the state did not go along from one row to another in this step."""
        made = [change for change in self.changes if change.step == step and change.method != "apply"]
        names = {"step": step, "there": there, "here": here}
        by_apply = all(change.method == "apply" for change in self.changes)
        if not made and by_apply and (early := self._early(here, step, "moved")):
            return early
        if not made:
            writes = {line for change in self.changes for line in change.lines}
            tests = [test for line in writes for test in branches(line.code, line.number) if str(test) == blamed]
            test = tests[0].text.strip().rstrip(":") if tests else ""
            line = None if tests else self.moved_by.get(step) or self._last_test(step)
            return self._reason("skipped" if tests else "unmoved", line, **names, test=test)
        added = self.added.get(step, {})
        left = [change for change in made if change.path[:1] == (there,)][there in added :]  # behind those of an Add
        stored = [change for change in made if change.path[:1] == (here,) and change.value is not None][here in added :]
        if left and not stored:
            line = next((line for line in left[-1].lines if line.code not in self._helpers), left[-1].lines[0])
            key = "taken" if left[-1].value is None else "overwritten"
            reason = self._reason(key, line, **names, line=line.number)
            return reason._replace(fix="") if there in added else reason  # the order within an update is at fault
        if there in added and not left and not stored:
            return self._reason("unstored", self.moved_by.get(step, self.moves), **names)
        return None

    @cached_property
    def _helpers(self) -> set[CodeType]:
        """The code of bases, and of functions that also write before the moves of an update."""
        before = [change for change in self.changes if updating(change.lines).number < self.first_move]
        return self.inherited | {line.code for change in before for line in change.lines[:-1]}

    def _last_test(self, step: int) -> str | None:
        """Return ``file:line`` of the last condition of the step; None without one, or if ``update_state`` moves."""
        places = [] if self.moves else [f"{file}:{number}" for file, number in self.ran.get(step, ())]
        return next((place for place in reversed(places) if is_test(advice.text_at(place))), None)

    def _counter(self) -> Reason | None:
        """Return the reason if each call of a method adds the same to a number."""
        reported = [change for change in self._since if change.method != "apply"]
        changes = [c for c in reported if c.path == reported[-1].path and c.step not in self.entered]
        if len({(change.lines[0], change.method) for change in changes}) != 1:
            return None
        numbers = [number for numbers in self.calls.values() for number in numbers if number >= changes[0].number]
        if [change.number for change in changes] != sorted(numbers):
            return None
        with contextlib.suppress(TypeError, ValueError):
            values = [float(change.value or "") for change in changes]
            gaps = {later - earlier for earlier, later in pairwise(values)}
            line = changes[-1].lines[0]
            if len(gaps) <= 1 and 0 not in gaps and re.search(r"[\w)\]] ?[-+]", line.text):
                return self._reason("counter", line, line=line.number, method=changes[-1].method)
        return None

    def _reason(self, key: str, at: Line | str | None, **values: Any) -> Reason:
        names = {"name": self.name, "request": self.request, **values}
        fix = advice.FIXES["history"].get(key, "").format(**names)
        return Reason(advice.cause(key, "history").format(**names), fix, at)


def _returns(test: ast.If) -> list[ast.stmt]:
    """Return the statements of a condition's body that end the function."""
    return [node for part in test.body for node in ast.walk(part) if isinstance(node, ast.Return)]


def updating(lines: Sequence[Line]) -> Line:
    """Return the line of the class's own ``update_state``, of lines that called each other."""
    return next((line for line in reversed(lines) if line.code.co_name == "update_state"), lines[-1])


def _written(path: Keys) -> str:
    """Return a path as the author writes it behind a name."""
    return "".join(part if is_field(part) else f"[{part!r}]" for part in path)


def is_field(key: Any) -> bool:
    """Return True if the part of a path is an attribute, not a key or an index."""
    return isinstance(key, str) and key.startswith(".")
