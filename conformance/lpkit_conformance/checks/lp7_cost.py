"""LP7: per-step cost. Advice: the suite counts operations, it does not time them."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from unittest import mock

from lpkit_conformance.activity.stand import Standing, stand_after
from lpkit_conformance.checks.base import Check
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.instruments.host_reads import HostCopies
from lpkit_conformance.instruments.operations import SYNCS, CountOperations
from lpkit_conformance.oracle.verify import default_host
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.results import Failed, Skipped


def standing_of(subject: PluginUnderTest, requests: int) -> Standing:
    """That many requests that use the plugin, some steps into their run."""
    ops: list[Op] = [Arrive(f"r{i}", i % 4) for i in range(requests)]
    return stand_after(subject, ops)


def operations_at(standing: Standing) -> Counter[str]:
    """Operations of one ``apply``."""
    with CountOperations() as counter:
        standing.again(standing.logits)
    found: Counter[str] = counter.counts
    return found


class CostCheck(Check):
    """Counts what ``apply`` does."""

    requires = ("LP101", "LP301")
    tier = "advice"


class LP701(CostCheck):
    """The number of operations does not depend on the batch size.

    ``apply`` dispatches as many tensor operations for eight requests as for two.

    Why: a Python loop over rows launches kernels one by one; at 256 requests the GPU waits for the host.

    Fix: gather per-row values into a tensor and compute on all rows at once.
    """

    code, name = "LP701", "no-per-row-operations"

    def run(self, subject: PluginUnderTest) -> str | None:
        few, many = (operations_at(standing_of(subject, n)).total() for n in (2, 8))
        slope = (many - few) / 6
        if slope >= 1:
            summary = "apply launches operations for each row"
            raise Failed(summary, {}, "the same number for 2 and for 8 rows", f"{few} and {many}")
        return f"{many} operations"


class LP702(CostCheck):
    """``apply`` does no work for a batch that does not use the plugin.

    It returns the tensor it was given, without a tensor operation.

    Why: every installed plugin is in the path of every request of the server.

    Fix: count on the host which requests use the plugin, and return ``logits`` at once when none in the batch does. On
    V2 return False from ``add_request``, and do not rely on it: another request's temperature or penalty opens
    ``apply`` for all.
    """

    code, name = "LP702", "idle-is-free"

    def run(self, subject: PluginUnderTest) -> str | None:
        try:
            standing = stand_after(subject, [Arrive(f"r{i}", None) for i in range(4)])
        except Skipped:
            return "apply is not called"
        always = standing.acts or (subject.acted and not subject.case.fields)
        count = operations_at(standing).total()
        if count and always:
            raise Skipped("the plugin acts on every request")
        if count:
            summary = "apply does work for a batch that does not use the plugin"
            raise Failed(summary, {}, "0 operations", f"{count} operations")
        return None


class LP703(CostCheck):
    """``apply`` does not wait for the device.

    No ``.item()``, ``.tolist()``, ``.cpu()``, ``nonzero()`` or boolean indexing.

    Why: each makes the host wait until the GPU has caught up, in every step.

    Fix: keep lengths and flags on the host, and use ``torch.where`` or index tensors of known size.
    """

    code, name = "LP703", "no-host-syncs"

    def run(self, subject: PluginUnderTest) -> str | None:
        standing = standing_of(subject, 4)
        with HostCopies() as copies:
            counts = operations_at(standing)
        syncs: Counter[str] = Counter(copies.counts)
        for name, called in SYNCS.items():
            syncs[called] += counts[name]
        if syncs.total():
            got = ", ".join(f"{name} x{n}" for name, n in sorted(syncs.items()) if n)
            raise Failed("apply makes the host wait for the device", {}, "no such operation", got)
        return None


QUIET_STEPS = 4
"""That are watched for what is logged."""


class LP704(CostCheck):
    """A step writes nothing to the log.

    Once its requests have been told of, a batch that only generates leads to no log record and no printed line.

    Why: a server runs thousands of steps a second; its log fills up with what the engine already counts, or with
    users' tokens.

    Fix: log once, when a request or a configuration is unusual; at debug level otherwise.
    """

    code, name = "LP704", "quiet-steps"

    def run(self, subject: PluginUnderTest) -> str | None:
        host = default_host(subject, subject.max_num_seqs)
        for _ in host.run([*(Arrive(f"r{i}", i % 4) for i in range(4)), Step(2)]):
            pass
        with written() as said:
            for _ in host.run([Step(QUIET_STEPS)]):
                pass
        if len(said) >= QUIET_STEPS:
            summary = "the plugin writes to the log in every step"
            raise Failed(
                summary, {"steps": str(QUIET_STEPS)}, "nothing", f"{len(said)} records, the first by {said[0]}"
            )
        return None


@contextmanager
def written() -> Iterator[list[str]]:
    """Who writes log records and lines in the meantime, which go nowhere."""
    said: list[str] = []

    class Printed(io.StringIO):
        def write(self, text: str) -> int:
            said.extend(["print"] * text.count("\n"))
            return len(text)

    def note(logger: logging.Logger, record: logging.LogRecord) -> None:
        said.append(f"logger {logger.name!r} at level {record.levelname}")

    with mock.patch.object(logging.Logger, "handle", note), redirect_stdout(Printed()), redirect_stderr(Printed()):
        yield said
