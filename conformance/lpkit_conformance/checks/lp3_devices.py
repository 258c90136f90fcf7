"""LP3: tensors are on the device of the logits; checked without a GPU, on torch's meta device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.checks.ladder import mixed_arrivals, observed
from lpkit_conformance.checks.lazily import (
    Subject,
    calls,
    compare,
    devices,
    dispatch,
    edits,
    findings,
    host_reads,
    meta_kernels,
    parts,
    runtime,
    stand,
    stub,
    torch,
)
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Step
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.vllm_api.runners import V1


@contextmanager
def on_meta(subject: Subject) -> Iterator[tuple[Subject, host_reads.ReadsZeros]]:
    """Run the plugin on torch's meta device, where the host reads zeros."""
    subject.plugin.restore_modules()  # a cache may hold tensors of this device: in an engine there is no other
    reads = host_reads.ReadsZeros()
    try:
        with stub.buffers_on(meta_kernels.META), dispatch.without_compiler(), reads:
            yield subject.having(device=meta_kernels.META), reads
    finally:
        subject.plugin.restore_modules()


class LP308(Check):
    """Tensors are on the device of the logits.

    A processor creates its tensors on the device it is given. lpkit passes torch's meta device and refuses ``numpy()``
    and operations that mix it with the CPU, as a GPU does. The plugin does not edit a copy of the logits on the host.
    No operation writes a token's logit twice with different values: a GPU keeps any of them.

    Why: on a CPU every tensor is on the right device. On a GPU the engine crashes in its first step, or edits of a
    copy on the host are lost.

    Fix: pass `device=` wherever you create a tensor: the constructor's `device` on V1, `req_states.device` on V2.
    """

    code, name, requires = "LP308", "device-discipline", ("LP101", "LP301", "LP602")

    def run(self, subject: Subject) -> str | None:
        with edits.NoteRepeats(subject.setup.vocab_size) as repeats:
            observed(subject, [*mixed_arrivals(5), Step(6)])
        if repeats.line:
            raise Failed(
                "one operation writes a token's logit twice, with different values",
                {"token id": str(repeats.token)},
                "one value for each token",
                " and ".join(f"{value:g}" for value in repeats.values),
                cause=advice.cause("repeated", self.code),
                fix=advice.fix("repeated", self.code),
                location=repeats.line,
            )
        requests = self._requests(subject)
        other: calls.PluginError | None = None
        try:
            refuses = devices.RefuseMixedDevices()  # type: ignore[no-untyped-call]
            with on_meta(subject) as (away, reads), refuses:
                driver = parts.drive(away)
                driver.begin(entering=requests)
                logits = torch.empty(len(requests), subject.setup.vocab_size, device=meta_kernels.META)
                driver.edit(logits, *driver.context(requests))
        except calls.PluginError as error:
            if isinstance(error.__cause__, devices.MixedDevices):
                raise Failed(
                    f"{error.method} {error.__cause__.what}",
                    {"method": error.method},
                    "all tensors on the device of the logits",
                    error.summary,
                    location=error.location or findings.at_fault(subject, error.method),
                ) from error
            other = error
        # Reading a value mixes no devices; LP703 counts what makes the host wait.
        lost = self._lost_on_the_host(subject) if reads.read or other else ""
        if lost:
            raise Failed(
                "apply edits a copy of the logits on the host",
                {"method": "apply"},
                "the edit in what apply returns",
                f"on a GPU {lost} would be lost; on a CPU the copy shares the memory of the logits",
                fix=advice.fix("host", self.code),
                location=findings.at_fault(subject, "apply"),
            )
        if other:
            raise Skipped(f"the plugin reads values on the host ({other.method})")
        return None

    def _lost_on_the_host(self, subject: Subject) -> str:
        """Describe the edits that are lost if `Tensor.cpu` copies, as it does on a GPU; empty if they stay."""
        modes = nullcontext(), nullcontext(), host_reads.HostCopies()
        plain, again, copied = (self._edited(subject, mode) for mode in modes)
        if bool(compare.unequal(plain, again).any()):  # not reproducible: LP601's to say
            return ""
        lost = compare.unequal(plain, copied)
        return f"{int(lost.sum())} edited logits" if bool(lost.any()) else ""

    def _edited(self, subject: Subject, mode: AbstractContextManager[Any]) -> torch.Tensor:
        driver, requests = parts.drive(subject), self._requests(subject)
        driver.begin(entering=requests)
        context = driver.context(requests)
        logits = subject.model.rows([(request.request_id, request.total_len) for request in requests])
        with mode:
            result: torch.Tensor = driver.edit(logits.clone(), *context)
        return result

    @staticmethod
    def _requests(subject: Subject) -> list[runtime.Request]:
        requests = []
        for name, variant, count in (("a", 0, 1), ("b", None, 0), ("c", 1, 2)):
            request = runtime.Request(name, subject.params(variant), subject.model.prompt(name, 5, variant))
            request.output_token_ids += stand.generated(subject, name, variant, request, count)
            requests.append(request)
        return requests


class LP309(Check):
    """An empty batch does not crash.

    `apply` may be given logits of shape ``[0, vocab]``, for example on a rank that owns none of the rows.

    Why: `max()` of an empty tensor raises an exception, which stops the engine.

    Fix: return immediately when `logits.shape[0]` is 0; reduce along the vocabulary only.
    """

    code, name, tier, hosts = "LP309", "empty-logits", "advice", (V1,)
    option = "sampling in shards"
    prevented = "they call `process`, `edit` or a callable with at least one row."
    requires, own_exceptions = ("LP101", "LP301"), EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        driver = parts.drive(subject)
        driver.begin()
        driver.edit(torch.empty(0, subject.setup.vocab_size, device=subject.setup.device))
        return None
