"""LP5: data that the engine shares with its processors is read-only."""

from __future__ import annotations

from typing import Any

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.checks.lazily import Subject, engine_data, parts
from lpkit_conformance.programs.generate import Finish, Preempt, Resume, Step
from lpkit_conformance.settings.hosts import RUNNER_HOSTS
from lpkit_conformance.vllm_api.runners import V1


class LP502(Check):
    """The plugin does not modify the engine's token lists.

    Prompt and output lists belong to the engine, also those of a request that comes back after a preemption. LP221
    tests long lists.

    Why: an appended or popped token changes the engine's record of the generated text.

    Fix: copy before you change.
    """

    code, name, hosts, requires = "LP502", "leaves-lists", (V1,), ("LP101", "LP301")

    def run(self, subject: Subject) -> str | None:
        host = parts.default_host(subject, 8)
        resumed = [Preempt("r1"), Preempt("r3"), Step(2), Resume("r1"), Resume("r3", new_list=True)]
        with host.driver.watched(engine_data.leaving_lists(subject, host.pool.all_requests)):
            for _ in host.run([*mixed_arrivals(4), Step(12), Finish("r0"), *resumed, Step(6)]):
                pass
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
        host = parts.default_host(subject, 8)
        fewer = [Finish("r0"), Finish("r4"), Finish("r5"), Step(2)]
        driver = host.driver

        def shared(method: str, args: tuple[Any, ...]) -> dict[str, Any]:
            return driver.shared(method, args) if method in driver.shares else {}

        report = "{method} changed {name}, which other processors read too"
        with driver.watched(engine_data.leaving(subject, shared, report, "change a copy of {name}")):
            for _ in host.run([*mixed_arrivals(6), Step(2), *fewer, *mixed_arrivals(2, "s"), Step(2)]):
                pass
        return None
