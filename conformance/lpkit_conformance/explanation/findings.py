"""Evidence in the author's terms: what a departure from the oracle, or an exception, says about the plugin."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from lpkit_conformance.activity.search import EARLY
from lpkit_conformance.expectation.compare import Mismatch
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.changes import MakeHost
from lpkit_conformance.explanation.exceptions import NUMBERS, read
from lpkit_conformance.explanation.writes import Writes
from lpkit_conformance.hosts import Host, Observation, PluginError, default_host, drive
from lpkit_conformance.instruments.author_lines import is_authors, syntax_of
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.instruments.trails import definition, set_by
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Step, Swap
from lpkit_conformance.results import Finding
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.subject import Subject

OTHER_LOGITS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    torch.clone,
    torch.zeros_like,
    lambda logits: logits * 10.0,
    torch.neg,
)
"""Logits as they are, flat, peaked, and upside down."""


def departure(mismatch: Mismatch, source: dict[str, str], operations: tuple[str, ...] = ()) -> Finding:
    """A finding for a row that is not what its request gets alone."""
    return Finding(
        summary=f"request {mismatch.request} got different logits in the batch than alone",
        where={
            "request": mismatch.request,
            "row": str(mismatch.row),
            "step": str(mismatch.step),
            "tokens so far": str(mismatch.position),
            "token id": str(mismatch.token),
            **source,
        },
        expected=f"{mismatch.expected:g}",
        got=f"{mismatch.got:g}",
        operations=operations,
        logits=mismatch.logits,
        cause=advice.cause(mismatch.kind),
    )


def cause_of(mismatch: Mismatch, ops: Sequence[Op], afresh: bool) -> str:
    """Return the cause of a mismatch that these operations allow; ``afresh``: no earlier step is at fault."""
    kind = mismatch.kind
    if kind == "stale":
        uses = any(isinstance(op, Arrive) and op.request == mismatch.request and op.variant is not None for op in ops)
        left = any(isinstance(op, Finish | Preempt | Swap) for op in ops)
        kind = "out of step" if uses else "stale" if left and not afresh else "stray"
    alone = sum(isinstance(op, Arrive) for op in ops) == 1
    return advice.cause(kind, "alone") if alone else advice.cause(kind)


def settings_of(subject: Subject) -> dict[str, Any]:
    """Return the part of a scenario, the input of `lpkit replay`, that does not depend on the program or trace."""
    return {
        "case": subject.setup.case.to_json(),
        **({"others": [case.to_json() for case in subject.setup.others]} if subject.setup.others else {}),
        "seed": subject.setup.seed,
        "vocab_size": subject.setup.vocab_size,
        "max_num_seqs": subject.setup.max_num_seqs,
    }


def raised(cls: Any, error: PluginError, operations: tuple[str, ...] = ()) -> Finding:
    """A finding for a plugin that raised, or returned an invalid value; it has a fix if the error leaves no doubt."""
    why = read(error.exception, error.summary, error.__cause__)
    return Finding(
        summary=f"{error.method} {error.summary}",
        where={"method": error.method},
        expected="no exception (one here would stop the engine for everyone)",
        got=error.summary,
        operations=operations,
        cause=why.cause,
        fix=error.fix or why.fix,
        location=why.line or error.location or _returning(cls, error) or method_location(cls, error.method),
        exception=error.exception,
    )


def _returning(cls: Any, error: PluginError) -> str:
    """``file:line`` of the only ``return`` that can have returned the wrong thing, without a value for None."""
    for name in (error.method, *HOOKS.get(error.method, ())[:2]):
        file, body = _own_body(cls, name)
        if body and error.summary.startswith("returned"):
            bare = error.summary.startswith("returned None")
            returns = [node for part in body for node in ast.walk(part) if isinstance(node, ast.Return)]
            fitting = [node.lineno for node in returns if (node.value is None) == bare]
            return f"{file}:{fitting[0]}" if len(fitting) == 1 else ""
    return ""


def returning_line(cls: type, name: str) -> str:
    """Return ``file:line`` of the last ``return`` with a value in an author's method; empty without one."""
    file, body = _own_body(cls, name)
    inner = [part for part in body if not isinstance(part, ast.FunctionDef)]
    lines = [node.lineno for part in inner for node in ast.walk(part) if isinstance(node, ast.Return) and node.value]
    return f"{file}:{lines[-1]}" if lines else ""


def _own_body(cls: Any, name: str) -> tuple[str, list[ast.stmt]]:
    """Return the file and the statements of an author's method; empty if it has no ``def``."""
    parts = _parts_of(cls) if isinstance(cls, type) else ()
    methods = [(file, part.body) for file, part in parts if isinstance(part, ast.FunctionDef) and part.name == name]
    return methods[0] if methods else ("", [])


HOOKS: dict[str, tuple[str, ...]] = {
    "apply": ("process", "edit", "new_req_logits_processor", "admit"),
    "is_argmax_invariant": ("process", "edit"),
    "validate_params": ("Params", "new_req_logits_processor", "admit"),
}
"""Methods that an author writes where lpkit or vLLM has the method itself; other methods report requests."""

TOLD = ("admit", "new_req_logits_processor", "process", "edit", "apply")


def method_location(cls: Any, name: str) -> str:
    """``file:line`` of a method, or of what the author wrote for it where lpkit or vLLM has the method itself."""
    return next(filter(None, (own_line(cls, each) for each in (name, *HOOKS.get(name, TOLD)))), "")


def at_fault(subject: Subject, name: str) -> str:
    """``file:line`` of the author's method; for ``apply``, of the line that edits a row of the first case."""
    line = ""
    if name == "apply":
        with contextlib.suppress(Exception):  # whatever the plugin raises: a line is being looked for
            alone = [Arrive("a", 0), Step(EARLY)]
            line = editing_line(subject, alone, 1, 0, lambda seen: not torch.equal(seen.before, seen.after))
        line = line or callable_of(subject)[1]
    file, body = _own_body(subject.plugin.cls, name)
    body = body[1:] if body and isinstance(body[0], ast.Expr) else body  # without its docstring
    only = f"{file}:{body[0].lineno}" if len(body) == 1 else ""
    return line or only or method_location(subject.plugin.cls, name)


def declaration(owner: Any, name: str) -> str:
    """``file:line`` of what gives a name to a class, or to the class that it is inherited from, or to a module."""
    for scope in getattr(owner, "__mro__", (owner,)):
        if name in vars(scope):
            attribute = f"self.{name}" if isinstance(scope, type) else name
            return definition(inspect.getsourcefile(scope) or "", attribute, scope.__name__ if "." in attribute else "")
    return ""


def constructed(cls: type, name: str) -> str:
    """``file:line`` where a constructor sets ``self.name``; empty without one."""
    file, body = _own_body(cls, "__init__")
    for node in (node for part in body for node in ast.walk(part)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in [ast.unparse(part) for part in targets if part]:
            return f"{file}:{node.lineno}"
    return ""


def line_of_moves(cls: Any) -> str:
    """Return ``file:line`` where a class's own ``update_state`` begins with the moves; empty without one."""
    file, body = _own_body(cls, "update_state") if "update_state" in vars(cls) else ("", [])
    parts = [part for statement in body for part in ast.walk(statement) if isinstance(part, ast.stmt)]
    lines = [part.lineno for part in parts if re.search(r"\bmove", linecache.getline(file, part.lineno))]
    return f"{file}:{min(lines)}" if lines else ""


def unprepared(cls: type) -> tuple[str, str]:
    """Return ``file:line`` of the condition of a class's ``update_state`` that returns early, or of its first one, and
    what the method sets for ``apply``."""
    file, body = _own_body(cls, "update_state")
    tests = [part for part in body if isinstance(part, ast.If)]
    early = [part.lineno for part in tests if isinstance(part.body[-1], ast.Return)] or [part.lineno for part in tests]
    nodes = [node for part in body for node in ast.walk(part)]
    sets = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    read = {ast.unparse(node) for part in _own_body(cls, "apply")[1] for node in ast.walk(part)}
    names = [name for name in sets if name in read]
    return f"{file}:{early[0]}" if early else method_location(cls, "update_state"), names[-1] if names else ""


def _parts_of(cls: type) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the statements of the bodies of a class and its bases, each with its file."""
    for base in cls.__mro__:
        file = own_line(base, "").rpartition(":")[0]
        classes = [node for node in ast.walk(syntax_of(file)) if isinstance(node, ast.ClassDef)]
        yield from ((file, part) for node in classes if node.name == base.__name__ for part in node.body)


def catches(cls: type) -> bool:
    """Return True if a method of the author's catches exceptions."""
    return any(isinstance(node, ast.Try) for _, part in _parts_of(cls) for node in ast.walk(part))


def reading_line(
    cls: type, attribute: str, but: str | None = "__init__", context: type[ast.expr_context] = ast.Load
) -> tuple[str, str]:
    """Return ``file:line`` of the first line that reads an attribute of an object, and what this line sets, or else
    what it reads; empty if no line of the class does, or else of a helper of its file that it names.

    Args:
        but: the method whose lines do not count.
        context: ``ast.Store`` for the line that sets the attribute.
    """
    parts, path = [*_parts_of(cls)], own_line(cls, "").rpartition(":")[0]
    named = {node.id for _, part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
    helpers = [node for node in syntax_of(path).body if getattr(node, "name", "") in named]
    functions = [node for helper in helpers for node in ast.walk(helper) if isinstance(node, ast.FunctionDef)]
    for file, part in (*parts, *((path, node) for node in functions)):
        name = getattr(part, "name", "")
        for node in ast.walk(part) if name != but else ():
            if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, context):
                line = f"{file}:{node.lineno}"
                text = "".join(linecache.getlines(file))
                returned = name and re.search(rf"^ *(\w+) = self\.{name}\(", text, re.MULTILINE)
                return line, set_by(line) or (returned[1] if returned else attribute)
    return "", ""


def wrapping(cls: type, size: int) -> tuple[str, str]:
    """Return what begins again at ``size`` in a class's code, as by ``% 256``, and its ``file:line``; else empty."""
    for file, part in _parts_of(cls):
        for node in ast.walk(part):
            match node:
                case ast.BinOp(op=ast.Mod() | ast.BitAnd(), right=ast.Constant(value=int(number))):
                    if number + isinstance(node.op, ast.BitAnd) == size:
                        text = ast.get_source_segment("".join(linecache.getlines(file)), node)
                        return text or ast.unparse(node), f"{file}:{node.lineno}"
    return "", ""


def making_line(cls: type, name: str, but: str | None = None) -> str:
    """Return ``file:line`` of the first line that sets the attribute of this name, or its container; else empty.

    ``but``: see :func:`reading_line`.
    """
    return reading_line(cls, re.sub(r"\[.*", "", name).rpartition(".")[2], but, ast.Store)[0]


def read_by_row(cls: type) -> tuple[str, str]:
    """Return ``file:line`` and the name of an attribute that is written by slot and read, on this line, by row."""
    parts = list(_parts_of(cls))
    written = {name for _, part in parts for name, _ in _indexed(part, "slot")}
    read = ((f"{file}:{line}", name) for file, part in parts for name, line in _indexed(part, "index"))
    return next((place for place in read if place[1] in written), ("", ""))


def _indexed(method: ast.stmt, attribute: str) -> Iterator[tuple[str, int]]:
    """Yield the attributes of ``self`` that are looked up by this attribute of an argument, with their lines."""
    assigns = [node for node in ast.walk(method) if isinstance(node, ast.Assign)]
    names = [ast.unparse(node.targets[0]) for node in assigns if ast.unparse(node.value).endswith(f".{attribute}")]
    by = re.compile("|".join([rf"\.{attribute}\b(?!\()", *(rf"(?<!\.)\b{name}\b" for name in names)]))
    for node in ast.walk(method):
        if isinstance(node, ast.Subscript | ast.Call):
            held = ast.unparse(node.value if isinstance(node, ast.Subscript) else node.func)
            root = re.match(r"self\.\w+", held)
            if root and by.search(ast.unparse(node)[len(held) :]) and root[0] != held * isinstance(node, ast.Call):
                yield root[0], node.lineno


def kept_buffer(host: Host) -> tuple[str, str]:
    """Return ``file:line`` and the name of an attribute that holds a tensor of lengths of V2; empty if none does.

    ``host``: one that has run, and never replaces these tensors.
    """
    slots, cls = getattr(host.driver, "slots", None), type(host.processor)
    tensors = [getattr(slots, name).gpu for name in ("prompt_len", "prefill_len") if slots is not None]
    name = next((name for name, value in vars(host.processor).items() if any(value is item for item in tensors)), "")
    stores = re.compile(rf"\.{name}\b[^=]*=[^=].*\.gpu\b")
    lines = [
        (file, node.lineno) for file, part in _parts_of(cls) for node in ast.walk(part) if isinstance(node, ast.stmt)
    ]
    line = next((f"{file}:{number}" for file, number in lines if stores.search(linecache.getline(file, number))), "")
    return line, f"self.{name}" * bool(name)


def editing_line(
    subject: Subject,
    ops: Sequence[Op],
    max_num_seqs: int,
    row: int,
    ends: Callable[[Observation], bool],
    make_host: MakeHost = default_host,
) -> str:
    """Return ``file:line`` of the author's statement that edited a row of the call at which the operations end.

    For a row that came back unchanged, the last statement that wrote to logits at all, or else the last line of
    ``apply`` that ran; so for an exception of what called it. Empty if the operations do not end.
    """
    notes: list[NoteEdits] = []
    writes = Writes(subject.plugin.cls)

    @contextlib.contextmanager
    def watch(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method != "apply":
            yield
            return
        notes.append(NoteEdits(args[0], row))
        with notes[-1], writes.around(method, args, lambda: None):
            yield

    try:
        host = make_host(subject, max_num_seqs)
        with host.driver.watched(watch):
            if (seen := next(filter(ends, host.run(ops)), None)) and notes:
                note, same = notes[-1], torch.equal(seen.before[row], seen.after[row])
                made = "" if note.edited or same else note.made  # the call returns other logits than it got
                return made or note.line or str(writes.ran or "")
    except PluginError as error:
        return "" if error.location else str(writes.ran or "")
    return ""


def callable_of(subject: Subject) -> tuple[Any, str]:
    """Return what an adapter makes for a request of the case, and its ``file:line``; None for other classes."""
    made: Any = None
    if own_line(subject.plugin.cls, "new_req_logits_processor"):
        with contextlib.suppress(Exception):  # whatever the plugin raises: a line is being looked for
            made = drive(subject).processor.new_req_logits_processor(subject.params(0))
            called = made
            while isinstance(called, functools.partial):
                called = called.func
            called = called if inspect.isroutine(called) else type(called).__call__
            path = inspect.getsourcefile(called) or ""
            return made, f"{path}:{inspect.getsourcelines(called)[1]}" if is_authors(path) else ""
    return made, ""


def number_read(line: str) -> str:
    """Return the number of a row or slot that the line ``file:line`` reads; empty if it has no usual name."""
    number = re.search(NUMBERS, advice.text_at(line))
    return number[0] if number else ""


def swapped_parameters(made: Any) -> str:
    """Return the names of a callable's three parameters if they put the output before the prompt; else empty."""
    with contextlib.suppress(TypeError, ValueError):  # no callable, or one of C
        names = [*inspect.signature(made).parameters]
        if len(names) == 3 and "out" in names[0] and "prompt" in names[1]:
            return ", ".join(names)
    return ""


def makes_one(subject: Subject) -> bool:
    """Return True if two requests with equal arguments get the same object as their callable."""
    with contextlib.suppress(Exception):  # whatever the plugin raises: a cause is being looked for
        processor: Any = drive(subject).processor
        first, second = (processor.new_req_logits_processor(subject.params(0)) for _ in range(2))
        return first is not None and first is second
    return False


def own_line(cls: Any, name: str) -> str:
    """``file:line`` of a method, or of the class, if it is the author's own and Python knows where it is."""
    if not isinstance(cls, type):
        return ""
    try:
        method = inspect.unwrap(getattr(cls, name)) if name else cls
        path = Path(inspect.getsourcefile(method) or "")
        return f"{path}:{inspect.getsourcelines(method)[1]}" if is_authors(str(path)) else ""
    except (AttributeError, OSError, TypeError):
        return ""


Style = Literal["raw", "portable", "adapter"]
"""One of vLLM's interfaces, ``lpkit.LogitsProcessor``, or a callable per request."""


def style_of(cls: Any, host: str) -> Style:
    """Return what the author wrote: the bookkeeping of this host, or what lpkit or vLLM calls from its own."""
    if own_line(cls, HOSTS[host].told_by):
        return "raw"
    if own_line(cls, "new_req_logits_processor"):
        return "adapter"
    return "portable" if any(own_line(cls, name) for name in ("process", "edit", "admit")) else "raw"


def bounded(subject: Subject) -> str:
    """Return the fix for a value that a field of the plugin's ``lpkit.Params`` lets through; empty without fields."""
    return advice.fix("bounded") if hasattr(getattr(subject.plugin.cls, "Params", None), "keys") else ""


def readers_of(subject: Subject) -> tuple[str, ...]:
    """Return the groups of fixes for the plugin's author: in words of the style, else of the interface."""
    return style_of(subject.plugin.cls, subject.setup.host), subject.setup.interface
