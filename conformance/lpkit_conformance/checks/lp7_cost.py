"""LP7: per-step cost. Advice: the suite counts operations, it does not time them."""

from __future__ import annotations

import builtins
import io
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any
from unittest import mock

from lpkit_conformance.checks.base import Check
from lpkit_conformance.checks.ladder import host_after
from lpkit_conformance.checks.lazily import (
    Subject,
    acting,
    calls,
    edits,
    host_reads,
    meta_kernels,
    operations,
    parts,
    stand,
    torch,
    waits,
)
from lpkit_conformance.checks.lp3_devices import on_meta
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.results import Failed, Skipped


def standing_of(subject: Subject, requests: int) -> stand.Standing:
    """Return a batch of this many requests that use the plugin, some steps into their run."""
    ops: list[Op] = [Arrive(f"r{i}", i % 4) for i in range(requests)]
    return stand.stand_after(subject, ops)


def operations_at(standing: stand.Standing) -> Counter[str]:
    """Count the operations of one ``apply``."""
    with operations.CountOperations() as counter:
        standing.again(standing.logits)
    counts: Counter[str] = counter.counts
    return counts


class CostCheck(Check):
    """Counts what ``apply`` does."""

    requires = ("LP101", "LP301")
    tier = "advice"


def sends_of(subject: Subject, requests: int) -> list[waits.Wait]:
    """Count copies to the device that wait, in one ``apply`` after a step of this many requests that use the plugin."""
    batch = [stand.Stance(i % 4, f"r{i}", 1).request(subject, f"r{i}") for i in range(requests)]
    logits = torch.empty(requests, subject.setup.vocab_size, device=meta_kernels.META)
    sends = waits.NoteSends()
    # A plugin may do something else wrong, or need what the meta device does not have.
    with suppress(calls.PluginError), torch.inference_mode(), on_meta(subject) as (away, _):
        driver = parts.drive(away)
        driver.begin(entering=batch)
        driver.edit(logits, *driver.context(batch))
        for i, request in enumerate(batch):
            driver.commit(request, [subject.model.emit(f"r{i}", i % 4, 1)])
        driver.begin()
        context = driver.context(batch)
        with sends:
            driver.edit(logits, *context)
    return sends.waits


class LP701(CostCheck):
    """The number of operations does not depend on the batch size.

    ``apply`` dispatches as many tensor operations for eight requests as for four with the same arguments.

    Why: a Python loop over rows launches kernels one by one; at 256 requests the GPU waits for the host.

    Fix: gather per-row values into a tensor and compute on all rows at once.
    """

    code, name = "LP701", "no-per-row-operations"

    def run(self, subject: Subject) -> str | None:
        # Four requests have as many different arguments as eight, so work for each set of arguments is allowed.
        few, many = (operations_at(standing_of(subject, n)).total() for n in (4, 8))
        if many - few >= 4:
            summary = "apply launches operations for each row"
            raise Failed(summary, {}, "the same number for 4 and for 8 rows", f"{few} and {many}")
        return f"{many} operations"


class LP702(CostCheck):
    """``apply`` does no work for a batch that does not use the plugin.

    It returns the tensor it was given, without a tensor operation.

    Why: every installed plugin is in the path of every request of the server.

    Fix: count on the host which requests use the plugin, and return ``logits`` immediately when no request in the batch
    does. On V2 return False from ``add_request``, but do not rely on it: another request's temperature or penalty opens
    ``apply`` for all.
    """

    code, name = "LP702", "idle-is-free"

    def run(self, subject: Subject) -> str | None:
        try:
            standing = stand.stand_after(subject, [Arrive(f"r{i}", None) for i in range(4)])
        except Skipped:
            return "apply is not called"
        always = standing.acts or (not subject.setup.case.fields and acting.activity(subject).acts)
        count = operations_at(standing).total()
        if count and always:
            raise Skipped("the plugin acts on every request")
        if count:
            summary = "apply does work for a batch that does not use the plugin"
            with edits.NoteEdits(standing.logits, 0) as notes:
                standing.again(standing.logits)
            raise Failed(summary, {}, "0 operations", f"{count} operations", location=notes.line)
        return None


class LP703(CostCheck):
    """``apply`` does not wait for the device.

    It uses no ``.item()``, ``.tolist()``, ``.cpu()``, ``nonzero()`` or boolean indexing. In a step in which no request
    arrives or leaves, no copy to the device waits: ``torch.tensor(values, device=...)``, ``.to(device)``, indexing by
    a list or by a tensor on the host. lpkit detects copies with torch's meta device.

    Why: each makes the host wait until the GPU has caught up, in every step, including the model's own work.

    Fix: keep lengths and flags on the host, and use ``torch.where`` or index tensors of known size. Make tensors when a
    request arrives or moves, and keep them. Send values that change in every step from pinned memory, with
    ``non_blocking=True``.
    """

    code, name = "LP703", "no-host-syncs"

    def run(self, subject: Subject) -> str | None:
        standing = standing_of(subject, 4)
        with host_reads.HostCopies() as copies, waits.NoteReads() as reads:
            standing.again(standing.logits)
        noted = [*copies.waits, *reads.waits] or sends_of(subject, 4)
        if noted:
            got = ", ".join(f"{name} x{n}" for name, n in sorted(Counter(name for name, _ in noted).items()))
            location = next((line for _, line in noted if line), "")
            raise Failed("apply makes the host wait for the device", {}, "no such operation", got, location=location)
        return None


QUIET_STEPS = 4
"""Steps in which log output is recorded."""


class LP704(CostCheck):
    """A step writes nothing to the log or to a file.

    After its requests were added, a batch that only generates causes no log record, no printed line and no write to a
    file. Log records and printed lines are advice, as the operator can turn them off. A file that is opened for writing
    in each step fails.

    Why: a server runs thousands of steps a second; its log fills up with counts that the engine already has, or with
    users' tokens. Each step of all requests waits for the file, and a full disk raises in the engine.

    Fix: log once, when a request or a configuration is unusual; at debug level otherwise.
    """

    code, name = "LP704", "quiet-steps"

    def run(self, subject: Subject) -> str | None:
        host = host_after(subject, [*(Arrive(f"r{i}", i % 4) for i in range(4)), Step(2)])
        with written() as said:
            for _ in host.run([Step(QUIET_STEPS)]):
                pass
        files = [record for record in said if record[0].startswith("open(")]
        for records, summary, key in ((files, "opens a file for writing", "file"), (said, "writes", "")):
            if len(records) >= QUIET_STEPS:
                first, line = records[0]
                raise Failed(
                    f"the plugin {summary} in every step",
                    {"steps": str(QUIET_STEPS)},
                    "nothing",
                    f"{len(records)} records, the first by {first}",
                    fix=advice.fix(key, self.code) if key else "",
                    location=line,
                    advice=False if key else None,
                )
        return None


@contextmanager
def written() -> Iterator[list[tuple[str, str]]]:
    """Record log records, printed lines and files opened for writing, each with its line; suppress the first two."""
    said: list[tuple[str, str]] = []
    opened = io.open

    class Printed(io.StringIO):
        def write(self, text: str) -> int:
            said.extend([("print", edits.author_line())] * text.count("\n"))
            return len(text)

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not mode.startswith("r"):
            said.append((f"open({str(file)!r}, {mode!r})", edits.author_line()))
        return opened(file, mode, *args, **kwargs)

    def note(logger: logging.Logger, record: logging.LogRecord) -> None:
        said.append((f"logger {logger.name!r} at level {record.levelname}", edits.author_line()))

    with ExitStack() as stack:
        for owner, name, value in ((logging.Logger, "handle", note), (io, "open", open_), (builtins, "open", open_)):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(redirect_stdout(Printed()))
        stack.enter_context(redirect_stderr(Printed()))
        yield said
