"""LP5, continued: the placeholders of async scheduling, which stand for unknown tokens."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

from lpkit.loading import installed

from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.checks.ladder import LadderCheck
from lpkit_conformance.checks.lazily import (
    Subject,
    acting,
    calls,
    compare,
    findings,
    hostile,
    parts,
    runtime,
    stand,
    torch,
    v1,
    v1_async,
)
from lpkit_conformance.explanation import advice
from lpkit_conformance.instruments.author_lines import following, only_looks, parsed, value_of
from lpkit_conformance.programs.generate import Arrive, Finish, Program, Step, program
from lpkit_conformance.results import Failed, Finding
from lpkit_conformance.vllm_api.releases import ASYNC_SINCE
from lpkit_conformance.vllm_api.runners import V1


class LP505(Check):
    """A placeholder is not treated as a token.

    vLLM never replaces the placeholders of async scheduling for an installed plugin: its output lists keep -1. After a
    preemption, -1 also follows the known tokens. The plugin must not use -1 as a token, in particular not as the last
    token of the vocabulary. LP508 judges other edits that follow from placeholders, LP509 the other requests.

    Why: ``logits[-1]`` is legal in Python, so the plugin silently edits token ``vocab_size - 1`` (vLLM #52461).

    Fix: skip ids below 0; leave the logits of a request unchanged if its history is unknown.
    """

    code, name, hosts = "LP505", "placeholders", (V1,)
    since = ASYNC_SINCE
    requires = ("LP101", "LP301", "LP501")
    own_exceptions = EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        for outputs in FIRST_OUTPUTS:
            self._judge_behind(subject, outputs)
        return None

    def _judge_behind(self, subject: Subject, count: int) -> None:
        """Fail if placeholders after a number of known tokens, as after a preemption, are treated as the last token."""
        last = subject.setup.vocab_size - 1
        unknown = self._alone(subject, count, v1_async.PLACEHOLDER)
        invented = (partial(self._alone, subject, count, token) for token in (last, subject.setup.vocab_size // 2))
        rows = [row for attempt in invented if (row := unless_forbidden(subject, attempt)) is not None]
        if len(rows) == 2 and torch.equal(unknown, rows[0]) and not torch.equal(*rows):
            outputs = ", ".join([*("known" for _ in range(count)), *["{0}"] * INVENTED])
            indexed: list[tuple[str, str]] = []

            def note(frame: FrameType, event: str, _: object) -> None:
                if event == "line" and not indexed and (name := _negative_index(frame)):
                    indexed.append((name, f"{frame.f_code.co_filename}:{frame.f_lineno}"))

            with following(note):
                self._alone(subject, count, v1_async.PLACEHOLDER)
            name, line = next(iter(indexed), ("", findings.at_fault(subject, "apply")))
            raise Failed(
                Finding(
                    "a placeholder of -1 in the output list is taken for the last token of the vocabulary",
                    {"output list": f"[{outputs.format(v1_async.PLACEHOLDER)}]"},
                    "logits that differ from those for the last token",
                    f"the same as for [{outputs.format(last)}]",
                    cause=advice.cause("index", self.code).format(name=name) if name else "",
                    location=line,
                    state=name,
                )
            )

    @staticmethod
    def _alone(subject: Subject, count: int, token: int) -> torch.Tensor:
        """The row of a request that has ``known`` outputs of its own, and ``token`` for each of a few steps then."""
        request = runtime.Request("a", subject.params(0), subject.model.prompt("a", 4, 0))
        driver = parts.drive(subject)
        driver.begin(entering=[request])
        for n in range(count + INVENTED):
            row = stand.stepped(subject, driver, [request])[1]
            ids = subject.model.sampled(subject.model.emitted("a", 0, n + 1, n), row)  # one that it has not forbidden
            request.output_token_ids += ids if n < count else [token]
            driver.begin()
        return stand.stepped(subject, driver, [request])[1]


class LP508(Check):
    """An edit that depends on token ids is not made for placeholders.

    If other token ids give another edit, a history of placeholders gives none, or the edit of a history without the
    tokens in question. A rule of lengths counts placeholders. A plugin with an entry point fails. For a plugin that is
    passed explicitly it is advice: vLLM replaces its placeholders before ``apply``.

    Why: the lists of an entry point's class keep -1 under async scheduling, the default. A hash, or a run of equal
    ids, is then of placeholders, and the edits follow from it without an error.

    Fix: skip ids below 0; leave the logits of a request unchanged if its history is unknown.
    """

    code, name, hosts, tier = "LP508", "edits-for-placeholders", (V1,), "advice"
    since = ASYNC_SINCE
    requires = ("LP101", "LP301", "LP505")

    def run(self, subject: Subject) -> str | None:
        cls = subject.plugin.cls
        name = f"{cls.__module__}:{cls.__qualname__}"
        loaded = any(entry.value.partition("[")[0].strip() == name for entry in installed())
        _judge_dependence(subject, advised=not loaded)
        return None


class LP509(LadderCheck):
    """A request with placeholders leaves the other requests alone.

    In a batch, the output lists of some requests hold only placeholders, as those of an installed plugin do under async
    scheduling. Every request whose tokens are known gets the same as alone.

    Why: a condition on the whole batch, such as ``-1 in outputs``, takes the rule from all requests, or gives them the
    edit of one.

    Fix: decide for each row by its own output list.
    """

    code, name, hosts = "LP509", "beside-placeholders", (V1,)
    since = ASYNC_SINCE
    requires = ("LP201", "LP204", "LP505")
    own_exceptions = EVERY_METHOD

    def host(self, subject: Subject, max_num_seqs: int) -> v1.V1Host:
        return hostile.NeverRepaired(subject, max_num_seqs)

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "some lists are unknown",
            [Arrive("a", 0), Arrive("u0", 1), Arrive("b", 2), Arrive("u1", 3), Arrive("c", None)],
            Step(3),
            Finish("a"),
            Step(2),
            [Finish("u0"), Arrive("d", 1), Arrive("u2", 0)],
            Step(3),
        )


INDEXING = r"gather|scatter|index_|take"
"""Calls that take indices."""

FIRST_OUTPUTS = (0, 2)
"""Outputs before the placeholders: of a new request, and after a preemption."""

INVENTED = 3
"""Steps whose tokens are invented, or unknown."""

LENGTHS = (0, 4, 40)
"""Outputs of the histories that are compared: some rules act from a certain length on."""


def _judge_dependence(subject: Subject, advised: bool) -> None:
    """Fail, or advise, if placeholders alone give an edit that no token ids give, or that other ids change.

    The part of an edit that most histories share does not depend on the ids; it may stay. If it depends on the length
    alone, a placeholder counts as a token.
    """
    shorter: torch.Tensor | None = None
    # Shorter lists are too much alike to tell a rule of lengths from one of tokens.
    turns = [length for length in acting.activity(subject).turns if length > LENGTHS[1]]
    for length in sorted({*LENGTHS, *turns[:1]}):
        if length >= (subject.most_outputs(0) or subject.setup.world.max_model_len):
            continue
        before, rows = _edits(subject, [*_histories(subject, length), [], [v1_async.PLACEHOLDER] * length])
        of_tokens, empty, unknown = rows[:-2], rows[-2:-1], rows[-1:]
        if not len(of_tokens):
            continue
        common = of_tokens.median(0, keepdim=True).values
        equal = all(compare.first_difference(before, of_tokens[:1], row) is None for row in of_tokens.unsqueeze(1))
        counts = equal and shorter is not None and compare.first_difference(before, shorter, common) is not None
        shorter = common if equal else None
        if equal and not counts:
            continue
        allowed = (common,) if counts else (before, common, empty)
        if any(compare.first_difference(before, row, unknown) is None for row in allowed):
            continue
        token = int((unknown != common)[0].to(torch.int8).argmax())
        what = "the edit depends on the length alone" if counts else "other token ids give other logits"
        raise Failed(
            f"{what}, and placeholders of -1 alone give another edit",
            {"output list": f"{length} times -1", "token id": str(token)},
            f"{float(common[0, token]):g}" + ("" if counts else f", or {float(before[0, token]):g} as before"),
            f"{float(unknown[0, token]):g}",
            cause=advice.cause("lengths" if counts else "ids", LP508.code),
            fix=advice.fix("lengths", LP508.code) if counts else "",
            location=findings.at_fault(subject, "apply"),
            advice=advised,
        )


def _histories(subject: Subject, length: int) -> list[list[int]]:
    """Return different output lists: the model's continuation, a loop, the prompt repeated, one token, a run of
    tokens."""
    prompt, middle = subject.model.prompt("a", 4, 0), subject.setup.vocab_size // 2
    text = subject.model.emitted("a", 0, length)
    again = (prompt * length)[:length]
    return [text, (text[:2] * length)[:length], again, [middle] * length, [3 + n % (middle - 3) for n in range(length)]]


def _edits(subject: Subject, histories: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The same logits ``[1, vocab]``, and what a request makes of them alone with each of the output lists."""
    raw = subject.model.rows([("a", max(LENGTHS))])
    rows = []
    for outputs in histories:
        request = runtime.Request("a", subject.params(0), subject.model.prompt("a", 4, 0), output_token_ids=outputs)
        driver = parts.drive(subject)
        driver.begin(entering=[request])
        before = driver.stage(raw, [request.params])
        step = partial(driver.step, before, [request])
        invented = outputs and v1_async.PLACEHOLDER not in outputs
        rows.append(unless_forbidden(subject, step) if invented else step())
    return before, torch.cat([row for row in rows if row is not None])


def _negative_index(frame: FrameType) -> str:
    """Return what the current line takes for an index, or for several, and holds a negative one; else empty."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(parsed(frame.f_code.co_filename, frame.f_lineno)):
            parts: list[ast.expr] = []
            if isinstance(node, ast.Subscript):
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            elif isinstance(node, ast.Call) and re.search(INDEXING, ast.unparse(node.func)):
                parts = node.args
            for part in [part for whole in parts for part in ast.walk(whole) if isinstance(part, ast.expr)]:
                with contextlib.suppress(Exception):  # of a variable of a comprehension, or one that the line sets
                    looked = isinstance(part, ast.Name | ast.Attribute | ast.Subscript) and only_looks(part)
                    ids = value_of(part, frame) if looked else ()
                    if ids < 0 if isinstance(ids, int) else any(token < 0 for token in ids):
                        return ast.unparse(part)
    return ""


def unless_forbidden(subject: Subject, attempt: Callable[[], torch.Tensor]) -> torch.Tensor | None:
    """Return the logits for an invented history. None if a plugin that forbids tokens raises: it may forbid one
    of these."""
    try:
        return attempt()
    except calls.PluginError:
        if not stand.forbids(subject):
            raise
        return None
