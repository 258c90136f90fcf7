"""LP4: V1's claim that the argmax never changes."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from types import FrameType
from typing import Any

from lpkit.sampling_params import GREEDY_EPSILON, SamplingParams

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import host_after, mixed_arrivals
from lpkit_conformance.checks.lazily import (
    Subject,
    calls,
    changes,
    compare,
    findings,
    np,
    odd_arguments,
    parts,
    solo,
    stand,
    torch,
    trails,
)
from lpkit_conformance.checks.lp1_odd import invalid
from lpkit_conformance.checks.lp3_contract import adversarial
from lpkit_conformance.checks.lp3_purity import ContractCheck
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Finish, Step
from lpkit_conformance.results import Failed, NeverActive, Skipped
from lpkit_conformance.vllm_api.runners import V1, V2

APART, ORDINARY = 0.01, 1e4
"""A difference of logits that computing in float32 does not level, for logits that are at most this large."""


class LP401(ContractCheck):
    """A processor that claims argmax invariance keeps the argmax.

    After ``apply`` the token that had the largest logit still has it: ``y[argmax(x)] == max(y)``; and no token that had
    clearly less has caught up with it, as the first of equal tokens is chosen. The rows are random, tied, flat,
    one-hot, mostly masked, huge and tiny. In further rows, the tokens that the plugin moves are just above or below the
    rest. The arguments are those of the cases, and the ends of what `validate_params` accepts.

    Why: V1 has chosen the tokens of greedy requests before such a processor runs, so a plugin that changes the
    argmax silently has no effect on them (vLLM #28617).

    Fix: return False from ``is_argmax_invariant``; with lpkit, ``stage = "logits"``.
    """

    code, name, hosts = "LP401", "argmax-claim", (V1,)
    method = "is_argmax_invariant"
    prevented = "a processor of the sampling stage is given no greedy requests, so it may change the argmax."
    requires = ("LP101", "LP301", "LP402")

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        if not parts.drive(subject).invariant:
            raise Skipped("the plugin does not claim argmax invariance")
        if _declines_greedy(subject):
            return "declines greedy requests, so it may change the argmax"
        tried = 0
        for label, rows in hard(logits, again).items():
            result = again(rows.clone())
            wrong = _lost(rows, result) | caught_up(rows, result)
            tried += rows.shape[0]
            if bool(wrong.any()):
                row = compare.first_row(wrong)
                raise Failed(
                    f"is_argmax_invariant() is True, but the argmax of {label} logits changed",
                    {"row": str(row)},
                    f"token {int(rows[row].argmax())} keeps the largest logit",
                    f"token {int(result[row].argmax())} has it",
                    cause=_moved(rows[row], result[row]),
                )
        return f"{tried} rows"

    def run(self, subject: Subject) -> str | None:
        note = super().run(subject)
        for served in () if _declines_greedy(subject) else odd_arguments.odd_served(subject):
            for before, after in served.rows:
                if after[before.argmax()] != after.max() and not invalid(before, after):  # LP111 judges those
                    raise Failed(
                        f"is_argmax_invariant() is True, but with {served.argument} the argmax changed",
                        {"argument": served.argument},
                        f"token {int(before.argmax())} keeps the largest logit",
                        f"token {int(after.argmax())} has it",
                        cause=_moved(before, after),
                    )
        return note


def _moved(before: torch.Tensor, after: torch.Tensor) -> str:
    """Describe a row's edit of the best token, or of the token that is best afterwards."""
    best = int(before.argmax())
    key, token = ("lowered", best) if after[best] < before[best] else ("raised", int(after.argmax()))
    values = {"token": token, "before": f"{float(before[token]):g}", "after": f"{float(after[token]):g}"}
    return advice.cause(key, LP401.code).format(**values)


def contested(logits: torch.Tensor, again: stand.Apply) -> dict[str, torch.Tensor]:
    """Return rows in which the most lowered token is just the best, or the most raised token is just not the best.

    A rule that moves single tokens seldom meets the best token of a random row.
    """
    change = (again(logits.clone()) - logits).nan_to_num(0.0, posinf=4.0, neginf=-4.0)
    best = logits.amax(1, keepdim=True)
    rows = {}
    for label, (by, token) in {"lowered": change.min(1, keepdim=True), "raised": change.max(1, keepdim=True)}.items():
        # A quarter of the move: lowered past the rest, or raised past it, if the move is kept.
        rows[f"barely {'best' if label == 'lowered' else 'beaten'}"] = logits.scatter(1, token, best - by / 4)
    return rows


def caught_up(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return a bool ``[n, 1]``: the row's new argmax had less than the old one, by more than rounding can level."""
    best = before.amax(1, keepdim=True)
    less = best - before.gather(1, after.argmax(1, keepdim=True))
    return (less > APART) & (best.abs() < ORDINARY) & after.amax(1, keepdim=True).isfinite()


def _declines_greedy(subject: Subject) -> bool:
    """lpkit's sampling stage admits no greedy request, which makes changing the argmax harmless."""
    return getattr(subject.plugin.cls, "stage", "") == "sampling"


class LP402(Check):
    """The claim of argmax invariance never changes.

    ``is_argmax_invariant()`` returns the same bool from every instance, before and after requests arrive, at any output
    length.

    Why: vLLM asks once, right after construction. A claim that depends on state is read too early, and a claim that
    differs between workers makes them disagree.

    Fix: return a literal True or False.
    """

    code, name, hosts, requires = "LP402", "stable-claim", (V1,), ("LP101", "LP301")
    prevented = "the claim follows from `stage`, an attribute of the class."
    method = "is_argmax_invariant"

    def run(self, subject: Subject) -> str | None:
        host = parts.default_host(subject, 4)
        with calls.calling("is_argmax_invariant"):
            answers = [parts.drive(subject).processor.is_argmax_invariant(), host.processor.is_argmax_invariant()]
            with contextlib.suppress(calls.PluginError):  # of another method: LP104 judges that
                for _ in host.run([Arrive("a", 0), Arrive("b", None), Step(stand.RUN_STEPS)]):
                    answers.append(host.processor.is_argmax_invariant())
        if len(set(answers)) > 1 or not isinstance(answers[0], bool | np.bool_):  # vLLM asks for its truth alone
            key = "instances" if answers[0] != answers[1] else "later" if len(set(answers)) > 1 else "no bool"
            fix = ""
            with contextlib.suppress(Exception):  # whatever else is wrong: a fix is being looked for
                fix = advice.fix("changes", self.code) if _moves_best(subject, stand.RUN_STEPS) else ""
            line = findings.returning_line(subject.plugin.cls, "is_argmax_invariant")
            read = sorted(set(re.findall(r"self\.\w+\b(?!\()", advice.text_at(line))))
            told = {"first": answers[1], "other": next((answer for answer in answers if answer != answers[1]), None)}
            told |= {"name": " and ".join(f"`{name}`" for name in read) or "something, such as the requests"}
            raise Failed(
                "is_argmax_invariant() does not always return the same bool",
                expected="True or False, always the same",
                got=", ".join(map(repr, dict.fromkeys(answers))),
                cause=advice.cause(key, self.code).format(**told),
                fix=fix,
                location=line,
                state=read[0] if len(read) == 1 else "",
            )
        return f"claims {bool(answers[0])}"


class LP403(Check):
    """Both runners give a request the same logits.

    A class with both interfaces is one processor: its result on V2 equals that on V1. Where V1 runs the processor after
    temperature, the result on V2 is divided by the temperature first.

    Why: V1 runs an argmax-invariant processor after temperature, V2 runs all before it. A threshold on
    probabilities then means something different on each runner.

    Fix: with lpkit, use ``rows.temperature``, the value by which the engine still divides: divide logits by it before a
    softmax, and multiply by it what is compared with logits.
    """

    code, name, hosts = "LP403", "runners-agree", ()
    requires = ("LP001", "LP101", "LP301", "LP201", "LP303", "LP113")
    needs_action = True

    def run(self, subject: Subject) -> str | None:
        if subject.plugin.interfaces != {V1, V2}:
            raise Skipped("the class has one interface only")
        try:
            return self._compared(subject)
        except Failed as failure:
            style, lines = findings.style_of(subject.plugin.cls, V2), list[str]()
            key, changed = "placeholders", changes.declaring_tokens(subject) if style == "adapter" else []
            if style == "portable":
                key, changed = "no-prompt", [changes.without_prompts(subject, lines)]
                if _declines_greedy(subject) and _moves_best(subject.having(host=V2)):
                    key, changed = "stage", [changes.having(subject, stage="logits")]
                    lines.append(findings.declaration(subject.plugin.cls, "stage"))
            if not changed or not all(map(self._agree, changed)):
                if "temperature" not in failure.finding.where or failure.finding.fix:
                    raise
                name, line = _undivided(subject.having(host=V2))
                cause = advice.cause("undivided", self.code).format(name=name) if name else failure.finding.cause
                raise Failed(replace(failure.finding, cause=cause, location=line, state=name)) from None
            line = next(iter(lines), failure.finding.location)
            finding = replace(failure.finding, cause=advice.cause(key), fix=advice.fix(key), location=line)
            raise Failed(finding) from None

    def _agree(self, subject: Subject) -> bool:
        """Return True if no row differs, whether or not the plugin acts."""
        try:
            return bool(self._compared(subject))
        except NeverActive:
            return True
        except Failed:
            return False

    def _compared(self, subject: Subject) -> str:
        """Count the equal rows."""
        first, second = subject.having(host=V1), subject.having(host=V2)
        hosts, acts = [], []
        less = [Arrive(f"less{n}", n) for n in subject.with_less]  # an argument may act alone
        for side in (first, second):
            hosts.append(host_after(side, [*mixed_arrivals(5), Step(4), Finish("r0"), *less, Step(2)]))
            acts.append(solo.solo_runs(side).prepare(hosts[-1].pool.requests))
        late, actives = hosts[0].driver.invariant, hosts[0].pool.requests
        compared = 0
        late_failure: Failed | None = None  # the temperature is to blame only if requests at 1 come out alike
        for active in actives.values():
            if late and active.temperature < GREEDY_EPSILON:
                continue
            scale = active.temperature if late else 1.0
            for position in range(active.request.prompt_len, active.request.total_len):
                on_v1, on_v2 = (solo.solo_runs(side).expected(active.id, position) for side in (first, second))
                if on_v1 is None or on_v2 is None:
                    continue
                compared += 1
                before = subject.model.rows([(active.logits_key, position)]) / scale
                difference = compare.first_difference(before, on_v1[None], on_v2[None] / scale, exact_rows=False)
                if difference is None:
                    continue
                not_named = _not_named(subject, active.request.params)
                failure = self._failed(active.id, position, scale, difference, not_named)
                if scale == 1.0:
                    raise failure
                late_failure = late_failure or failure
        if late_failure is not None:
            raise late_failure
        if not all(acts):
            raise NeverActive
        return f"{compared} rows"

    @staticmethod
    def _failed(
        request: str, position: int, scale: float, difference: tuple[int, int, float, float, str], not_named: str
    ) -> Failed:
        _, token, on_v1, on_v2, _ = difference
        where = {"request": request, "tokens so far": str(position), "token id": str(token)}
        there, key = "V2", "unnamed" if not_named else "different"
        if scale != 1.0 and not not_named:
            where["temperature"], there, key = f"{scale:g}", "V2, after temperature", "temperature"
        cause = advice.cause(key, LP403.code).format(names=not_named)
        fix = "" if key == "temperature" else advice.fix(key, LP403.code)
        summary = f"request {request} gets different logits on V2 than on V1"
        return Failed(summary, where, f"{on_v1:g} (V1)", f"{on_v2:g} ({there})", cause=cause, fix=fix)


def _moves_best(subject: Subject, steps: int = 3) -> bool:
    """Return True if an edit changes which token of a row is best, some steps into a run."""
    subject = changes.having(subject, is_argmax_invariant=lambda _: False)  # so that the engine calls apply
    standing = stand.stand_after(subject, mixed_arrivals(5), steps)
    tried = hard(standing.logits, standing.again).values()
    return any(bool(_lost(rows, standing.again(rows.clone())).any()) for rows in tried)


def _lost(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return a bool ``[n, 1]``: the row's best token has no longer the largest logit."""
    return after.gather(1, before.argmax(1, keepdim=True)) != after.amax(1, keepdim=True)


def hard(logits: torch.Tensor, again: stand.Apply) -> dict[str, torch.Tensor]:
    """Return rows in which a small edit changes which token is best."""
    return {**adversarial(logits), **contested(logits, again)}


def _undivided(subject: Subject) -> tuple[str, str]:
    """Return the first variable that does not follow when all logits are halved, and ``file:line`` of what sets it."""
    standing = stand.stand_after(subject, mixed_arrivals(5))
    runs: list[list[trails.Seen]] = []
    for scale in (1.0, 0.5):
        with trails.trail(_proportions) as seen:
            standing.again(standing.logits * scale)
        runs.append(seen)
    name, line = trails.parting(*runs)
    return name, line


def _proportions(frame: FrameType, returned: dict[str, Any]) -> trails.Values:
    """Return what a function computes as shares of the largest number, which are the same if all are halved."""
    values = {**frame.f_locals, **returned}.items()
    numbers = {name: value for name, value in values if isinstance(value, torch.Tensor) and value.is_floating_point()}
    sizes = {name: value.abs().nan_to_num(0.0, 0.0, 0.0).sum().clamp(min=1e-30) for name, value in numbers.items()}
    return {name: (value / sizes[name]).tolist() for name, value in numbers.items()}, {}


def _not_named(subject: Subject, params: SamplingParams) -> str:
    """Return the request's arguments, if the class is a bridge whose ``keys`` contain none of them."""
    keys = getattr(subject.plugin.cls, "keys", ()) if hasattr(subject.plugin.cls, "wraps") else ()
    arguments = (subject.setup.case.fields.get("extra_args") or {}).keys() & (params.extra_args or {}).keys()
    return ", ".join(sorted(arguments)) if keys and not arguments & set(keys) else ""
