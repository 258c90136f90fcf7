"""The author's lines that no request of the cases reaches, the branches that lead to them, and a case that does."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import FrameType
from typing import Any

import torch
from lpkit.runtime.engine.v1_async import PLACEHOLDER

from lpkit_conformance.activity.search import streams
from lpkit_conformance.activity.stand import RUN_STEPS, Stance, arrivals, life, stand_at
from lpkit_conformance.errors import StandinError
from lpkit_conformance.expectation.speculation import speculating
from lpkit_conformance.hosts import PluginError, default_host
from lpkit_conformance.instruments.author_lines import follower, home_of, is_authors, library_of, syntax_of
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step, soak
from lpkit_conformance.results import Blocked
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.calls import calling
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1, V2
from lpkit_conformance.vllm_api.tokenizer import leaves

MOST_SHOWN = 5
MOST_STREAMS = 24
"""Cases that are served together, in search of one that reaches more."""

MOST_COMPARED = 16
"""Token ids of conditions that are generated."""

SPECIAL_IDS = range(3)
"""Numbers that are rarely a token's, and often a number of something."""

EQUAL = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
"""Comparisons of which a single number gives another answer."""

STEPS = 25
"""Steps with a mixture of changes of the batch."""

BODIES = ("body", "orelse", "handlers", "finalbody", "cases")
"""Attributes of a statement that hold statements, or the parts that do."""

FEW = 32
"""Requests of one batch."""

UNCALLED = " (never called)"

Block = tuple[str, int, int, str]
"""A function, its first and its last line that never ran, and the branch around them."""


Reached = defaultdict[str, set[int]]
"""The lines that ran, by file."""


@contextlib.contextmanager
def reaching(cls: Any) -> Iterator[Reached]:
    """Yield the lines that run in calls of plugins within it, of a class and of functions that it calls.

    Libraries that it uses, such as the one of its tokenizer, do not count: importing one under a trace takes seconds.
    """
    ran: Reached = defaultdict(set)
    libraries = {"", library_of(home_of(cls))}

    def note(frame: FrameType, event: str, _: Any) -> None:
        ran[frame.f_code.co_filename].add(frame.f_lineno)

    calling.follow = follower(note, cache(lambda file: is_authors(file) and library_of(file) in libraries))
    outer = threading.gettrace()
    threading.settrace(calling.follow)
    try:
        yield ran
    finally:
        calling.follow = None
        threading.settrace(outer)


def serve(subject: Subject) -> None:
    """Serve requests while the batch changes in many ways, on V2 with drafts; the checks report exceptions.

    At first no request uses the plugin. On V1 the last tokens are unknown at the end, and then taken back. A row comes
    with every token masked.
    """
    with contextlib.suppress(Exception), subject.as_imported():
        standing = stand_at(subject, [Stance(0, "masked", length) for length in range(4)])
        standing.again(torch.full_like(standing.logits, -math.inf))
    with contextlib.suppress(Exception), subject.as_imported():
        drafts = speculating(subject) if subject.setup.interface == V2 else None
        played = soak(subject.setup.seed, STEPS, drafts=drafts is not None)
        host = default_host(drafts or subject, 8)
        list(host.run([Arrive("plain", None), Step(), Finish("plain"), *played.ops]))
        for tail in ([PLACEHOLDER], []) if subject.setup.interface == V1 else ():
            for request in host.pool.all_requests():
                request.output_token_ids[-2:] = tail
            list(host.run([Step()]))


def grow_old(subject: Subject, ran: Reached) -> None:
    """Serve the long life that LP504 judges, if a branch that did not run may depend on a size."""
    if not any(re.search("[<>]", branch) for *_, branch in blocks(subject.plugin.cls, ran)):
        return
    alone, ops = life(subject)
    with contextlib.suppress(Exception), subject.as_imported():
        list(default_host(alone, 8).run(ops))


def further(served: Sequence[Sequence[Subject]], ran: Reached) -> tuple[Case, str] | None:
    """Return a case that reaches most of the lines that did not run, or other edits, and what it does; else None.

    Args:
        served: the plugin on each host, with each case.
        ran: the lines that ran so far; gets the lines that the case reaches.
    """
    plugin = served[0][0].plugin
    if all(branch == UNCALLED for *_, branch in blocks(plugin.cls, ran)):
        return _told_apart(served[0][0], ran)
    before, missing = {file: frozenset(lines) for file, lines in ran.items()}, blocks(plugin.cls, ran)
    with plugin.as_imported():
        asked = (case for subject in served[0] for case in streams(subject) if plugin.accepts(case.params()))
        accepted = list(itertools.islice(asked, MOST_STREAMS))
        if compared := tuple(_compared(plugin.cls, missing, served[0][0].setup.vocab_size))[:MOST_COMPARED]:
            accepted.append(replace(served[0][0].setup.case, output_token_ids=compared))

    def reached(*alone: Case) -> list[Block]:
        ran.clear()
        ran.update((file, set(lines)) for file, lines in before.items())
        for subject, *_ in served:
            _play(replace(subject, relatives=alone))
        left = blocks(plugin.cls, ran)
        return [block for block in missing if block not in left]

    if not reached(*accepted):
        return _told_apart(served[0][0], ran)
    best = max(accepted, key=lambda case: len(reached(case)))
    lines = reached(best)
    return (best, f"it reaches {_in_words(lines).replace(UNCALLED, '')}") if lines else None


def _compared(cls: Any, missing: Sequence[Block], vocab_size: int) -> Iterator[int]:
    """Yield the token ids, constants of the class included, with which conditions around these blocks compare."""
    for node in ast.walk(syntax_of(home_of(cls))):
        if isinstance(node, ast.If) and any(node.lineno < first <= (node.end_lineno or 0) for _, first, *_ in missing):
            yield from _ids_of(node.test, cls, vocab_size)


def _ids_of(node: ast.AST, cls: Any, vocab_size: int) -> Iterator[int]:
    """Yield the token ids that an expression compares with, or counts."""
    for part in ast.walk(node):
        match part:
            case ast.Compare(left, [first, *_], sides) if isinstance(first, EQUAL):
                numbers = leaves([_constant(side, cls) for side in (left, *sides)])
            case ast.Call(ast.Attribute(attr="count" | "index"), [side, *_]):
                numbers = leaves(_constant(side, cls))
            case _:
                continue
        yield from (item for item in numbers if type(item) is int and 0 <= item < vocab_size)


def _told_apart(subject: Subject, ran: Reached) -> tuple[Case, str] | None:
    """Return a case whose outputs are tokens that expressions of the class compare with, if these get other edits.

    A line with such an expression runs whatever the tokens are. Two requests are the same except for these tokens,
    which are others in the second; the edits of all further tokens are compared.
    """
    home, case, size = home_of(subject.plugin.cls), subject.setup.case, subject.setup.vocab_size
    lines = [node for node in ast.walk(syntax_of(home)) if isinstance(node, ast.stmt) and node.lineno in ran[home]]
    parts = (getattr(node, "test", None) if getattr(node, "body", None) else node for node in lines)
    named = dict.fromkeys(token for part in parts if part for token in _ids_of(part, subject.plugin.cls, size))
    compared = [token for token in named if token not in {*SPECIAL_IDS, *subject.model.usual}][:MOST_COMPARED]
    unlike = [token for token in range(size) if token not in {*SPECIAL_IDS, *named, *subject.model.usual}]
    if not compared or len(unlike) < len(compared):
        return None
    told, others = (replace(case, output_token_ids=tuple(ids)) for ids in (compared, unlike[: len(compared)]))
    both, same = replace(subject, relatives=(case, told, others)), torch.ones(size, dtype=torch.bool)
    same[[*compared, *unlike[: len(compared)]]] = False
    with contextlib.suppress(PluginError, Blocked, StandinError), subject.as_imported():
        runs = [default_host(both, 2).run([Arrive("told", variant), Step(RUN_STEPS)]) for variant in (1, 2)]
        if any(not torch.equal(here.after[:, same], there.after[:, same]) for here, there in zip(*runs, strict=True)):
            return told, "its output tokens get other edits than tokens that the class does not compare with"
    return None


def _constant(node: ast.expr, cls: Any) -> Any:
    """Return the value of a literal, or of a constant of the class or its module; None of anything else."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    with contextlib.suppress(ValueError):
        value = ast.literal_eval(node)
        return sorted(value) if isinstance(value, set) else value
    return getattr(cls, name, getattr(sys.modules[cls.__module__], name, None)) if name.isupper() else None


def _play(subject: Subject) -> None:
    """Serve each of the cases."""
    ops: list[Op] = [*arrivals(subject.variants), Step(RUN_STEPS)]
    with contextlib.suppress(Exception), subject.as_imported():
        list(default_host(subject, max(subject.setup.max_num_seqs, len(subject.variants))).run(ops))


def unreached(cls: Any, ran: Reached) -> Iterator[str]:
    """Yield a sentence with the lines of a class, and of functions that it calls, that did not run, if any."""
    if missing := blocks(cls, ran):
        yield f"never reached by these cases: {_in_words(missing)}"


def blocks(cls: Any, ran: Reached) -> list[Block]:
    """Return what did not run of a class, and of functions that it calls.

    Lines that raise, or return nothing, do not count, nor what a class does once it keeps much.
    """
    home = home_of(cls)
    return [block for file in ran for block in _blocks(file, ran[file], cls if file == home else None)]


def _in_words(missing: Sequence[Block]) -> str:
    shown = [f"{_lines(first, last)} of `{name}`{branch}" for name, first, last, branch in missing[:MOST_SHOWN]]
    return ", ".join([*shown, *[f"{len(missing) - MOST_SHOWN} more"] * (len(missing) > MOST_SHOWN)])


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _blocks(file: str, ran: set[int], cls: Any) -> Iterator[Block]:
    """Yield what did not run of the functions that ran in a file, and of the methods of a class."""
    tree = syntax_of(file)
    of_class = {
        id(part)
        for node in ast.walk(tree)
        if cls is not None and isinstance(node, ast.ClassDef) and node.name == cls.__name__
        for part in node.body
    }
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        parts = [part for statement in function.body for part in ast.walk(statement) if isinstance(part, ast.stmt)]
        entered = any(_ran(part, ran) for part in parts)
        if entered or (id(function) in of_class and not function.name.startswith("__")):
            yield from ((function.name, *block) for block in _missing(function.body, ran, "" if entered else UNCALLED))


def _missing(body: Sequence[ast.AST], ran: set[int], branch: str) -> Iterator[tuple[int, int, str]]:
    """Yield runs of statements that did not run, with the branch around each."""
    missing: list[ast.stmt] = []
    for part in body:
        if isinstance(part, ast.stmt) and not _ran(part, ran):
            missing += [] if _silent(part) else [part]
        elif not isinstance(part, ast.FunctionDef) and not _caps(part):  # functions have their own
            for name in BODIES:
                yield from _missing(getattr(part, name, ()), ran, _branch(part, name) or branch)
    if missing and not isinstance(missing[-1], ast.Raise):
        yield missing[0].lineno, missing[-1].end_lineno or 0, branch


def _ran(part: ast.stmt, ran: set[int]) -> bool:
    """Return True if one of the lines before its body ran: `if (` and a condition on lines below it has none itself."""
    first = next((inner.lineno for inner in getattr(part, "body", ())), (part.end_lineno or part.lineno) + 1)
    return not ran.isdisjoint(range(part.lineno, max(first, part.lineno + 1)))


def _caps(part: ast.AST) -> bool:
    """Return True for a branch that many requests reach, as in LP603, and no case does: `if len(self.cache) > 64`."""
    match part:
        case ast.If(test=ast.Compare(ast.Call(ast.Name("len"), [kept]), _, [most])):
            lasting = isinstance(kept, ast.Attribute) or (isinstance(kept, ast.Name) and kept.id.isupper())
            few = isinstance(most, ast.Constant) and isinstance(most.value, int) and most.value < FEW
            return lasting and not few
    return False


def _silent(part: ast.stmt) -> bool:
    """Return True for statements that need no request of their own, such as a return for one that is declined."""
    if isinstance(part, ast.Return):
        return part.value is None or (isinstance(part.value, ast.Constant) and not part.value.value)
    constant = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    return constant or isinstance(part, ast.Raise | ast.Pass | ast.Global | ast.Nonlocal)


def _branch(part: ast.AST, name: str) -> str:
    """Return the branch in words, such as `` (if count > 255)``."""
    if isinstance(part, ast.If | ast.While | ast.For):
        head = ast.unparse(part).partition(":\n")[0].removeprefix("el")
        return f" ({head if name == 'body' else 'else of ' + head})"
    return ""
