"""LP3: tensors are on the device of the logits; checked without a GPU, on torch's meta device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lpkit.runtime import Request
from torch.utils._pytree import tree_leaves

from lpkit_conformance.activity.stand import generated
from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.expectation.compare import unequal
from lpkit_conformance.explanation.findings import at_fault
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.instruments.dispatch import Watch, without_compiler
from lpkit_conformance.instruments.host_reads import HostCopies, ReadsZeros
from lpkit_conformance.instruments.meta_kernels import META
from lpkit_conformance.results import Failed, Skipped
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.runners import V1
from lpkit_conformance.vllm_api.stub import buffers_on

MAY_MIX = frozenset({"copy_", "_to_copy", "_copy_from", "index", "index_put", "index_put_", "_index_put_impl_"})
"""Operations that accept operands on both the CPU and a GPU: copies, and indexing with CPU indices."""


class MixedDevices(RuntimeError):
    """Error when the operands of one operation are on different devices."""


class RefuseMixedDevices(Watch):  # type: ignore[no-untyped-call]
    """Raises where a GPU would; the meta device itself is lenient."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name not in MAY_MIX:
            tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
            # A CPU scalar goes with every device.
            devices = {item.device.type for item in tensors if item.ndim or item.device.type != "cpu"}
            if len(devices) > 1:
                raise MixedDevices(f"{name} got tensors on the CPU and on the device of the logits")
        return func(*args, **kwargs)


class LP308(Check):
    """Tensors are on the device of the logits.

    A processor creates its tensors on the device it is given. lpkit passes torch's meta device and refuses operations
    that mix it with the CPU, as a GPU does. The plugin does not edit a copy of the logits on the host.

    Why: on a CPU every tensor is on the right device. On a GPU the engine crashes in its first step, or edits of a
    copy on the host are lost.

    Fix: pass `device=` wherever you create a tensor: the constructor's `device` on V1, `req_states.device` on V2.
    """

    code, name, requires = "LP308", "device-discipline", ("LP101", "LP301", "LP602")

    def run(self, subject: Subject) -> str | None:
        away = subject.having(device=META)
        requests = self._requests(subject)
        subject.plugin.restore_modules()  # a cache may hold tensors of this device: in an engine there is no other
        reads = ReadsZeros()
        other: PluginError | None = None
        try:
            with buffers_on(META), without_compiler(), RefuseMixedDevices(), reads:  # type: ignore[no-untyped-call]
                self._one_step(away, requests)
        except PluginError as error:
            if isinstance(error.__cause__, MixedDevices):
                raise Failed(
                    f"{error.method} mixes tensors of different devices",
                    {"method": error.method},
                    "all tensors on the device of the logits",
                    error.summary,
                    location=error.location or at_fault(subject, error.method),
                ) from error
            other = error
        finally:
            subject.plugin.restore_modules()
        # Reading a value mixes no devices; LP703 counts what makes the host wait.
        lost = self._lost_on_the_host(subject) if reads.read or other else ""
        if lost:
            raise Failed(
                "apply edits a copy of the logits on the host",
                {"method": "apply"},
                "the edit in what apply returns",
                f"on a GPU {lost} would be lost; on a CPU the copy shares the memory of the logits",
                fix="edit `logits` itself, or return the copy on its device: `.to(logits.device)`",
                location=at_fault(subject, "apply"),
            )
        if other:
            raise Skipped(f"the plugin reads values on the host ({other.method})")
        return None

    def _lost_on_the_host(self, subject: Subject) -> str:
        """Describe the edits that are lost if `Tensor.cpu` copies, as it does on a GPU; empty if they stay."""
        plain, again, copied = (self._edited(subject, mode) for mode in (nullcontext(), nullcontext(), HostCopies()))
        if bool(unequal(plain, again).any()):  # not reproducible: LP601's to say
            return ""
        lost = unequal(plain, copied)
        return f"{int(lost.sum())} edited logits" if bool(lost.any()) else ""

    def _edited(self, subject: Subject, mode: AbstractContextManager[Any]) -> torch.Tensor:
        driver, requests = drive(subject), self._requests(subject)
        driver.begin(entering=requests)
        context = driver.context(requests)
        logits = subject.model.rows([(request.request_id, request.total_len) for request in requests])
        with mode:
            result: torch.Tensor = driver.edit(logits.clone(), *context)
        return result

    @staticmethod
    def _one_step(subject: Subject, requests: list[Request]) -> None:
        driver = drive(subject)
        driver.begin(entering=requests)
        driver.edit(torch.empty(len(requests), subject.setup.vocab_size, device=META), *driver.context(requests))

    @staticmethod
    def _requests(subject: Subject) -> list[Request]:
        found = []
        for name, variant, count in (("a", 0, 1), ("b", None, 0), ("c", 1, 2)):
            request = Request(name, subject.params(variant), subject.model.prompt(name, 5, variant))
            request.output_token_ids += generated(subject, name, variant, request, count)
            found.append(request)
        return found


class LP309(Check):
    """An empty batch does not crash.

    `apply` may be given logits of shape ``[0, vocab]``, for example on a rank that owns none of the rows.

    Why: `max()` of an empty tensor raises an exception, which stops the engine.

    Fix: return immediately when `logits.shape[0]` is 0; reduce along the vocabulary only.
    """

    code, name, tier, hosts = "LP309", "empty-logits", "advice", (V1,)
    requires, own_exceptions = ("LP101", "LP301"), EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        driver = drive(subject)
        driver.begin()
        driver.edit(torch.empty(0, subject.setup.vocab_size, device=subject.setup.device))
        return None
