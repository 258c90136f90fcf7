"""LP2, for two plugins in one engine: the tokens that they forbid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from lpkit_conformance.results import Failed, Finding
from lpkit_conformance.together.base import PairCheck
from lpkit_conformance.together.evidence import ORDERS, RunRow, apart, located, location_of, places, run_of
from lpkit_conformance.together.pair import BOTH, Pair


class LP227(PairCheck):
    """A plugin does not allow tokens that the other plugin forbids.

    This holds in both orders of loading, with a grammar in front of both plugins for some requests.

    Why: a client that asks for both gets tokens that a plugin has forbidden.

    Fix: write only where ``logits > -inf``, or add to the logit instead of setting it.
    """

    code, name = "LP227", "keeps-the-others-masks"

    def run(self, pair: Pair) -> str | None:
        for order in ORDERS:
            run = run_of(pair, order)
            for which in run.sequence:
                for place in places(run, which):
                    before, after = (edit[place.nth] for edit in place.moment.edits[which])
                    revived = before.isneginf() & (after > -torch.inf)
                    if bool(revived.any()):
                        token = int(revived.to(torch.int8).argmax())
                        masked = pair.plugins[1 - which].name
                        if bool(place.moment.raw[place.nth, token].isneginf()):
                            masked = "a grammar"
                        finding = Finding(
                            f"{pair.plugins[which].name} allows a token again that {masked} has forbidden",
                            {"token id": str(token)},
                            "-inf",
                            f"{float(after[token]):g}",
                        )
                        raise Failed(located(pair, place, which, finding))
        return None


class LP228(PairCheck):
    """Two plugins leave a token where both allow one.

    A row keeps a token if the second plugin alone would keep a token that the first plugin leaves.

    Why: the sampler otherwise picks token 0, or nonsense, without an error.

    Fix: decide by the tokens that are not masked; watch for NaN (``0 * -inf``), which compares as False.
    """

    code, name = "LP228", "leaves-a-token-beside-another"
    requires: ClassVar[tuple[str, ...]] = ("LP224", "LP227")

    def run(self, pair: Pair) -> str | None:
        for place, which, common in _emptied(pair):
            if common:
                finding = Finding(
                    f"{pair.plugins[which].name} masks every token that {pair.plugins[1 - which].name} has left",
                    {},
                    f"a finite logit: of these tokens it keeps {common} if the others are not masked",
                    "all -inf, or NaN",
                )
                raise Failed(located(pair, place, which, finding))
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

    def run(self, pair: Pair) -> str | None:
        for place, which, common in _emptied(pair):
            if not common:
                finding = Finding(
                    f"{pair.plugins[0].name} and {pair.plugins[1].name} leave no token with these arguments",
                    {},
                    "a token that both allow",
                    "none: each forbids those that the other one allows",
                    location=location_of(pair, which),
                )
                raise Failed(located(pair, place, which, finding))
        return None


def _emptied(pair: Pair) -> list[tuple[RunRow, int, int]]:
    """Return rows that the second plugin emptied, with its index, and the number of their tokens that it keeps
    otherwise."""
    if "emptied" not in pair.known:
        pair.known["emptied"] = [found for order in ORDERS for found in _emptied_in(pair, order)]
    found: list[tuple[RunRow, int, int]] = pair.known["emptied"]
    return found


def _emptied_in(pair: Pair, order: tuple[int, ...]) -> Iterator[tuple[RunRow, int, int]]:
    run = run_of(pair, order)
    _, second = run.sequence
    empty = []
    for place in places(run, second):
        before, after = (edit[place.nth] > -torch.inf for edit in place.moment.edits[second])
        if place.variant in BOTH and bool(before.any()) and not bool(after.any()):
            empty.append((place, before))
    if not empty:
        return
    alone = apart(pair, run, second, edits=False)
    kept = {(place.moment.step, place.row): place for place in places(alone, second)}
    for place, left in empty:
        unmasked = kept.get((place.moment.step, place.row))
        if unmasked is None:
            continue
        keeps = unmasked.moment.edits[second][1][unmasked.nth] > -torch.inf
        if bool(keeps.any()):  # else a grammar leaves nothing that it allows, whatever the first one does
            yield place, second, int((keeps & left).sum())
