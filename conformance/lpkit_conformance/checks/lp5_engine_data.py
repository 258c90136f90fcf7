"""LP5: data that the engine shares with its processors is read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import mixed_arrivals
from lpkit_conformance.checks.lazily import Driver, Subject, findings, parts, torch
from lpkit_conformance.programs.generate import Finish, Step
from lpkit_conformance.results import Failed
from lpkit_conformance.settings.hosts import RUNNER_HOSTS


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
        with host.driver.watched(partial(_compare, subject, host.driver)):
            for _ in host.run([*mixed_arrivals(6), Step(2), *fewer, *mixed_arrivals(2, "s"), Step(2)]):
                pass
        return None


@contextmanager
def _compare(subject: Subject, driver: Driver, method: str, args: tuple[Any, ...]) -> Iterator[None]:
    """A call that leaves what other processors read as it was."""
    before = driver.shared(method, args) if method in driver.shares else {}
    yield
    after = driver.shared(method, args) if before else {}
    for name, value in before.items():
        if not same(value, after[name]):
            raise Failed(
                f"{method} changed {name}, which other processors read too",
                {"method": method},
                shown(value),
                shown(after[name]),
                fix=f"change a copy of {name}",
                location=findings.at_fault(subject, method),
            )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    # Lists of tuples that hold live lists: the items must be the same objects.
    return len(one) == len(other) and all(
        a is b or (type(a) is int and a == b) for a, b in zip(one, other, strict=True)
    )


def shown(value: Any) -> str:
    return str(value.tolist() if isinstance(value, torch.Tensor | np.ndarray) else value)[:200]
