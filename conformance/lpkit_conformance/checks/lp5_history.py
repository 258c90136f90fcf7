"""LP5: a processor's view of a request's past, in data that the engine shares with its processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lpkit_conformance.checks.base import EVERY_METHOD, STATE, Check
from lpkit_conformance.checks.ladder import LadderCheck, differing, mixed_arrivals, play
from lpkit_conformance.checks.lazily import (
    Host,
    Subject,
    Watch,
    calls,
    changes,
    compare,
    culprit,
    engine_data,
    findings,
    following,
    hostile,
    parts,
    runtime,
    solo,
    stand,
    v1,
)
from lpkit_conformance.checks.lp1_odd import invalid
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Program, Resume, Step, program
from lpkit_conformance.results import Failed, Finding, Skipped
from lpkit_conformance.settings.hosts import RUNNER_HOSTS
from lpkit_conformance.vllm_api.releases import ASYNC_SINCE, NO_PROMPT_IDS_SINCE, is_before
from lpkit_conformance.vllm_api.runners import V1


class LP501(LadderCheck):
    """The plugin follows the live output list.

    The list that came with the Add grows in place. Under async scheduling its newest entry is -1 during
    ``update_state`` and real when ``apply`` runs.

    Why: a copy made at the Add, or values read in ``update_state``, lag behind by one token.

    Fix: keep the list itself, and read values in ``apply``. A -1 at its end stands for a token that is not known yet:
    leave it out, and do not count it as read.
    """

    code, name, hosts = "LP501", "live-outputs", (V1,)
    requires = ("LP201", "LP211")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("tokens arrive late", mixed_arrivals(4), Step(6), Finish("r0"), Step(3), Arrive("x", 2), Step(4))

    def host(self, subject: Subject, max_num_seqs: int) -> v1.V1Host:
        return hostile.LateTokens(subject, max_num_seqs)

    def run(self, subject: Subject) -> str | None:
        try:
            return super().run(subject)
        except Failed as failure:  # LP201 has passed: with known tokens the rows are right
            evidence = failure.finding.cause.partition("; ")[0]
            cause = "; ".join(filter(None, (advice.cause("late", self.code), evidence)))
            raise Failed(replace(failure.finding, cause=cause, fix=advice.fix("late", self.code))) from None


class LP503(Check):
    """A prompt may have no token ids.

    With prompt embeddings ``prompt_token_ids`` is None. No method raises then, and the request's row stays valid, if it
    is with a prompt. Advice, because an engine admits them with `--enable-prompt-embeds` only.

    Why: ``len(None)`` in ``update_state`` stops the engine for everyone. A share of a prompt whose length is taken as 0
    is NaN.

    Fix: treat None as unknown; if you need the prompt, leave the logits of such a request unchanged.
    """

    code, name, hosts, requires, tier = "LP503", "prompt-none", (V1,), ("LP101", "LP301"), "advice"
    since, option = NO_PROMPT_IDS_SINCE, "--enable-prompt-embeds"
    own_exceptions = EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        try:
            wrong = self._failure(subject, subject.model.prompt("a", 5, 0))
        except calls.PluginError:
            return None  # other checks tell what fails with a prompt
        if wrong is None and (failure := self._failure(subject, None)):
            raise failure
        return None

    def _failure(self, subject: Subject, prompt: list[int] | None) -> Failed | None:
        outputs = subject.model.begun("a", 0)
        request = runtime.Request("a", subject.params(0), prompt, prompt_len=5, output_token_ids=outputs)
        driver = parts.drive(subject)
        for before, after in parts.alone(subject, driver, request, "a", 0, 3, new=True):
            if problem := invalid(before[0], after[0]):
                what, token = problem
                return Failed(
                    f"the row of a request without prompt ids {what}",
                    {"output tokens": str(len(request.output_token_ids)), "token id": str(token)},
                    f"a valid row (the token had {float(before[0, token]):g})",
                    f"{float(after[0, token]):g}",
                    location=findings.at_fault(subject, "apply"),
                )
        return None


MOST_FOLLOWED = 260
"""Steps whose writes are followed: a state that grows with each step is compared at every line."""


class LP504(Check):
    """State depends only on the requests in the batch.

    A new instance that gets the rows of a running batch as additions gives the same logits, in a process in which
    nothing has run. So it does for a request that has been alone for up to 1,000 steps, from its first token on. Some
    of its tokens never come again.

    Why: state that depends on how the batch came about is lost when a request is preempted, and cannot be restored.

    Fix: derive state from parameters and tokens; do not keep state that an Add cannot restore.
    """

    code, name, hosts, method = "LP504", "fresh-batch", (V1,), STATE
    requires = ("LP101", "LP301", "LP204", "LP211")

    def run(self, subject: Subject) -> str | None:
        later = [Finish("r0"), Step(2), Arrive("x", 3), Finish("r2"), Arrive("y", None), Step(3)]
        self._renewed(subject, [*mixed_arrivals(5), Step(3), *later], lambda step: True)
        if subject.setup.turn[0] == 0:  # counters and buffers end at powers of two
            self._renewed(*stand.life(subject), lambda step: step == stand.LIFE or (step - 1) & (step - 2) == 0)
        return None

    def _renewed(self, subject: Subject, ops: Sequence[Op], judged: Callable[[int], bool]) -> None:
        """Compare an instance at these steps with a new one that gets the batch as additions."""
        host = parts.default_host(subject, 8)
        for seen in host.run(ops):
            if not judged(seen.step):
                continue
            with subject.as_imported():  # an engine that starts anew, too
                expected = solo.fresh_batch(subject, [host.pool.requests[row.request] for row in seen.rows], seen)
            difference = compare.first_difference(seen.before, expected, seen.after)
            if difference is None or seen.rows[difference[0]].discarded:
                continue
            row, token, _, _, kind = difference
            item = seen.rows[row]
            summary = f"request {item.request} gets different logits than in a new instance with the same batch"
            mismatch = compare.Mismatch(seen.step, row, item.request, item.position, token, 0.0, 0.0, {}, kind)
            failure = differing(summary, {"step": str(seen.step)}, difference)
            informed = changes.with_empty_updates(parts.default_host)(subject, 8)
            rows = next(later.after for later in informed.run(ops) if later.step == seen.step)
            if compare.first_difference(seen.before, expected, rows) is None:
                cause, fix = (text("between") for text in (advice.cause, advice.fix))
                line, name = findings.unprepared(subject.plugin.cls)
                failure = Failed(replace(failure.finding, cause=cause, fix=fix, location=line, state=name))
            elif kept := culprit.kept_state(subject, ops, 8, mismatch, parts.default_host, shared=True):
                finding = replace(failure.finding, location=kept.line, state=kept.name)
                if kept.how == "carried":
                    raise Failed(self._shared(finding, subject, ops, mismatch))
                cause, fix = kept.cause(item.request), advice.fix("kept", *findings.readers_of(subject))
                finding = replace(finding, cause=cause, fix=fix)
                if seen.step <= MOST_FOLLOWED:
                    finding = following.with_history(finding, subject, ops, 8, mismatch, parts.default_host, kept=True)
                failure = Failed(finding)
            raise failure

    def _shared(self, finding: Finding, subject: Subject, ops: Sequence[Op], mismatch: compare.Mismatch) -> Finding:
        """Return the finding for what the class or the module keeps, at the line that changed it last."""
        history = following.history_of(subject, ops, 8, mismatch, parts.default_host, finding.state)
        line = str(history.changes[-1].lines[0]) if history and history.changes else finding.location
        return replace(finding, cause=advice.cause("shared", self.code).format(name=finding.state), location=line)


class LP506(LadderCheck):
    """Output lists may shrink.

    After a failed KV load the engine takes tokens back and generates them again, in the same list.

    Why: state that only counts up is ahead from then on. Advice, because it needs a KV connector
    (`--kv-transfer-config`), and vLLM's own min-tokens has the same defect.

    Fix: compute from ``len(output_ids)`` and the ids themselves in every step.
    """

    code, name, hosts, tier = "LP506", "shrinking-outputs", (V1,), "advice"
    option = "--kv-transfer-config"
    requires = ("LP101", "LP301", "LP201", "LP501")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("tokens are taken back", mixed_arrivals(3), Step(16), Finish("r1"), Step(6))

    def host(self, subject: Subject, max_num_seqs: int) -> v1.V1Host:
        return hostile.Shrinking(subject, max_num_seqs)


class LP502(Check):
    """The plugin does not modify the engine's token lists.

    Prompt and output lists belong to the engine, also those of a request that comes back after a preemption. LP221
    tests long lists. The placeholders of async scheduling stay in the lists, too.

    Why: an appended or popped token changes the engine's record of the generated text.

    Fix: copy before you change.
    """

    code, name, hosts, requires = "LP502", "leaves-lists", (V1,), ("LP101", "LP301")

    def run(self, subject: Subject) -> str | None:
        resumed = [Preempt("r1"), Preempt("r3"), Step(2), Resume("r1"), Resume("r3", new_list=True)]
        ops = [*mixed_arrivals(4), Step(12), Finish("r0"), *resumed, Step(6)]

        def watched(host: Host, follow: bool) -> Watch:
            return engine_data.leaving_lists(subject, host.pool.all_requests, follow=follow)

        play(subject, ops, watched)
        if not is_before(subject.plugin.release, ASYNC_SINCE):
            with suppress(calls.PluginError, Skipped):  # LP505 judges these
                play(subject, [*mixed_arrivals(3, "u"), Step(4)], watched, hostile.NeverRepaired)
        return None


class LP507(Check):
    """The plugin does not modify the engine's data.

    All processors of an engine get the same `BatchUpdate` (V1), the same `LogitsContext` and the same buffers of
    request state (V2).

    Why: an update whose `removed` was popped is incomplete for the next processor. A position that was incremented
    in place shifts every later processor, and the sampler, by one.

    Fix: copy before you change: `pos = ctx.pos + 1`, not `ctx.pos += 1`.
    """

    code, name, hosts, requires = "LP507", "leaves-engine-data", RUNNER_HOSTS, ("LP101", "LP301")

    def run(self, subject: Subject) -> str | None:
        fewer = [Finish("r0"), Finish("r4"), Finish("r5"), Step(2)]
        report = "{method} changed {name}, which other processors read too"

        def watched(host: Host, follow: bool) -> Watch:
            def shared(method: str, args: tuple[Any, ...]) -> dict[str, Any]:
                return host.driver.shared(method, args) if method in host.driver.shares else {}

            return engine_data.leaving(subject, shared, report, advice.fix("engine-data"), follow)

        play(subject, [*mixed_arrivals(6), Step(2), *fewer, *mixed_arrivals(2, "s"), Step(2)], watched)
        return None
