"""LP5: a processor's view of a request's past."""

from __future__ import annotations

from collections.abc import Iterator

from lpkit.runtime import Request
from lpkit.runtime.engine.v1_async import PLACEHOLDER

from lpkit_conformance.checks.base import EVERY_METHOD, STATE, Check
from lpkit_conformance.checks.engine_lists import leaving_lists
from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lp1_odd import invalid
from lpkit_conformance.expectation.compare import first_difference
from lpkit_conformance.expectation.solo import fresh_batch
from lpkit_conformance.explanation.findings import at_fault
from lpkit_conformance.hosts import default_host, drive
from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.programs.generate import Arrive, Finish, Preempt, Program, Resume, Step, program
from lpkit_conformance.results import Failed
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1


class LateTokens(V1Host):
    """V1 under async scheduling: at ``update_state`` the newest token is a placeholder, at ``apply`` it is real."""

    def _begin(self) -> None:
        held = {}
        for active in self.pool.running.values():
            outputs = active.request.output_token_ids
            if outputs:
                held[active.id] = outputs[-1]
                outputs[-1] = PLACEHOLDER
        super()._begin()
        for request, token in held.items():
            self.pool.requests[request].request.output_token_ids[-1] = token


class LP501(LadderCheck):
    """The plugin follows the live output list.

    The list that came with the Add grows in place. Under async scheduling its newest entry is -1 during
    ``update_state`` and real when ``apply`` runs.

    Why: a copy made at the Add, or values read in ``update_state``, lag behind by one token.

    Fix: keep the list itself, and read values in ``apply``.
    """

    code, name, hosts = "LP501", "live-outputs", (V1,)
    requires = ("LP201", "LP211")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("tokens arrive late", mixed_arrivals(4), Step(6), Finish("r0"), Step(3), Arrive("x", 2), Step(4))

    def host(self, subject: Subject, max_num_seqs: int) -> V1Host:
        return LateTokens(subject, max_num_seqs)


class LP502(Check):
    """The plugin does not modify the engine's token lists.

    Prompt and output lists belong to the engine, also those of a request that comes back after a preemption. LP221
    tests long lists.

    Why: an appended or popped token changes the engine's record of the generated text.

    Fix: copy before you change.
    """

    code, name, hosts, requires = "LP502", "leaves-lists", (V1,), ("LP101", "LP301")

    def run(self, subject: Subject) -> str | None:
        host = default_host(subject, 8)
        resumed = [Preempt("r1"), Preempt("r3"), Step(2), Resume("r1"), Resume("r3", new_list=True)]
        with host.driver.watched(leaving_lists(subject, host.pool.all_requests)):
            for _ in host.run([*mixed_arrivals(4), Step(12), Finish("r0"), *resumed, Step(6)]):
                pass
        return None


class LP503(Check):
    """A prompt may have no token ids.

    With prompt embeddings ``prompt_token_ids`` is None. No method raises then, and the request's row stays valid.

    Why: ``len(None)`` in ``update_state`` stops the engine for everyone. A share of a prompt whose length is taken as 0
    is NaN.

    Fix: treat None as unknown; if you need the prompt, leave the logits of such a request unchanged.
    """

    code, name, hosts, requires, tier = "LP503", "prompt-none", (V1,), ("LP101", "LP301"), "advice"
    own_exceptions = EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        request = Request("a", subject.params(0), None, prompt_len=5, output_token_ids=subject.model.begun("a", 0))
        driver = drive(subject)
        for step in range(3):
            driver.begin(entering=() if step else [request])
            before = driver.stage(subject.model.rows([("a", request.total_len)]), [request.params])
            after = driver.step(before, [request])
            if problem := invalid(before[0], after[0]):
                what, token = problem
                raise Failed(
                    f"the row of a request without prompt ids {what}",
                    {"output tokens": str(len(request.output_token_ids)), "token id": str(token)},
                    f"a valid row (the token had {float(before[0, token]):g})",
                    f"{float(after[0, token]):g}",
                    location=at_fault(subject, "apply"),
                )
            wanted = subject.model.emit("a", 0, len(request.output_token_ids))
            driver.commit(request, subject.model.sampled([wanted], after))
        return None


class LP504(Check):
    """State depends only on the requests in the batch.

    A new instance that gets the rows of a running batch as additions gives the same logits.

    Why: state that depends on how the batch came about is lost when a request is preempted, and cannot be restored.

    Fix: derive state from parameters and tokens; do not keep state that an Add cannot restore.
    """

    code, name, hosts, method = "LP504", "fresh-batch", (V1,), STATE
    requires = ("LP101", "LP301", "LP204", "LP211")

    def run(self, subject: Subject) -> str | None:
        host = default_host(subject, 8)
        later = [Finish("r0"), Step(2), Arrive("x", 3), Finish("r2"), Arrive("y", None), Step(3)]
        for seen in host.run([*mixed_arrivals(5), Step(3), *later]):
            actives = [host.pool.requests[row.request] for row in seen.rows]
            found = first_difference(seen.before, fresh_batch(subject, actives, seen), seen.after)
            if found is None or seen.rows[found[0]].discarded:
                continue
            row, token, expected, got, _ = found
            raise Failed(
                f"request {seen.rows[row].request} gets different logits than in a new instance with the same batch",
                {"row": str(row), "step": str(seen.step), "token id": str(token)},
                f"{expected:g}",
                f"{got:g}",
            )
        return None


class Shrinking(V1Host):
    """V1 after failed KV loads: sometimes a list loses its newest tokens, which are then generated again."""

    def _begin(self) -> None:
        if self.step % 4 == 3:
            for active in self.pool.running.values():
                # One more than the token that no `apply` has seen yet.
                del active.request.output_token_ids[-2:]
        super()._begin()


class LP506(LadderCheck):
    """Output lists may shrink.

    After a failed KV load the engine takes tokens back and generates them again, in the same list.

    Why: state that only counts up is ahead from then on. Advice, because vLLM's own min-tokens has the same defect.

    Fix: compute from ``len(output_ids)`` and the ids themselves in every step.
    """

    code, name, hosts, tier = "LP506", "shrinking-outputs", (V1,), "advice"
    requires = ("LP101", "LP301", "LP201", "LP501")

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("tokens are taken back", mixed_arrivals(3), Step(16), Finish("r1"), Step(6))

    def host(self, subject: Subject, max_num_seqs: int) -> V1Host:
        return Shrinking(subject, max_num_seqs)
