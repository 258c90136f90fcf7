"""LP2, for two plugins in one engine: ``lpkit check --together``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from lpkit.loading import interfaces_of

from lpkit_conformance.checks.lazily import admission, both, compare, evidence, pairs
from lpkit_conformance.checks.together.base import PairCheck
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Step
from lpkit_conformance.results import Failed, Finding, NeverActive
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

    def run(self, pair: pairs.Pair) -> str | None:
        for variant, uses in enumerate(pairs.USES[: pairs.THINKING]):
            for which, used in enumerate(uses):
                if uses[1 - which] is None:
                    continue
                error = pair.refusal(which, variant)
                only = pairs.USES.index((used, None) if which == 0 else (None, used)) if used is not None else None
                if error is None or (only is not None and pair.refusal(which, only)):
                    continue
                plugin, other = pair.plugins[which], pair.plugins[1 - which]
                kind = "both" if used is not None else f"{other.name} only"
                raise Failed(
                    f"{plugin.name} refuses a request that uses {kind}",
                    {"plugins": pair.plugin.target, "arguments": pair.arguments(variant)},
                    f"the request is accepted, as {plugin.name} is given nothing wrong of its own",
                    f"{type(error).__name__}: {error}"[:300],
                    location=evidence.location_of(pair, which, "validate_params"),
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

    def run(self, pair: pairs.Pair) -> str | None:
        runs = evidence.both_orders(pair)
        for run in runs:
            for which in evidence.judged(pair, run).order:
                self._compare(pair, which, run)
        if not all(any(run.acted(which) for run in runs) for which in (0, 1)):
            raise NeverActive
        return f"{sum(len(seen.rows) for run in runs for seen in run.seen)} rows"

    @staticmethod
    def _compare(pair: pairs.Pair, which: int, run: both.Run) -> None:
        alone = both.apart(pair, run, which)
        plugin, other = pair.plugins[which], pair.plugins[1 - which]
        summary = f"{plugin.name} edits logits differently when {other.name} is loaded"
        cause = advice.cause("shared", LP224.code)
        others = alone.by_position()
        for there in run.rows(which):
            again = others.get((there.row.request, there.row.position))
            departure = again and there.departure(which, again)
            if departure:
                token, expected, value = departure
                where = {"token id": str(token)}
                got = f"{value:g} beside {other.name} itself"
                finding = Finding(summary, where, f"{expected:g}, as beside a recording of it", got, cause=cause)
                raise evidence.located(pair, there, which, finding)
        if alone.failure is not None:
            raise Failed(
                summary,
                {"loaded": evidence.in_order(pair, run)},
                f"what it does beside a recording of {other.name}: {alone.failure.summary}",
                "no exception",
                cause=cause,
                location=alone.failure.location,
            )


class LP225(PairCheck):
    """A plugin does not edit requests that use only the other plugin.

    The logits of a request with the arguments of one plugin are the same as with this plugin alone.

    Why: two plugins that read the same key of ``extra_args`` both act when a client asks for one of them.

    Fix: give keys a prefix of their own, the plugin's name for example.
    """

    code, name = "LP225", "own-requests"

    def run(self, pair: pairs.Pair) -> str | None:
        reads = [admission.keys_read(pair.served_by(plugin.cls)) for plugin in pair.plugins]
        for run in evidence.both_orders(pair):
            for which in run.order:
                self._judge(pair, which, run, reads[which] & _keys(pair, 1 - which))
        common = reads[0] & reads[1] & (_keys(pair, 0) | _keys(pair, 1))
        return f"both read {_quoted(common)}" if common else None

    @staticmethod
    def _judge(pair: pairs.Pair, which: int, run: both.Run, common: frozenset[str]) -> None:
        edited = [there for there in run.rows(which) if bool(compare.unequal(*there.edit(which)).any())]
        strangers = [there for there in edited if there.variant is None]
        wrong = [there for there in edited if there.variant is not None and pair.brought(there.variant)[which] is None]
        if not wrong:
            return
        plugin, other = pair.plugins[which], pair.plugins[1 - which]
        cause, fix = "", ""
        if common:
            cause = advice.cause("same keys", LP225.code).format(keys=_quoted(common))
        elif strangers:
            cause = advice.cause("strangers", LP225.code)
            fix = advice.fix("strangers", LP225.code).format(name=plugin.name)
        finding = Finding(
            f"{plugin.name} edits a request that uses only {other.name}",
            {},
            "the logits as they are",
            "other logits",
            cause=cause,
            fix=fix,
            location=evidence.location_of(pair, which),
        )
        raise evidence.located(pair, wrong[0], which, finding)


class LP226(PairCheck):
    """With both plugins loaded, requests get the same in a batch as alone.

    Each request of the batch runs again in an engine of its own that has loaded both plugins.

    Why: checks of a single plugin do not cover requests that also carry another plugin's arguments.

    Fix: see the checks of the bookkeeping (LP2); the request's arguments are those shown.
    """

    code, name = "LP226", "pair-in-a-batch"

    def run(self, pair: pairs.Pair) -> str | None:
        run = evidence.both_orders(pair)[0]
        arrivals = {op.request: op for op in pairs.PROGRAM if isinstance(op, Arrive)}
        alone: dict[tuple[str, int], both.RunRow] = {}
        for name, active in run.requests.items():
            count = len(active.committed) - active.begun
            lone_run = both.carry_out(pair, run.order, [arrivals[name], Step(count + active.arrived.chunks)])
            alone |= evidence.judged(pair, lone_run).by_position()
        for there in run.rows():
            again = alone.get((there.row.request, there.row.position))
            for which in run.sequence:
                departure = there.departure(which, again) if again and there.counts(which) else None
                if departure:
                    token, expected, got = departure
                    finding = Finding(
                        f"beside {pair.plugins[1 - which].name}, {pair.plugins[which].name} gives request "
                        f"{there.row.request} different logits in the batch than alone",
                        {"token id": str(token)},
                        f"{expected:g}",
                        f"{got:g}",
                        location=evidence.location_of(pair, which),
                    )
                    raise evidence.located(pair, there, which, finding)
        return f"{len(run.requests)} requests"


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

    def run(self, pair: pairs.Pair) -> str | None:
        forward, backward = evidence.both_orders(pair)
        if forward.sequence == backward.sequence:
            first, second = (pair.plugins[which].name for which in forward.sequence)
            return f"V1 applies {first} first in either order: {second} claims argmax invariance"
        moved, worst = max(
            ((_moved(*rows), rows) for rows in _alike(forward, backward)), key=lambda item: item[0], default=(0.0, None)
        )
        if worst is None or moved < LEAST_MOVED:
            return f"at most {moved:.1%} of the probability moves" if moved else None
        there, again = worst
        finding = Finding(
            f"the order of loading decides over {moved:.0%} of a request's probability",
            {},
            f"{_most_likely(there)} with {evidence.in_order(pair, forward)}",
            f"{_most_likely(again)} with {evidence.in_order(pair, backward)}",
            cause=advice.cause("order", self.code),
            fix=self._fix(pair),
        )
        raise evidence.located(pair, there, 0, finding)

    def _fix(self, pair: pairs.Pair) -> str:
        """V1's order where argmax invariance decides it: the order that gives the same result on both runners."""
        if pair.setup.host != V2 or not all(V1 in interfaces_of(plugin.cls) for plugin in pair.plugins):
            return ""
        on_v1 = both.carry_out(replace(pair, setup=replace(pair.setup, host=V1)), evidence.ORDERS[0], ())
        if len({part.claim for part in on_v1.parts.values()}) < 2:
            return ""
        first, second = (pair.plugins[which].name for which in on_v1.sequence)
        return advice.fix("invariant", self.code).format(first=first, second=second)


def _keys(pair: pairs.Pair, which: int) -> frozenset[str]:
    """The keys of ``extra_args`` that switch a plugin on."""
    return frozenset(key for case in pair.plugins[which].cases for key in case.fields.get("extra_args") or {})


def _quoted(keys: frozenset[str]) -> str:
    return ", ".join(f'"{key}"' for key in sorted(keys))


def _alike(first: both.Run, second: both.Run) -> Iterator[tuple[both.RunRow, both.RunRow]]:
    """Rows of requests that use both, in both runs, as long as they have generated the same."""
    rows = second.by_position()
    for there in first.rows():
        again = rows.get((there.row.request, there.row.position))
        if there.variant in pairs.BOTH and again is not None and there.generated == again.generated:
            yield there, again


def _moved(there: both.RunRow, again: both.RunRow) -> float:
    """Return the share of a request's probability that another order moves; for a greedy request 0 or 1."""
    before, after = there.probabilities, again.probabilities
    if bool(before.isnan().any()) or bool(after.isnan().any()):
        return 0.0  # where nothing is left, nothing is chosen
    if there.greedy:
        return float(int(before.argmax()) != int(after.argmax()))
    return float((before - after).abs().sum() / 2)


def _most_likely(there: both.RunRow) -> str:
    row = there.probabilities
    return f"token {int(row.argmax())} has {float(row.max()):.0%}"
