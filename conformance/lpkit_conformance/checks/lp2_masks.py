"""LP2, for two plugins in one engine: the tokens that they forbid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from lpkit_conformance.checks.lazily import both, evidence, pairs, torch
from lpkit_conformance.checks.together.base import PairCheck
from lpkit_conformance.results import Finding
from lpkit_conformance.subject.memo import fact


class LP227(PairCheck):
    """A plugin does not allow tokens that the other plugin forbids.

    This holds in both orders of loading, with a grammar in front of both plugins for some requests.

    Why: a client that asks for both gets tokens that a plugin has forbidden.

    Fix: write only where ``logits > -inf``, or add to the logit instead of setting it.
    """

    code, name = "LP227", "keeps-the-others-masks"

    def run(self, pair: pairs.Pair) -> str | None:
        for run in evidence.both_orders(pair):
            for which in run.sequence:
                for there in run.rows(which):
                    before, after = there.edit(which)
                    revived = before.isneginf() & (after > -torch.inf)
                    if bool(revived.any()):
                        token = int(revived.to(torch.int8).argmax())
                        by_grammar = bool(there.seen.before[there.nth, token].isneginf())
                        masked = "a grammar" if by_grammar else pair.plugins[1 - which].name
                        finding = Finding(
                            f"{pair.plugins[which].name} allows a token again that {masked} has forbidden",
                            {"token id": str(token)},
                            "-inf",
                            f"{float(after[token]):g}",
                        )
                        raise evidence.located(pair, there, which, finding)
        return None


class LP228(PairCheck):
    """Two plugins leave a token where both allow one.

    A row keeps a token if the second plugin alone would keep a token that the first plugin leaves.

    Why: the sampler otherwise picks token 0, or nonsense, without an error.

    Fix: decide by the tokens that are not masked; watch for NaN (``0 * -inf``), which compares as False.
    """

    code, name = "LP228", "leaves-a-token-beside-another"
    requires: ClassVar[tuple[str, ...]] = ("LP224", "LP227")

    def run(self, pair: pairs.Pair) -> str | None:
        for there, which, common in emptied(pair):
            if common:
                finding = Finding(
                    f"{pair.plugins[which].name} masks every token that {pair.plugins[1 - which].name} has left",
                    {},
                    f"a finite logit: of these tokens it keeps {common} if the others are not masked",
                    "all -inf, or NaN",
                )
                raise evidence.located(pair, there, which, finding)
        return None


class LP229(PairCheck):
    """Arguments of two plugins may contradict each other.

    With the arguments shown, the two plugins allow no token in common. Advice: neither plugin is at fault.

    Why: a client can ask for both, and the engine then samples token 0, or nonsense, without an error.

    Fix: let one plugin leave the row unchanged where no token would be left, or refuse such requests in front of the
    server.
    """

    code, name, tier = "LP229", "contradicting-arguments", "advice"
    requires: ClassVar[tuple[str, ...]] = ("LP224", "LP227", "LP228")

    def run(self, pair: pairs.Pair) -> str | None:
        for there, which, common in emptied(pair):
            if not common:
                finding = Finding(
                    f"{pair.plugins[0].name} and {pair.plugins[1].name} leave no token with these arguments",
                    {},
                    "a token that both allow",
                    "none: each forbids those that the other one allows",
                    location=evidence.location_of(pair, which),
                )
                raise evidence.located(pair, there, which, finding)
        return None


@fact
def emptied(pair: pairs.Pair) -> tuple[tuple[both.RunRow, int, int], ...]:
    """Return rows that the second plugin emptied, with its index, and the number of their tokens that it keeps
    otherwise."""
    return tuple(item for run in evidence.both_orders(pair) for item in _emptied_in(pair, run))


def _emptied_in(pair: pairs.Pair, run: both.Run) -> Iterator[tuple[both.RunRow, int, int]]:
    _, second = run.sequence
    empty = []
    for there in run.rows(second):
        before, after = (logits > -torch.inf for logits in there.edit(second))
        if there.variant in pairs.BOTH and bool(before.any()) and not bool(after.any()):
            empty.append((there, before))
    if not empty:
        return
    alone = both.apart(pair, run, second, edits=False).by_position()
    for there, left in empty:
        unmasked = alone.get((there.row.request, there.row.position))
        if unmasked is None or not unmasked.counts(second):
            continue
        keeps = unmasked.edit(second)[1] > -torch.inf
        if bool(keeps.any()):  # else a grammar leaves nothing that it allows, whatever the first one does
            yield there, second, int((keeps & left).sum())
