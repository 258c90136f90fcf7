"""LP8: speculative decoding does not change the distribution of the output."""

from __future__ import annotations

from typing import ClassVar

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.lazily import Subject, distributions, findings, speculation, torch
from lpkit_conformance.checks.lp8_v2 import REFUSES
from lpkit_conformance.explanation import advice
from lpkit_conformance.results import Failed, NeverActive, Skipped
from lpkit_conformance.vllm_api.runners import V2

RUNS = 128
"""Runs of all cases together."""

FEWEST = 32
"""Runs of a case."""

UNLIKE = 1e-3
"""Probability that two distributions give different tokens before they count as different: above any rounding."""


class LP809(Check):
    """Drafts do not change the distribution of the output.

    Many short runs of one request with a drafter, verified as vLLM does (``standard``), give tokens with the
    probabilities that the same texts have without drafts. The probabilities are compared at each token; the tokens'
    counts are compared by chi-square.

    Why: verification keeps the distribution exact only if a row's logits are a function of the row's own history. A row
    may instead depend on the drafts behind it, on rejected drafts of earlier steps, or on the number of drafts. It then
    changes the output of every deployment that uses speculative decoding.

    Fix: compute each row from ``ctx.pos + 1`` tokens of history; keep no state of a row whose draft may be rejected.
    """

    code, name, hosts = "LP809", "same-with-drafts", (V2,)
    requires: ClassVar[tuple[str, ...]] = ("LP101", "LP301", "LP306", "LP307", "LP601", "LP804", "LP808")
    needs_action = True

    def run(self, subject: Subject) -> str | None:
        if speculation.speculating(subject) is None:
            raise Skipped(REFUSES)
        runs = speculation.Speculation(subject, max(RUNS // subject.setup.turn[1], FEWEST))
        fix = advice.fix("drafts", findings.style_of(subject.plugin.cls, V2))
        texts = runs.with_drafts()
        without = runs.without(texts.token_ids)
        if not texts.acted:
            raise NeverActive
        self._compare(texts, without, fix)
        before = runs.model[: without.shape[1]].expand_as(without)
        counted = distributions.compare_counts(
            texts.token_ids.flatten(),
            texts.locals.flatten(),
            without.flatten(0, 1).cpu(),
            before.flatten(0, 1).cpu(),
            runs.likely,
        )
        if counted.alarming:
            what = "other tokens" if counted.token is None else f"token {counted.token}"
            raise Failed(
                "with drafts the plugin's requests get other tokens than without",
                {"tokens": str(counted.total)} | ({} if counted.group is None else {"row": str(counted.group)}),
                f"{what} about {counted.expected:.0f} times",
                f"{counted.got} times: by chance once in {1 / max(counted.chance, 1e-99):.0e} runs",
                fix=fix,
            )
        return f"{texts.token_ids.numel()} tokens"

    def _compare(self, texts: speculation.Texts, without: torch.Tensor, fix: str) -> None:
        """Each token's probabilities with drafts and without.

        Raises:
            Failed: on the first token of all runs for which they differ.
        """
        unlike = (texts.target - without).abs().sum(-1) / 2 > UNLIKE
        if not bool(unlike.any()):
            return
        place = int(unlike.any(0).nonzero()[0])
        run = int(unlike[:, place].nonzero()[0])
        drafted, plain = texts.target[run, place], without[run, place]
        token = int((drafted - plain).abs().argmax())
        local = int(texts.locals[run, place])
        raise Failed(
            "with drafts a token has another probability than without",
            {"run": str(run), "output token": str(place), "row of the request": str(local), "token": str(token)},
            f"probability {float(plain[token]):.4f}, as without drafts",
            f"probability {float(drafted[token]):.4f}, in {int(unlike.sum())} of {unlike.numel()} tokens",
            fix=fix,
        )
