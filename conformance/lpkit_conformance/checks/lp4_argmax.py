"""LP4: V1's claim that the argmax never changes."""

from __future__ import annotations

import torch

from lpkit_conformance.check import Check, Failed, Skipped, register
from lpkit_conformance.checks.lp3_contract import Apply, ContractCheck, adversarial
from lpkit_conformance.hosts.observe import PluginError, calling
from lpkit_conformance.programs import Arrive, Step
from lpkit_conformance.results import Finding
from lpkit_conformance.subject import Subject
from lpkit_conformance.verify import default_host, method_place, raised


@register
class LP401(ContractCheck):
    """A processor that claims argmax invariance keeps the argmax.

    After ``apply`` the token that had the largest logit still has it: ``y[argmax(x)] == max(y)``, on random rows
    and on ties, flat, one-hot, mostly masked, huge and tiny ones.

    Why: V1 skips such a processor when all requests are greedy, so a false claim makes the plugin work or not
    depending on the neighbours (vLLM #28617).

    Fix: return False from ``is_argmax_invariant``; with lpkit, ``stage = "logits"``.
    """

    code, name, hosts = "LP401", "argmax-claim", ("v1",)
    requires = ("LP101", "LP301", "LP402")

    def judge(self, subject: Subject, logits: torch.Tensor, again: Apply) -> str | None:
        if not subject.invariant:
            raise Skipped("the plugin does not claim argmax invariance")
        if _declines_greedy(subject):
            return "declines greedy requests, so the argmax is its own business"
        tried = 0
        for label, rows in adversarial(logits).items():
            result = again(rows.clone())
            best = result.gather(1, rows.argmax(1, keepdim=True)).squeeze(1)
            wrong = best != result.amax(1)
            tried += rows.shape[0]
            if bool(wrong.any()):
                row = int(wrong.to(torch.int8).argmax())
                raise self.finding(
                    subject,
                    f"is_argmax_invariant() is True, but the argmax of {label} logits changed",
                    f"token {int(rows[row].argmax())} keeps the largest logit",
                    f"token {int(result[row].argmax())} has it",
                    row=str(row),
                )
        return f"{tried} rows"


def _declines_greedy(subject: Subject) -> bool:
    """lpkit's sampling stage admits no greedy request, which makes changing the argmax harmless."""
    import lpkit

    return isinstance(subject.cls, type) and issubclass(
        subject.cls, lpkit.LogitsProcessor | lpkit.AdapterLogitsProcessor
    )


@register
class LP402(Check):
    """The claim about the argmax is a constant.

    ``is_argmax_invariant()`` returns the same bool from every instance, before and after requests came.

    Why: vLLM asks once, right after construction; a claim that depends on state is asked too early, and one that
    differs between workers makes them disagree.

    Fix: return a literal True or False.
    """

    code, name, hosts, requires = "LP402", "stable-claim", ("v1",), ("LP101",)

    def run(self, subject: Subject) -> str | None:
        try:
            host = default_host(subject, 4)
            with calling("is_argmax_invariant"):
                answers = [subject.create().is_argmax_invariant(), host.processor.is_argmax_invariant()]
                for _ in host.run([Arrive("a", 0), Arrive("b", None), Step(2)]):
                    answers.append(host.processor.is_argmax_invariant())
        except PluginError as error:
            raise Failed(raised(error)) from error
        if len(set(answers)) > 1 or not isinstance(answers[0], bool):
            raise Failed(
                Finding(
                    "is_argmax_invariant() does not always return the same bool",
                    expected="True or False, always the same",
                    got=", ".join(map(repr, answers)),
                    fix=self.sections()["fix"],
                    place=method_place(subject.cls, "is_argmax_invariant"),
                )
            )
        return f"claims {answers[0]}"
