"""LP9: rules checked on a real vLLM engine, only with ``lpkit check --engine vllm``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from lpkit_conformance.checks.base import Rule
from lpkit_conformance.explanation import advice
from lpkit_conformance.results import Failed, Finding, NeverActive, Skipped
from lpkit_conformance.vllm_api.runners import V1, V2

if TYPE_CHECKING:
    from lpkit_conformance.checks.engine.evidence import Evidence, RowDifference


class EngineCheck(Rule):
    """A rule that is judged by what an engine answered.

    Attributes:
        step: how its evidence is gathered, for the progress and for a report; empty if other checks gather it.
        lost: the summary if the engine was lost at this step; empty: a sentence with ``step``.
    """

    engine = "vllm"
    hosts: ClassVar[tuple[str, ...]] = (V1, V2)
    requires: ClassVar[tuple[str, ...]] = ("LP901",)
    step: ClassVar[str] = ""
    lost: ClassVar[str] = ""

    @abstractmethod
    def run(self, evidence: Evidence) -> str | None:
        """As on the reference runtime; ``evidence`` is what the engine answered on one runner."""

    def differs(
        self, evidence: Evidence, name: str, difference: RowDifference, summary: str, fix: str = "", kind: str = ""
    ) -> Failed:
        """The failure for a request whose logits are not what they should be.

        Args:
            kind: of :data:`lpkit_conformance.explanation.findings.CAUSES`; by default that of the difference.
        """
        ask = evidence.workload.asks[name]
        uses = name in evidence.workload.users
        where = {
            "request": f"{name} ({'uses the plugin' if uses else 'does not use the plugin'})",
            "extra_args": repr(ask.params.get("extra_args")),
            "temperature": f"{ask.params['temperature']:g}",
            "prompt": f"{len(ask.prompt_token_ids)} tokens",
            "output so far": f"{difference.position} tokens",
            "token id": str(difference.token),
        }
        return Failed(
            Finding(
                f"request {name} {summary}",
                where,
                f"{difference.expected:g}",
                f"{difference.got:g}",
                evidence.workload.operations,
                # A bystander can only have received another request's state.
                advice.cause(kind or (difference.kind if uses or evidence.expected[name].acted else "stale")),
                fix,
            )
        )


class LP901(EngineCheck):
    """A real engine starts with the plugin.

    vLLM checks the class, calls its constructor with a real configuration, and warms up.

    Why: vLLM loads every installed plugin, so one that cannot be constructed keeps every engine of that environment
    from starting, whether it is used or not.

    Fix: derive from ``lpkit.LogitsProcessor``, which has both interfaces; read only documented fields of the
    configuration in the constructor.
    """

    code, name, requires = "LP901", "engine-starts", ()
    step, lost = "starting an engine", "the engine does not start"
    replays = True

    def run(self, evidence: Evidence) -> str | None:
        return None  # an engine that answered has started


class LP902(EngineCheck):
    """In a real engine a request gets the same logits in a batch as alone.

    Mixed batches: arrivals in waves, chunked prompts, preemption, an abort, greedy and sampled requests. Every
    request is also served alone by the same engine, and compared bit for bit at every position: the engine's model
    does not round, and in the batch a sampled request follows the text that it sampled alone: V2 does that itself
    (trace replay), on V1 lpkit replaces the token that was sampled. A request whose case names output writes that.

    Why: a difference changes the answers that users of a server get, often without anyone noticing.

    Fix: run ``lpkit check`` without ``--engine``: it runs the same situations one at a time, and shrinks them.
    """

    code, name, needs_action = "LP902", "engine-crowd", True
    step = "serving requests, alone and mixed"
    replays = True

    def run(self, evidence: Evidence) -> str | None:
        from lpkit_conformance.checks.engine.evidence import Tally, common

        for name, answer in (*evidence.alone.items(), *evidence.mixed.items()):
            if answer.error is not None:
                raise Failed(
                    f"the engine refuses request {name}: {answer.error}",
                    {"extra_args": repr(evidence.workload.asks[name].params.get("extra_args"))},
                    "no exception",
                    answer.error,
                    cause=advice.cause("refused", self.code),
                    fix=advice.fix("refused", self.code),
                )
        tally, left_out = Tally(), 0
        for name, ids in judged(evidence):
            alone, mixed = evidence.alone[name], evidence.mixed[name]
            n = common(alone.token_ids, ids)
            difference = tally.compare(mixed.rows[:n], alone.rows[:n], evidence.expected[name].plain[:n])
            if difference is not None:
                raise self.differs(evidence, name, difference, "got different logits in the batch than alone")
            left_out += len(ids) - n
        if not evidence.acted:
            raise NeverActive
        followed = sum(answer.followed for answer in evidence.mixed.values())
        return "; ".join(
            (
                f"{tally}, of {len(evidence.mixed)} requests",
                *([f"{followed} of them followed a given text"] if followed else []),
                *([f"{left_out} after sampled tokens that differed are left out"] if left_out else []),
            )
        )


class LP903(EngineCheck):
    """In a real engine the plugin does not affect requests that do not use it.

    Next to requests that use the plugin, their processed logits equal those that the model has without the plugin.

    Why: installing a plugin must change only the answers of the requests that use it.

    Fix: forget the state of a row or slot when it is given to another request; edit your own rows only.
    """

    code, name, needs_action = "LP903", "engine-bystanders", True
    replays = True
    requires = ("LP901", "LP902")

    def run(self, evidence: Evidence) -> str | None:
        from lpkit_conformance.checks.engine.evidence import Tally

        tally = Tally()
        others = [item for item in judged(evidence) if item[0] not in evidence.workload.users]
        if any(evidence.expected[name].acted for name, _ in others):
            raise Skipped("the plugin acts on every request")
        for name, _ in others:
            plain = evidence.expected[name].plain
            difference = tally.compare(evidence.mixed[name].rows, plain, plain)
            if difference is not None:
                raise self.differs(
                    evidence, name, difference, "does not use the plugin, but got different logits than without it"
                )
        if not evidence.acted:
            raise NeverActive
        return f"{tally}, of {len(others)} requests"


class LP904(EngineCheck):
    """A real engine and the reference runtime agree on the processed logits.

    The model's own logits, which are known exactly, go through the reference runtime with a new instance for each
    request; the result is what the real engine's mixed batch gave, at every position.

    Why: this shows that what ``lpkit check`` finds without vLLM holds for vLLM.

    Fix: look for what only a real engine has: its configuration, the stages before and after the plugin, the type of
    a buffer. If you find none, the reference runtime may be wrong: please open an issue.
    """

    code, name, needs_action = "LP904", "engine-reference", True
    step, lost = "the reference runtime", "the plugin fails in the reference runtime"
    requires = ("LP901", "LP902", "LP903")

    def run(self, evidence: Evidence) -> str | None:
        from lpkit_conformance.checks.engine.evidence import Tally

        tally = Tally(untouched_exact=False)
        for name, _ in judged(evidence):
            expected = evidence.expected[name]
            difference = tally.compare(evidence.mixed[name].rows, expected.rows, expected.plain)
            if difference is not None:
                raise self.differs(evidence, name, difference, "got different logits than in the reference runtime")
        if not evidence.acted:
            raise NeverActive
        return str(tally)


class LP905(EngineCheck):
    """A real engine refuses bad arguments and goes on serving.

    Each argument that ``validate_params`` refuses is sent to the engine while it serves others.

    Why: a request that is accepted with such an argument, or whose refusal affects others, is an outage.

    Fix: raise ``ValueError`` from a classmethod ``validate_params`` that every instance's class inherits.
    """

    code, name, requires = "LP905", "engine-refuses", ("LP901", "LP902")
    step = "sending bad arguments"

    def run(self, evidence: Evidence) -> str | None:
        from lpkit_conformance.checks.engine.evidence import Tally, common

        tally = Tally()
        for text, ask in evidence.workload.bad:
            if evidence.refused[ask.request_id].error is None:
                raise Failed(
                    f"the engine accepts {text}, which validate_params refuses",
                    {"extra_args": repr(ask.params.get("extra_args"))},
                    "ValueError",
                    f"{len(evidence.refused[ask.request_id].token_ids)} tokens",
                )
        for name, answer in evidence.company.items():
            if name in evidence.workload.unjudged or name not in evidence.expected:
                continue
            alone = evidence.alone[name]
            n = common(alone.token_ids, answer.token_ids)
            n = min(n, common(alone.token_ids, evidence.mixed[name].token_ids))
            difference = tally.compare(answer.rows[:n], alone.rows[:n], evidence.expected[name].plain[:n])
            if difference is not None:
                fix = advice.fix("refusals", self.code)
                summary = "got different logits while other requests were refused"
                raise self.differs(evidence, name, difference, summary, fix)
        if not evidence.workload.bad:
            raise Skipped("validate_params refuses none of the odd values")
        return f"{len(evidence.workload.bad)} bad arguments"


class LP906(EngineCheck):
    """In a real engine drafts do not change a request's logits.

    With speculative decoding (drafts looked up in the prompt) a request has several rows in a step. Their logits equal
    those that the request gets alone, in an engine without drafts, where it writes the same text.

    Why: a processor that takes its length or history from the request instead of from the row edits drafted tokens by
    the wrong position, and answers change with the guesses of a drafter.

    Fix: read lengths and tokens of each row (`rows.output_len`, `rows.tokens`; in V2's own interface
    `ctx.expanded_local_pos` and `ctx.input_ids`), or refuse drafts with `ValueError` in the constructor.
    """

    code, name, hosts = "LP906", "engine-drafts", (V2,)
    requires = ("LP901", "LP902")
    step = "serving requests with drafts"

    def run(self, evidence: Evidence) -> str | None:
        from lpkit_conformance.checks.engine.evidence import Tally, common

        if not evidence.workload.drafted:
            raise Skipped("the requests are those of a trace or of a saved failure")
        if evidence.undrafted:
            raise Skipped(evidence.undrafted)
        if not evidence.drafts:
            raise Skipped("the engine drafted no token")
        tally = Tally()
        for name, answer in evidence.drafted.items():
            if answer.rows is None:
                continue  # vLLM refuses some arguments next to drafts
            alone = evidence.alone[name]
            n = common(alone.token_ids, answer.token_ids)
            difference = tally.compare(answer.rows[:n], alone.rows[:n], evidence.expected[name].plain[:n])
            if difference is not None:
                summary = "got different logits with drafts than without"
                raise self.differs(evidence, name, difference, summary, kind="drafts")
        return f"{tally}, of {len(evidence.drafted)} requests; {evidence.drafts} tokens were drafted"


def judged(evidence: Evidence) -> Iterator[tuple[str, list[int]]]:
    """The requests to compare, with their tokens."""
    for name, ids in evidence.tokens().items():
        if name in evidence.mixed and name not in evidence.workload.unjudged:
            yield name, ids
