"""Small changes of how a failing program is run, each of which tells one cause from all others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch
from lpkit.runtime import Request

from lpkit_conformance.expectation.solo import SIZE
from lpkit_conformance.hosts import Host, PluginError, drive
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.hosts.v2 import V2Driver
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.subject.subject import Subject

BY_ADDRESS: Final = (
    "the row is right while the lists and parameters of finished requests are kept: something is looked up by the `id` "
    "of an object that is gone, which a new one may have"
)
ADDRESS_FIX: Final = (
    "key what you keep by row or slot. To know an object again, keep the object and compare with `is`, not its `id`"
)

TOO_EARLY: Final = "the row depends on what stood in `all_token_ids.gpu` when `add_request` was called"
EARLY_FIX: Final = (
    "read token ids in `apply`, or in `apply_staged_writes`: during `add_request` the buffer holds what an earlier "
    "request left there; only the lengths in `.np` are the new request's"
)


PREFILL: Final = "the row is right if `add_request` finds the length of the prompt in `prefill_len`, without outputs"
PREFILL_FIX: Final = (
    "take `prompt_len` in `add_request`: `prefill_len` also counts the output tokens that a resumed request brings"
)

MakeHost = Callable[[Subject, int], Host]


def keeping_objects(make_host: MakeHost) -> MakeHost:
    """The same host, on which no finished request's objects are let go."""

    def make(subject: Subject, max_num_seqs: int) -> Host:
        host = make_host(subject, max_num_seqs)
        host.pool.keep_objects()
        return host

    return make


def hiding_outputs(make_host: MakeHost) -> MakeHost:
    """The same host of V2, on which ``prefill_len.np`` is the length of the prompt until all is flushed."""

    def make(subject: Subject, max_num_seqs: int) -> Host:
        host = make_host(subject, max_num_seqs)
        assert isinstance(host.driver, V2Driver)
        slots = host.driver.slots
        add, flush, hidden = slots.add, slots.flush, {}

        def add_hiding(request: Request) -> int:
            slot = add(request)
            hidden[slot] = int(slots.prefill_len.np[slot])
            slots.prefill_len.np[slot] = request.prompt_len
            return slot

        def flush_all() -> None:
            for slot, length in hidden.items():
                slots.prefill_len.np[slot] = length
            hidden.clear()
            flush()

        slots.add, slots.flush = add_hiding, flush_all  # type: ignore[method-assign]
        return host

    return make


def declaring_tokens(subject: Subject) -> Subject | None:
    """The same plugin, which declares that it reads token ids; None unless it is one that declares lengths."""
    cls = subject.plugin.cls
    if getattr(cls, "history", "") != "length":
        return None
    body = {"history": "tokens", "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    changed = type(cls)(cls.__name__, (cls,), body)
    return replace(subject, plugin=replace(subject.plugin, cls=changed))


def reads_too_early(subject: Subject, arrived: Arrive) -> bool:
    """Whether a request's first row on V2 depends on what its slot held before its own tokens were flushed."""
    rows = []
    with contextlib.suppress(PluginError):
        for left in range(3, 9, 5):
            driver = drive(subject, SIZE)
            assert isinstance(driver, V2Driver)
            request = make_active(subject, arrived).request
            driver.slots.all_token_ids.gpu.fill_(left)
            for entering, slot in driver.slots.change((), [request]):
                driver.enter(slot, entering.params)
                driver.slots.all_token_ids.gpu.zero_()
            driver.flush()
            rows.append(driver.step(subject.model.rows([(arrived.request, request.total_len)]), [request]))
    return len(rows) > 1 and not torch.equal(*rows)
