"""Changes of a failing run, each of which isolates one cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import setitem
from typing import Any

import lpkit
import torch
from lpkit.runtime import Request
from lpkit.runtime.engine.v1_async import PLACEHOLDER
from lpkit.v1 import BatchUpdate
from lpkit.v2 import LogitsContext

from lpkit_conformance.hosts import Host
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.hosts.v2 import V2Host, keep_buffers
from lpkit_conformance.instruments.edits import author_line
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Speculate, Step, Swap
from lpkit_conformance.subject.subject import Subject

MakeHost = Callable[[Subject, int], Host]
# -- of the subject ----------------------------------------------------------------------------------------------


def declaring_tokens(subject: Subject) -> list[Subject]:
    """Return the same plugin, declaring that it reads token ids; empty unless it declares lengths."""
    return [having(subject, history="tokens")] if getattr(subject.plugin.cls, "history", "") == "length" else []


def without_prompts(subject: Subject, lines: list[str]) -> Subject:
    """Return the same portable processor, whose ``admit`` finds no prompt, and collects in ``lines`` who reads it."""

    class WithoutPrompt(lpkit.Request[Any]):
        @property
        def prompt_token_ids(self) -> None:
            lines.append(author_line())

        @prompt_token_ids.setter
        def prompt_token_ids(self, ids: list[int] | None) -> None:
            pass

    admit = subject.plugin.cls.admit
    names = [item.name for item in fields(lpkit.Request)]

    def admit_without(processor: Any, request: Any) -> Any:
        return admit(processor, WithoutPrompt(*(getattr(request, name) for name in names)))

    return having(subject, admit=admit_without)


def having(subject: Subject, **attributes: Any) -> Subject:
    """Return the same plugin, whose class has other attributes."""
    cls = subject.plugin.cls
    body = {**attributes, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return replace(subject, plugin=replace(subject.plugin, cls=type(cls)(cls.__name__, (cls,), body)))


# -- of the host -------------------------------------------------------------------------------------------------


def changed(make_host: MakeHost, change: Callable[[Any], object]) -> MakeHost:
    """Return the same host, which is changed as soon as it is made."""

    def make(subject: Subject, max_num_seqs: int) -> Host:
        host = make_host(subject, max_num_seqs)
        change(host)
        return host

    return make


def keeping_objects(make_host: MakeHost) -> MakeHost:
    """Return the same host, which keeps the objects of finished requests."""
    return changed(make_host, lambda host: host.pool.keep_objects())


def renewed(make_host: MakeHost, step: int) -> MakeHost:
    """Return the same host, on which ``apply`` of this step is that of a new instance with the step's requests."""

    def change(host: Host) -> None:
        call = host.driver.call

        def call_changed(method: str, *args: Any) -> Any:
            if method != "apply" or host.step != step:
                return call(method, *args)
            with host.subject.as_imported():
                driver = host.anew()
                return driver.call(method, *args) if driver else call(method, *args)

        host.driver.call = call_changed  # type: ignore[method-assign]

    return changed(make_host, change)


def with_first_lists(make_host: MakeHost) -> MakeHost:
    """Return the same host of V1, on which all Adds of a request bring a copy of its first Add's outputs."""
    first: dict[str, list[int]] = {}
    return _giving(make_host, lambda request, outputs: list(first.setdefault(request, list(outputs))), grows=False)


def noting_reads(make_host: MakeHost, reads: list[tuple[str, bool]]) -> MakeHost:
    """Return the same host of V1, whose output lists note in ``reads`` who reads them, and True if they end with -1."""

    def noting(name: str) -> Callable[..., Any]:
        def read(outputs: list[int], *args: Any) -> Any:
            reads.append((author_line(), list.__getitem__(outputs, slice(-1, None)) == [PLACEHOLDER]))
            return args[0] + list(outputs) if name == "__radd__" else getattr(list, name)(outputs, *args)

        return read

    names = "__len__, __iter__, __getitem__, __contains__, __reversed__, __add__, __radd__, count, index, copy"
    noted = type("Outputs", (list,), {name: noting(name) for name in names.split(", ")})
    return _giving(make_host, lambda request, outputs: noted(outputs))


def _giving(make_host: MakeHost, made: Callable[[str, list[int]], list[int]], grows: bool = True) -> MakeHost:
    """Return the same host of V1, whose Adds bring other output lists; ``grows``: the engine appends to these."""

    def change(host: V1Host) -> None:
        begin = host.driver.begin

        def begin_with_others(leaving: Any = (), entering: Iterable[Request] = (), swaps: Any = ()) -> None:
            entering = list(entering)
            lists = [request.output_token_ids for request in entering]
            for request in entering:
                request.output_token_ids = made(request.request_id, request.output_token_ids)
            begin(leaving, entering, swaps)
            for request, outputs in zip(entering, lists if not grows else (), strict=not grows):
                request.output_token_ids = outputs

        host.driver.begin = begin_with_others  # type: ignore[method-assign]

    return changed(make_host, change)


def with_empty_updates(make_host: MakeHost) -> MakeHost:
    """Return the same host of V1, which reports an empty update where the batch does not change."""

    def change(host: V1Host) -> None:
        call = host.driver.update

        def update(update: BatchUpdate | None) -> None:
            call(BatchUpdate(len(host.driver.batch.requests), (), (), ()) if update is None else update)

        host.driver.update = update  # type: ignore[method-assign]

    return changed(make_host, change)


def sparing_buffers(make_host: MakeHost) -> MakeHost:
    """Return the same host of V2, which leaves tensors of lengths as they are when it replaces them."""

    def change(host: V2Host) -> None:
        host.driver.slots.prompt_len.poison = host.driver.slots.prefill_len.poison = False

    return changed(make_host, change)


def keeping_buffers(make_host: MakeHost) -> MakeHost:
    """Return the same host of V2, which writes lengths into the tensors that are there, and never replaces them."""
    return changed(make_host, lambda host: keep_buffers(host.driver.slots))


def in_order(make_host: MakeHost, first: int = 0) -> MakeHost:
    """Return the same host of V2 with rows in the order of arrival, and the slots in this order, too, from one on."""

    def change(host: V2Host) -> None:
        host.manner = replace(host.manner, shuffle=False)
        free = host.driver.slots._free
        free[:] = [*reversed(free[first:] + free[:first])]

    return changed(make_host, change)


def with_rows_mapped(make_host: MakeHost) -> MakeHost:
    """Return the same host of V2, whose ``idx_mapping`` and lengths have an entry for each row."""

    def change(host: V2Host) -> None:
        apply_to = host.driver.apply_to

        def apply_mapped(before: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
            rows, lengths = ctx.expanded_idx_mapping, (ctx.pos + 1).cpu().numpy()
            by_row = replace(ctx, idx_mapping=rows, idx_mapping_np=rows.cpu().numpy(), seq_lens_upper_bound_np=lengths)
            return apply_to(before, by_row)

        host.driver.apply_to = apply_mapped  # type: ignore[method-assign]

    return changed(make_host, change)


def _while_applying(
    make_host: MakeHost, buffer: str, change: Callable[[torch.Tensor, LogitsContext], object]
) -> MakeHost:
    """Return the same host of V2, whose buffer of this name is changed in each ``apply``, and put back behind it."""

    def change_host(host: V2Host) -> None:
        apply_to, values = host.driver.apply_to, getattr(host.driver.slots, buffer).gpu

        def apply_changed(before: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
            left = values.clone()
            change(values, ctx)
            try:
                return apply_to(before, ctx)
            finally:
                values.copy_(left)

        host.driver.apply_to = apply_changed  # type: ignore[method-assign]

    return changed(make_host, change_host)


def with_drafts_stored(make_host: MakeHost) -> MakeHost:
    """Return the same host of V2, whose ``all_token_ids`` holds each row's input in ``apply``."""

    def store(ids: torch.Tensor, ctx: LogitsContext) -> None:
        ids[ctx.expanded_idx_mapping.long(), ctx.pos.long()] = ctx.input_ids.to(ids.dtype)

    return _while_applying(make_host, "all_token_ids", store)


def with_longer_texts(make_host: MakeHost) -> MakeHost:
    """Return the same host of V2, whose ``total_len.gpu`` is larger by one in ``apply``."""
    return _while_applying(make_host, "total_len", lambda lengths, ctx: lengths.add_(1))


def blank_slots(make_host: MakeHost) -> MakeHost:
    """Return the same host of V2, on which ``add_request`` finds no token ids of an earlier request."""

    def change(host: V2Host) -> None:
        slots = host.driver.slots
        add, flush = slots.add, slots.flush
        reversals: list[Callable[[], None]] = []

        def add_blank(request: Request) -> int:
            slot, ids = add(request), slots.all_token_ids.gpu
            reversals.append(partial(setitem, ids, slot, ids[slot].clone()))
            ids[slot] = 0
            return slot

        def flush_all() -> None:
            while reversals:
                reversals.pop()()
            flush()

        slots.add, slots.flush = add_blank, flush_all  # type: ignore[method-assign]

    return changed(make_host, change)


def filled_outside(make_host: MakeHost, token: int | None) -> MakeHost:
    """Return the same host of V2, on which ``apply`` finds this token, or a slot's first, outside of the rows' own."""

    def fill(ids: torch.Tensor, ctx: LogitsContext) -> None:
        left = ids.clone()
        ids.copy_(left[:, :1].expand_as(ids)) if token is None else ids.fill_(token)
        for slot, last in zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True):
            ids[slot, : last + 1] = left[slot, : last + 1]

    return _while_applying(make_host, "all_token_ids", fill)


# -- of the operations -------------------------------------------------------------------------------------------


def with_apart(ops: Sequence[Op], kind: type[Arrive] | type[Swap]) -> list[Op]:
    """Return the operations with a step before each of a kind that shares its update; empty if none does."""
    apart: list[Op] = []
    pending = False
    for op in ops:
        apart += [Step()] * (pending and isinstance(op, kind))
        pending = isinstance(op, Arrive) or (kind is Swap and not isinstance(op, Step | Idle | Speculate | Swap))
        apart.append(op)
    return apart if len(apart) > len(ops) else []


def without_drafts(ops: Sequence[Op]) -> list[Op]:
    """Return the operations with a plain step for each step with drafts."""
    return [Step(1 + op.accepted) if isinstance(op, Speculate) else op for op in ops]


def with_own_parameters(ops: Sequence[Op]) -> list[Op]:
    """Return the operations with a ``SamplingParams`` object for each request."""
    return [replace(op, twin_of=None) if isinstance(op, Arrive) else op for op in ops]


def with_one_character(ops: Sequence[Op]) -> list[Op]:
    """Return the operations with the same prompt and the same tokens for all requests that use the plugin."""
    users = [op for op in ops if isinstance(op, Arrive) and op.variant is not None]
    length = users[0].prompt_len if users else 0
    return [replace(op, character="one", prompt_len=length) if op in users else op for op in ops]


def staying(ops: Sequence[Op]) -> set[str]:
    """Return the requests that are in the batch at the end."""
    gone = {op.request for op in ops if isinstance(op, Finish)}
    return {op.request for op in ops if isinstance(op, Arrive)} - gone


def users_at_once(ops: Sequence[Op]) -> list[Arrive]:
    """Return the requests that use the plugin if they arrive together and stay; else nothing."""
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    users = [op for op in arrivals if op.variant is not None]
    together = list(ops[: len(arrivals)]) == arrivals and all(
        isinstance(op, Step | Idle) for op in ops[len(arrivals) :]
    )
    return users if together and len(users) > 1 and not any(op.twin_of or op.chunks for op in arrivals) else []


def with_equal_totals(ops: Sequence[Op], request: str) -> list[Op]:
    """Return the operations with requests that arrive together, and prompts as long as that of ``request``; empty if
    that changes nothing, or requests do anything but arrive."""
    arrivals = [op for op in ops if isinstance(op, Arrive)]
    length = next((op.prompt_len for op in arrivals if op.request == request), 0)
    others = [op for op in ops if not isinstance(op, Arrive)]
    equal = [*(replace(op, prompt_len=length) for op in arrivals), *others]
    plain = all(isinstance(op, Step | Idle) for op in others) and not any(op.twin_of or op.chunks for op in arrivals)
    return equal if plain and len(arrivals) > 1 and equal != list(ops) else []


def with_equal_arguments(ops: Sequence[Op], request: str) -> list[Op]:
    """Return the operations with the arguments of ``request`` for all requests that use the plugin."""
    variant = next(op.variant for op in ops if isinstance(op, Arrive) and op.request == request)
    return [replace(op, variant=variant) if isinstance(op, Arrive) and op.variant is not None else op for op in ops]


def exchanged(ops: Sequence[Op], request: str, at: int) -> list[Op]:
    """Return the operations with ``request`` and the first or last user (``at``: 0 or -1) in each other's row.

    Empty if they are the same.
    """
    users = users_at_once(ops)
    arrival = next((op for op in users if op.request == request), None)
    if arrival is None or users[at] == arrival:
        return []
    other = users[at]
    return [other if op == arrival else arrival if op == other else op for op in ops]


def with_first(ops: Sequence[Op], request: str) -> list[Op]:
    """Return the operations with the arrival of ``request`` before all others."""
    return sorted(ops, key=lambda op: not (isinstance(op, Arrive) and op.request == request))


def with_equal_field(subject: Subject, request: str, ops: Sequence[Op], field: str) -> list[Subject]:
    """Return the plugin with requests that all have the value of ``request`` in a vLLM field; none if they have it."""
    users = [op for op in ops if isinstance(op, Arrive) and op.variant is not None and not op.twin_of]
    values = {op.request: getattr(make_active(subject, op).request.params, field) for op in users}
    if request not in values or all(value == values[request] for value in values.values()):
        return []
    equal = {field: values[request]}
    return [replace(subject, relatives=tuple(replace(case, fields={**case.fields, **equal}) for case in subject.cases))]


def with_equal_lengths(subject: Subject, request: str, ops: Sequence[Op]) -> tuple[Subject, list[Op]]:
    """Return the same requests, whose lists are cut, or repeated, to the lengths of those of ``request``.

    Without operations if that changes nothing.
    """
    users = [op for op in ops if isinstance(op, Arrive) and op.variant is not None and not op.twin_of]
    numbers = {op.request: (op.variant or 0) % len(subject.cases) for op in users}
    fields = subject.cases[numbers[request]].fields if request in numbers else {}

    def fitted(value: Any, like: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(like, Mapping):
            return {name: fitted(part, like.get(name)) for name, part in value.items()}
        lists = isinstance(value, list) and isinstance(like, list)
        return (value * len(like))[: len(like)] if lists else value

    cases = tuple(replace(case, fields=fitted(case.fields, fields)) for case in subject.cases)
    same = all(cases[number] == subject.cases[number] for number in numbers.values())
    return replace(subject, relatives=cases), [] if same else list(ops)
