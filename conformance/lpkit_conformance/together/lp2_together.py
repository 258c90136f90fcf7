"""LP2, for two plugins in one engine: ``lpkit check --together``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from lpkit_conformance.expectation.compare import first_difference, unequal
from lpkit_conformance.programs.generate import Arrive, Step
from lpkit_conformance.results import Failed, Finding, NeverActive
from lpkit_conformance.together.base import PairCheck
from lpkit_conformance.together.engines import carry_out, spied
from lpkit_conformance.together.evidence import (
    ORDERS,
    RunRow,
    acted,
    apart,
    in_order,
    located,
    location_of,
    places,
    raised_beside,
    run_of,
)
from lpkit_conformance.together.pair import BOTH, PROGRAM, USES, Pair
from lpkit_conformance.vllm_api.runners import V1, V2

LEAST_MOVED = 0.01
"""Of a request's probability: if another order of loading moves less, it is a note."""


class LP223(PairCheck):
    """Each plugin accepts requests with the other's arguments.

    ``validate_params`` of one plugin does not raise for a request that uses only the other plugin, or both plugins.

    Why: vLLM calls every installed plugin's validation for every request. A plugin that refuses unknown keys makes the
    other plugin unusable.

    Fix: validate only keys that are your own: with a prefix of their own, or by name.
    """

    code, name = "LP223", "accepts-the-others-arguments"
    hosts: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()
    method = "validate_params"

    def run(self, pair: Pair) -> str | None:
        for variant, uses in enumerate(USES):
            for which, own in enumerate(uses):
                if uses[1 - which] is None:
                    continue
                error = pair.refusal(which, variant)
                if error is None or (own is not None and pair.refusal(which, USES.index(_only(which, own)))):
                    continue
                plugin, other = pair.plugins[which], pair.plugins[1 - which]
                kind = "both" if own is not None else f"{other.name} only"
                raise Failed(
                    f"{plugin.name} refuses a request that uses {kind}",
                    {"plugins": pair.name, "arguments": pair.arguments(variant)},
                    f"the request is accepted, as {plugin.name} is given nothing wrong of its own",
                    f"{type(error).__name__}: {error}"[:300],
                    location=location_of(pair, which, "validate_params"),
                )
        return None


class LP224(PairCheck):
    """A plugin's edits do not depend on the other plugin's code.

    The batches hold requests that use both plugins, one plugin and no plugin. Each plugin makes the same edits next to
    the other plugin as next to a recording of it, which shares nothing with the plugin except the logits.

    Why: state in a module or a shared base class, tensors kept after they were returned, and edited updates work alone.
    Installed next to another plugin, they apply one plugin's rule to the other's requests.

    Fix: keep state on the instance; copy logits that you want to keep; edit no argument except the logits.
    """

    code, name = "LP224", "beside-another"
    requires: ClassVar[tuple[str, ...]] = ("LP223",)
    needs_action = True

    def run(self, pair: Pair) -> str | None:
        runs = [run_of(pair, order) for order in ORDERS]
        for run in runs:
            if run.failure is not None:
                raise Failed(raised_beside(pair, run, run.failure))
            for which in run.order:
                self._compare(pair, which, run.order)
        if not all(any(acted(run, which) for run in runs) for which in (0, 1)):
            raise NeverActive
        return f"{sum(len(moment.rows) for run in runs for moment in run.moments)} rows"

    @staticmethod
    def _compare(pair: Pair, which: int, order: tuple[int, ...]) -> None:
        run = run_of(pair, order)
        alone = apart(pair, run, which)
        plugin, other = pair.plugins[which], pair.plugins[1 - which]
        summary = f"{plugin.name} edits logits differently when {other.name} is loaded"
        cause = "the two share state that is not on the instance, or one edits what the other keeps"
        for moment, again in zip(run.moments, alone.moments, strict=False):
            if which not in moment.edits or which not in again.edits:
                continue
            judged = [index for index, row in enumerate(moment.rows) if not row.discarded]
            before, got = (edit[judged] for edit in moment.edits[which])
            found = first_difference(before, again.edits[which][1][judged], got)
            if found is not None:
                index, token, expected, value, _ = found
                place = RunRow(run, moment, judged[index])
                where = {"token id": str(token)}
                got_text = f"{value:g} beside {other.name} itself"
                finding = Finding(summary, where, f"{expected:g}, as beside a recording of it", got_text, cause=cause)
                raise Failed(located(pair, place, which, finding))
        if alone.failure is not None:
            raise Failed(
                summary,
                {"loaded": in_order(pair, order)},
                f"what it does beside a recording of {other.name}: {alone.failure.error.summary}",
                "no exception",
                cause=cause,
                location=alone.failure.error.location,
            )


class LP225(PairCheck):
    """A plugin does not edit requests that use only the other plugin.

    The logits of a request with the arguments of one plugin are the same as with this plugin alone.

    Why: two plugins that read the same key of ``extra_args`` both act when a client asks for one of them.

    Fix: give keys a prefix of their own, the plugin's name for example.
    """

    code, name = "LP225", "own-requests"

    def run(self, pair: Pair) -> str | None:
        reads: list[set[str]] = [set(), set()]
        for order in ORDERS:
            run = run_of(pair, order)
            for which in order:
                reads[which] |= run.processors[which].reads
                self._judge(pair, which, [*places(run, which)])
        keys = [set(_keys(pair, which)) for which in (0, 1)]
        common = sorted(reads[0] & reads[1] & (keys[0] | keys[1]))
        return f"both read {_quoted(common)}" if common else None

    @staticmethod
    def _judge(pair: Pair, which: int, rows: list[RunRow]) -> None:
        edited = [place for place in rows if _edited(place, which)]
        strangers = [place for place in edited if place.variant is None]
        wrong = [place for place in edited if place.variant is not None and pair.brought(place.variant)[which] is None]
        if not wrong:
            return
        plugin, other = pair.plugins[which], pair.plugins[1 - which]
        common = sorted(wrong[0].run.processors[which].reads & set(_keys(pair, 1 - which)))
        cause, fix = "", ""
        if common:
            cause = f"both read {_quoted(common)} of extra_args"
        elif strangers:
            cause, fix = "it edits requests that use neither, too", f"see `lpkit check` of {plugin.name}"
        finding = Finding(
            f"{plugin.name} edits a request that uses only {other.name}",
            {},
            "the logits as they are",
            "other logits",
            cause=cause,
            fix=fix,
            location=location_of(pair, which),
        )
        raise Failed(located(pair, wrong[0], which, finding))


class LP226(PairCheck):
    """With both plugins loaded, requests get the same in a batch as alone.

    Each request of the batch runs again in an engine of its own that has loaded both plugins.

    Why: checks of a single plugin do not cover requests that also carry another plugin's arguments.

    Fix: see the checks of the bookkeeping (LP2); the request's arguments are those shown.
    """

    code, name = "LP226", "pair-in-a-batch"

    def run(self, pair: Pair) -> str | None:
        run = run_of(pair, ORDERS[0])
        arrivals = {op.request: op for op in PROGRAM if isinstance(op, Arrive)}
        alone = {}
        for name, tokens in run.tokens.items():
            op = arrivals[name]
            own = carry_out(pair, run.order, [op, Step(len(tokens) + op.chunks)], spied(pair), {name: tokens})
            if own.failure is not None:
                raise Failed(raised_beside(pair, own, own.failure))
            alone[name] = {place.row.position: place for place in places(own)}
        for place in places(run):
            for which in run.sequence:
                self._compare(pair, which, place, alone[place.row.request_id].get(place.row.position))
        return f"{len(alone)} requests"

    @staticmethod
    def _compare(pair: Pair, which: int, place: RunRow, alone: RunRow | None) -> None:
        if alone is None or which not in place.moment.edits or place.run.late(which, place.row.request_id):
            return
        before, got = (edit[place.nth : place.nth + 1] for edit in place.moment.edits[which])
        # V2 does not ask at all if no request of a batch is to be processed: the logits stay as they are.
        expected = before
        if which in alone.moment.edits:
            expected = alone.moment.edits[which][1][alone.nth : alone.nth + 1]
        found = first_difference(before, expected, got)
        if found is not None:
            _, token, value, other, _ = found
            finding = Finding(
                f"beside {pair.plugins[1 - which].name}, {pair.plugins[which].name} gives request "
                f"{place.row.request_id} different logits in the batch than alone",
                {"token id": str(token)},
                f"{value:g}",
                f"{other:g}",
                location=location_of(pair, which),
            )
            raise Failed(located(pair, place, which, finding))


class LP230(PairCheck):
    """The order of loading makes no difference.

    For a request that uses both, the engine chooses from nearly the same probabilities in either order. Advice: many
    rules are right and do not commute, a penalty and a threshold for example.

    Why: vLLM loads installed plugins in the order in which Python finds their entry points, so that another
    environment may give another order. V1 applies plugins that claim argmax invariance later; V2 uses the order of
    loading only.

    Fix: decide on an order, and pass both explicitly in that order (``--logits-processors``).
    """

    code, name, tier = "LP230", "order-of-loading", "advice"
    requires: ClassVar[tuple[str, ...]] = ("LP224", "LP228")

    def run(self, pair: Pair) -> str | None:
        one, other = (run_of(pair, order) for order in ORDERS)
        if one.sequence == other.sequence:
            first, second = (pair.plugins[which].name for which in one.sequence)
            return f"V1 applies {first} first in either order: {second} claims argmax invariance"
        most, worst = 0.0, None
        for place, again in _alike([*places(one)], [*places(other)]):
            moved = _moved(place, again)
            if moved > most:
                most, worst = moved, (place, again)
        if worst is None or most < LEAST_MOVED:
            return f"at most {most:.1%} of the probability moves" if most else None
        place, again = worst
        finding = Finding(
            f"the order of loading decides over {most:.0%} of a request's probability",
            {},
            f"{_most_likely(place)} with {in_order(pair, one.order)}",
            f"{_most_likely(again)} with {in_order(pair, other.order)}",
            cause="the rules do not commute",
            fix=self._fix(pair),
        )
        raise Failed(located(pair, place, 0, finding))

    def _fix(self, pair: Pair) -> str:
        """V1's order where argmax invariance decides it: the order that gives the same result on both runners."""
        if pair.host != V2 or V1 not in pair.on:
            return ""
        on_v1 = run_of(pair.on[V1], ORDERS[0])
        claims = [on_v1.processors[which].claim for which in (0, 1) if which in on_v1.processors]
        if len(set(claims)) < 2:
            return ""
        first, second = (pair.plugins[which].name for which in on_v1.sequence)
        return (
            f"load {first} before {second}: V1 applies {second} later in any order, since it claims argmax invariance"
        )


def _only(which: int, own: int) -> tuple[int | None, int | None]:
    return (own, None) if which == 0 else (None, own)


def _keys(pair: Pair, which: int) -> Iterator[str]:
    """The keys of ``extra_args`` that switch a plugin on."""
    for case in pair.plugins[which].cases:
        yield from case.fields.get("extra_args") or {}


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _edited(place: RunRow, which: int) -> bool:
    before, after = (edit[place.nth] for edit in place.moment.edits[which])
    return bool(unequal(before, after).any())


def _alike(ones: list[RunRow], others: list[RunRow]) -> Iterator[tuple[RunRow, RunRow]]:
    """Rows of requests that use both, in both runs, as long as they have generated the same."""
    found = {place.row[:2]: place for place in others}
    apart: set[str] = set()
    for place in ones:
        name = place.row.request_id
        again = found.get(place.row[:2])
        if place.variant not in BOTH or name in apart or again is None:
            continue
        yield place, again
        if place.moment.tokens.get(name) != again.moment.tokens.get(name):
            apart.add(name)


def _moved(place: RunRow, again: RunRow) -> float:
    """Return the share of a request's probability that another order moves; for a greedy request 0 or 1."""
    if not all(bool((item.moment.processed[item.nth] > -torch.inf).any()) for item in (place, again)):
        return 0.0  # where nothing is left, nothing is chosen
    if place.run.requests[place.row.request_id].request.params.temperature == 0:
        return float(_best(place) != _best(again))
    one, other = (item.moment.processed[item.nth].softmax(-1) for item in (place, again))
    return float((one - other).abs().sum() / 2)


def _best(place: RunRow) -> int:
    return int(place.moment.processed[place.nth].argmax())


def _most_likely(place: RunRow) -> str:
    row = place.moment.processed[place.nth]
    return f"token {_best(place)} has {float(row.softmax(-1).max()):.0%}"
