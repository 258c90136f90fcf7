"""LP1, continued: the effect of odd arguments on a request, on its neighbours, and on its admission."""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.lazily import (
    Subject,
    declined,
    edits,
    exact_ids,
    findings,
    np,
    odd_arguments,
    parts,
    requests,
    runtime,
    stand,
    torch,
    trails,
    verify,
)
from lpkit_conformance.checks.lp1_parameters import serve
from lpkit_conformance.explanation import advice, exceptions
from lpkit_conformance.instruments import author_lines
from lpkit_conformance.programs.generate import Arrive, Step, program
from lpkit_conformance.results import Failed, Finding, NeverActive, Skipped
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.vllm_api.releases import NO_PROMPT_IDS_SINCE, VALIDATED_SINCE, is_before
from lpkit_conformance.vllm_api.runners import V1


class LP111(Check):
    """Odd arguments leave valid logits.

    A request that ``validate_params`` accepted gets no NaN and no ``+inf``. Masked tokens stay masked, except for a
    token that the plugin leaves alone in its row (see LP305), and a row without masked tokens does not become all
    ``-inf``. The arguments are ids around the size of the vocabulary, long, unsorted and repetitive lists, and huge,
    tiny, infinite and missing numbers.

    Why: such a row raises nothing; the sampler picks a nonsensical token, and the client gets nonsense with status 200.

    Fix: refuse meaningless values in ``validate_params`` (``math.isfinite``); ignore ids outside the vocabulary, and
    leave the logits alone if nothing remains.
    """

    code, name, requires = "LP111", "odd-arguments-valid-logits", ("LP101", "LP301", "LP104", "LP305", "LP306", "LP307")

    def run(self, subject: Subject) -> str | None:
        judged = 0
        for served in odd_arguments.odd_served(subject):
            for before, after in served.rows:
                judged += 1
                problem = invalid(before, after)
                if problem:
                    summary = f"{served.argument} is accepted by validate_params; the request's row then {problem[0]}"
                    where = {"argument": served.argument, "token id": str(problem[1])}
                    values = f"{float(before[problem[1]]):g}", f"{float(after[problem[1]]):g}"
                    expected = f"a valid row (the token had {values[0]})"
                    free = before > -math.inf
                    key = problem[0] if problem[0] != INVALID[0] or after[free].isnan().any() else "masked"
                    of_value = key in INVALID[:2] and findings.bounded(subject)
                    cause, fix = advice.cause(key, self.code), of_value or advice.fix(key, self.code)
                    raise Failed(summary, where, expected, values[1], cause=cause, fix=fix)
        if not judged:
            raise Skipped("validate_params accepted none of the odd values")
        return f"{judged} rows"


INVALID = ("contains NaN", "contains +inf", "has a finite logit for a masked token", "is all -inf")
"""Possible defects of a row, each a key of the advice."""


FORCED = 1e4
"""Distance to all other logits that leaves a row a single token, as masks do: vLLM's thinking budget writes 1e9."""


def forced_token(logits: torch.Tensor) -> torch.Tensor:
    """Return a bool ``[..., vocab]``: True for the only token that a row was left with, by masks or a huge logit."""
    best = logits.amax(-1, keepdim=True)
    return (logits == best) & ((logits >= best - FORCED).sum(-1, keepdim=True) == 1)


def invalid(before: torch.Tensor, after: torch.Tensor) -> tuple[str, int] | None:
    """Return the defect of a row ``[vocab]`` after ``apply``, and a token that shows it."""
    nan, infinite, revived, empty = INVALID
    masked = before == -math.inf
    for text, bad in (
        (nan, after.isnan()),
        (infinite, (after == math.inf) & (before != math.inf)),
        (revived, masked & (after > -math.inf) & ~forced_token(after)),
    ):
        if bool(bad.any()):
            return text, int(bad.to(torch.int8).argmax())
    if bool((after == -math.inf).all()) and not bool(masked.any()):
        return empty, int(before.argmax())
    return None


class LP112(Check):
    """A request with odd arguments does not disturb others.

    A neighbour gets the same logits as alone while such a request is served, and after it; so does a request that
    arrives in the same update.

    Why: a plugin that catches its own exception around a whole update drops the remaining additions and moves. A plugin
    that switches itself off after an error stops working for everyone until the engine restarts.

    Fix: catch an exception for that request only, and store nothing for it; go on with the rest of the update.
    """

    code, name, method = "LP112", "odd-arguments-harm-nobody", STATE
    requires = ("LP101", "LP301", "LP104", "LP201", "LP202", "LP210")

    def run(self, subject: Subject) -> str | None:
        tried = 0
        for served in odd_arguments.odd_served(subject):
            tried += bool(served.rows)
            if served.disturbed:
                raise _disturbed(subject, served, f"with {served.argument} in the batch")
        if not tried:
            raise Skipped("validate_params accepted none of the odd values")
        return f"{tried} odd values accepted"


def _disturbed(subject: Subject, served: odd_arguments.Served, when: str) -> Failed:
    how = "switched-off" if served.difference == "lost" and findings.catches(subject.plugin.cls) else "reached"
    summary, where = f"{when}, {served.disturbed} gets different logits than alone", {"argument": served.argument}
    finding = _in_a_program(subject, served) if how == "reached" else None
    if finding is not None:
        return Failed(replace(finding, summary=summary, where={**finding.where, **where}))
    return Failed(
        summary,
        where,
        "the same logits as alone",
        "different logits",
        cause=advice.cause(how, LP112.code),
        fix=advice.fix(how, LP112.code),
    )


def _in_a_program(subject: Subject, served: odd_arguments.Served) -> Finding | None:
    """Return the finding for a neighbour of such a request in a program; None if none of these shows it."""
    case = subject.setup.case
    odd = replace(case, fields={**case.fields, "extra_args": dict(served.params.extra_args or {})})
    there = replace(subject, relatives=(case, odd))
    for order in (("n", "odd", "g"), ("odd", "n", "g")):
        arrivals = [Arrive(name, int(name == "odd")) for name in order]
        played = program("odd arguments beside others", arrivals, Step(4), max_num_seqs=subject.setup.max_num_seqs)
        with contextlib.suppress(NeverActive):
            try:
                verify.verify(there, [played])
            except Failed as failed:
                if not failed.finding.exception and failed.finding.where.get("request") != "odd":
                    return failed.finding
    return None


class LP113(Check):
    """``admit`` answers, and does not raise.

    It returns True for some request of the case. lpkit logs an exception in ``admit``, ``new_req_logits_processor`` or
    ``concerns`` and serves the request without the plugin. The case's own requests must raise no exception. Odd
    arguments may raise ``ValueError``, which declines the request on purpose. But a list that ``validate_params``
    accepts must fit into its column. vLLM's own adapter also drops a callable that is false in a boolean context, and
    passes three parameters by position: the prompt's ids, the output's, the logits.

    Why: the engine keeps running, and requests of this kind are silently served without the plugin.

    Fix: handle this kind of request, or return False (None from ``new_req_logits_processor``) to decline it.
    """

    code, name, requires = "LP113", "admits-without-exception", ("LP001", "LP101", "LP301")
    quick = "first"
    method = "admit"

    def run(self, subject: Subject) -> str | None:
        made, line = findings.callable_of(subject)
        if swapped := findings.swapped_parameters(made):
            raise Failed(
                f"the callable takes {swapped}, and vLLM passes the prompt's ids first",
                {"case": subject.setup.case.text},
                "prompt ids, output ids, logits",
                swapped,
                cause=advice.cause("swapped", self.code),
                fix=advice.fix("swapped", self.code),
                location=line,
                state=swapped.partition(",")[0],
            )
        if not any(hasattr(subject.plugin.cls, declared) for declared in ("stage", "wraps")):
            if made is None or made:
                raise Skipped("not a class of lpkit's: its exceptions reach the engine")
            raise Failed(
                "what `new_req_logits_processor` makes is false, so vLLM takes it for None",
                {"case": subject.setup.case.text},
                "a callable that is true in a boolean context",
                f"a {type(made).__qualname__} for which `bool()` is False",
                cause=advice.cause("falsy", self.code),
                fix=advice.fix("falsy", self.code),
                location=line,
            )
        tried = 0
        driver, last = parts.drive(subject, 2), ""
        answers: list[object] = []
        for kind, request in self._requests(subject):
            tried += 1
            with declined.watched() as errors, declined.answers(subject.plugin.cls, answers):
                driver.begin([last] if last else [], [request])
            last = request.request_id
            for error in errors:
                raise _declined(subject, kind, error)
        if None in answers and not any(answers):
            raise Failed(
                "`admit` returns None: lpkit serves every request without the plugin",
                {"case": subject.setup.case.text},
                "True for a request that uses the plugin",
                "None",
                cause=advice.cause("unanswered", self.code),
                fix=advice.fix("unanswered", self.code),
            )
        for served in odd_arguments.odd_served(subject):
            tried += served.refusal is None
            if served.declined and (served.too_long or not isinstance(served.declined, ValueError)):
                fix = advice.fix("too long", self.code) if served.too_long else ""
                raise _declined(subject, f"a request with {served.argument}", served.declined, fix)
        return f"{tried} requests"

    @staticmethod
    def _requests(subject: Subject) -> Iterator[tuple[str, runtime.Request]]:
        variants = [None, *(n for n in subject.variants if subject.plugin.accepts(subject.cases[n].params()))]
        for variant in variants:
            use = "without the plugin's arguments" if variant is None else f"with {subject.cases[variant].text}"
            for greedy in (False, True):
                arrived = Arrive(f"r{variant}", variant, greedy=greedy)
                yield f"a {'greedy ' if greedy else ''}request {use}", requests.make_active(subject, arrived).request
            resumed = requests.make_active(subject, Arrive("resumed", variant)).request
            resumed.output_token_ids += stand.generated(subject, "resumed", variant, resumed, 3)
            yield f"a resumed request {use}", resumed
            if subject.setup.interface == V1 and not is_before(subject.plugin.release, NO_PROMPT_IDS_SINCE):
                params = subject.params(variant)
                yield f"a request without prompt ids {use}", runtime.Request("embeds", params, None, prompt_len=5)


def _declined(subject: Subject, kind: str, error: BaseException, fix: str = "") -> Failed:
    raised = f"{type(error).__name__}: {error}"[:300]
    why = exceptions.read(type(error).__name__, str(error), error)
    called = re.search(exceptions.MISCALLED, raised)
    fix = fix or (advice.fix("too large", LP113.code) if why.kind == "OverflowError" else why.fix)
    return Failed(
        f"{kind} is declined because of an exception ({raised})",
        {"request": kind},
        "admitted, or declined without an exception",
        raised,
        cause="; ".join(filter(None, (why.cause, advice.cause("logged", LP113.code)))),
        fix=fix,
        location=author_lines.location_of(error)
        or _column(subject, str(error))
        or findings.own_line(subject.plugin.cls, called[1] if called else "Params"),
    )


def _column(subject: Subject, text: str) -> str:
    """Return ``file:line`` of the column that an exception names; empty if it names none."""
    name = text.removeprefix("column ").partition(":")[0]
    return findings.declaration(subject.plugin.cls, name) if hasattr(subject.plugin.cls, name) else ""


class LP114(Check):
    """Refused arguments do no harm if they arrive all the same.

    Arguments that `validate_params` refuses raise no exception in the methods that add and serve requests, and other
    requests get the same logits as alone. Advice, because vLLM's Python front end asks `validate_params` about every
    request. Its Rust front end (`VLLM_USE_RUST_FRONTEND=1`) does not: null, booleans, nested objects and mixed lists
    arrive.

    Why: an exception in ``update_state`` or ``add_request`` stops the engine for all requests.

    Fix: read the arguments in one function that `validate_params` and the method that adds a request share. Where that
    method catches its ``ValueError``, it serves the request without the plugin.
    """

    code, name, tier, method = "LP114", "refused-arguments-harmless", "advice", STATE
    option = "VLLM_USE_RUST_FRONTEND=1"
    prevented = "they read the arguments again when a request arrives, and decline it."
    requires = ("LP101", "LP301", "LP103", "LP104", "LP112", "LP113")
    since = VALIDATED_SINCE

    def run(self, subject: Subject) -> str | None:
        refused = odd_arguments.refused_served(subject)
        for served in refused:
            though = f"validate_params refuses {served.argument}; where the engine does not ask it"
            if served.error is not None:
                finding = findings.raised(subject.plugin.cls, served.error)
                summary = f"{though}, {served.error.method} {served.error.summary}"
                where = {**finding.where, "argument": served.argument}
                raise Failed(replace(finding, summary=summary, where=where, cause="", fix="")) from served.error
            if served.disturbed:
                raise _disturbed(subject, served, f"{though}, with it in the batch")
        if not refused:
            raise Skipped("validate_params refuses none of the odd values")
        return f"{len(refused)} refused values"


class LP115(Check):
    """Token 0 is a token like any other.

    If the tokens 1 and 2 are treated as an argument names them, token 0 is treated in this way where it is named, or
    `validate_params` refuses it. Advice, unless a case that you give names token 0. No token fills up short lists, or
    takes the place of a prompt: this fails.

    Why: ``if token:`` and ``args.get("token") or default`` take token 0 for a missing argument, and the request is
    served as if it did not use the plugin. In many vocabularies, token 0 is a word, ``!``, or the end of the text.

    Fix: compare with None (``if token is not None``), or refuse 0 in `validate_params` if it means "off".
    """

    code, name, tier, method = "LP115", "token-0-is-a-token", "advice", STATE
    requires = ("LP101", "LP301", "LP104", "LP111", "LP112")

    def run(self, subject: Subject) -> str | None:
        judged = 0
        exact_ids.refuse_filler(subject)
        for named in odd_arguments.tokens_named(subject):
            if any(served.error or not served.rows for served in named):
                continue
            zero, first, second = (served.rows[0][0] != served.rows[0][1] for served in named)
            if first[1] == first[2] or not torch.equal(_swapped(first, 1, 2), second):
                continue
            judged += 1
            _not_filled_up(subject, named[2], (first == first[1]) & (second == second[2]))
            if first[0] != first[1] and not torch.equal(_swapped(first, 0, 1), zero):
                told = "changed" if first[1] else "left alone"
                line = _answered_otherwise(subject, *named[:2])
                given = [*map(partial(_names_zero, named[0].argument), (subject.setup.case, *subject.setup.others))]
                raise Failed(
                    f"with {named[0].argument} 0, token 0 is not treated as token 1 is with 1",
                    {"argument": named[0].argument, "token id": "0"},
                    f"token 0 is {told}, as the tokens 1 and 2 are if they are named",
                    f"{int(zero.sum())} tokens are changed, {int(first.sum())} for token 1",
                    cause=advice.cause("false", self.code) if _is_condition(line) else "",
                    location=line,
                    advice=False if any(given) else None,
                )
        if not judged:
            raise Skipped("no argument names a token that is changed at once")
        return f"{judged} arguments"


def _not_filled_up(subject: Subject, served: odd_arguments.Served, likewise: torch.Tensor) -> None:
    """Fail a plugin that fills up lists with the id of a token: beside the longest accepted list it spares the token.

    ``likewise``: the tokens that are treated as if ``served``, a list of one token, had named them.
    """
    if not likewise.any() or not isinstance((served.params.extra_args or {})[served.argument], list):
        return
    longest, most = odd_arguments.longest_named(subject, served.argument)
    if longest.error or not longest.rows:
        return
    changed = longest.rows[0][0] != longest.rows[0][1]
    likewise &= changed != changed[1]
    likewise[1 : most + 1] = False
    if likewise.any():
        token = int(likewise.to(torch.int8).argmax())
        name, line = _filled_with(subject, served, {token, token - subject.setup.vocab_size})
        words = {"name": f"`{name}`" if name else "what the line returns", "token": token, "most": most}
        raise Failed(
            f"token {token} is treated as if {served.argument} had named it",
            {"argument": f"{served.argument}=[2]", "token id": str(token)},
            f"token {token} is {'left alone' if changed[1] else 'changed'}, as beside {most} other tokens",
            f"it is {'changed' if changed[1] else 'left alone'}, as token 2 is",
            cause=advice.cause("filled", LP115.code).format(**words),
            fix=advice.fix("filled", LP115.code),
            location=line,
            advice=False,
        )


def _filled_with(subject: Subject, served: odd_arguments.Served, fillers: set[int]) -> tuple[str, str]:
    """Return the name of what holds the list and fillers behind it, and ``file:line`` of what fills it up."""
    holders: list[tuple[str, str, int]] = []
    ran: dict[FrameType, int] = {}

    def note(frame: FrameType, _: str, returned: Any) -> None:
        values = {**edits.variables(frame), "": returned}
        names = [name for name, value in values.items() if not holders and _begins(value, fillers)]
        holders.extend((name, frame.f_code.co_filename, ran[frame]) for name in names if frame in ran)
        ran[frame] = frame.f_lineno

    with author_lines.following(note):
        serve(subject, served.params)
    if not holders:
        return "", ""
    name, file, line = holders[0]
    fills = re.compile(rf"{re.escape(name)}(\[.*\])? = (-?\d+$|.*(zeros|full|ones)\b)")
    writes = [node for node in ast.walk(author_lines.syntax_of(file)) if isinstance(node, ast.Assign)]
    lines = [node.lineno for node in writes if node.lineno <= line and fills.match(ast.unparse(node))]
    return name, f"{file}:{max(lines, default=line)}"


def _begins(value: Any, fillers: set[int]) -> bool:
    """Return True for numbers, or rows of numbers, that are token 2 and fillers."""
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim and value.size and "int" in str(value.dtype):
        rows = value.reshape(-1, value.shape[-1]).tolist()
    else:
        rows = [value] if isinstance(value, list | tuple) else []
    return any(len(row) > 1 and row[0] == 2 and fillers.issuperset(row[1:]) for row in rows)


def _answered_otherwise(subject: Subject, *named: odd_arguments.Served) -> str:
    """Return ``file:line`` of the condition that two requests answer differently; empty if none does."""
    ran = []
    for served in named:
        with trails.trail(lambda frame, returned: ({}, {})) as seen:
            serve(subject, served.params)
        ran.append(seen)
    return trails.parting(*ran)[1]


def _is_condition(line: str) -> bool:
    file, _, number = line.rpartition(":")
    with contextlib.suppress(SyntaxError):
        nodes = ast.walk(author_lines.parsed(file, int(number or 0)))
        return any(isinstance(node, ast.If | ast.IfExp | ast.BoolOp | ast.While) for node in nodes)
    return False


def _names_zero(key: str, case: Case) -> bool:
    value = (case.fields.get("extra_args") or {}).get(key)
    return 0 in value if isinstance(value, list | tuple) else value == 0 and type(value) is int


def _swapped(changed: torch.Tensor, token: int, other: int) -> torch.Tensor:
    swapped = changed.clone()
    swapped[token], swapped[other] = changed[other], changed[token]
    return swapped
