"""LP8: rules specific to V2's rows and slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.checks.ladder import LadderCheck, mixed_arrivals
from lpkit_conformance.checks.lazily import Subject, findings, ranks, runtime, speculation, torch, v2, verify
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import (
    Arrive,
    Finish,
    Op,
    Preempt,
    Program,
    Resume,
    Speculate,
    Step,
    program,
    soak,
)
from lpkit_conformance.results import Failed, Finding, NeverActive, Skipped
from lpkit_conformance.settings.cases import make_params
from lpkit_conformance.subject.worlds import SPECULATING
from lpkit_conformance.vllm_api.runners import V2

KEPT_STEPS = 12

REFUSES = "the constructor refuses drafts"

OTHERS_STAY = 4
"""Requests after which the neighbour is replaced: its solo run is as long as its stay."""


class HostileCheck(LadderCheck):
    """A few programs on a host with an unusual but legal engine behaviour.

    Attributes:
        manner: the behaviour, as arguments of ``hosts.v2.Manner``.
    """

    hosts = (V2,)
    requires: ClassVar[tuple[str, ...]] = ("LP101", "LP301", "LP201", "LP202", "LP211", "LP212")
    manner: ClassVar[Mapping[str, Any]] = {}

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program(
            "comings and goings",
            mixed_arrivals(5),
            Step(3),
            [Finish("r0"), Preempt("r1"), Arrive("x", 2)],
            Step(2),
            [Resume("r1"), Arrive("y", None, 6, chunks=2)],
            Step(4),
        )

    def host(self, subject: Subject, max_num_seqs: int) -> v2.V2Host:
        return v2.V2Host(subject, max_num_seqs, v2.Manner(**self.manner))

    def run(self, subject: Subject) -> str | None:
        try:
            return super().run(subject)
        except Failed as failure:
            if failure.finding.cause or "manner" not in advice.CAUSES.get(self.code, ()):
                raise
            finding = replace(failure.finding, cause=advice.cause("manner", self.code))
            raise Failed(finding, advice=failure.advice) from failure


class LP801(HostileCheck):
    """A reused slot keeps nothing of its previous request.

    A slot is reused as soon as it is free, with any combination of arguments, and no call announces that it was freed.

    Why: what ``add_request`` does not overwrite belongs to the previous request, even when it returns False.

    Fix: write every per-slot value in ``add_request``, before any early return.
    """

    code, name = "LP801", "slot-reuse"
    hazard = "replace"
    requires = ("LP101", "LP301", "LP201", "LP202", "LP219")

    def programs(self, subject: Subject) -> Iterator[Program]:
        variants = [*subject.variants, None]
        pairs = [variant for old in variants for new in variants for variant in (old, new)]
        ops: list[Op] = [Arrive("other 0", 0, character="other")]
        for i, variant in enumerate(pairs):
            ops += [Arrive(f"a{i}", variant, character=f"v{variant}"), Step()]
            others, last = divmod(i, OTHERS_STAY)
            if last == OTHERS_STAY - 1:
                ops += [Finish(f"other {others}"), Arrive(f"other {others + 1}", 0, character="other")]
            ops += [Step(), Finish(f"a{i}")]
        yield program("each after each", ops)


class LP802(HostileCheck):
    """``prompt_len.gpu`` and ``prefill_len.gpu`` are read at each use.

    The engine rebinds them at every flush; the tensor of an earlier step is overwritten.

    Why: a reference kept from the constructor sometimes shows other requests' lengths.

    Fix: write ``self.req_states.prompt_len.gpu[...]`` in ``apply``; keep ``req_states``, not its tensors.
    """

    code, name = "LP802", "rebound-buffers"
    quick = "first"
    prevented = "they read the lengths from the engine's buffers at each step."
    manner = {"poison": True}

    def run(self, subject: Subject) -> str | None:
        try:
            return super().run(subject)
        except NeverActive:
            host = v2.V2Host(subject)
            v2.keep_buffers(host.driver.slots)  # does it act if these tensors are updated in place?
            seen = host.run([*mixed_arrivals(5), Step(KEPT_STEPS)])
            if all(torch.equal(item.before, item.after) for item in seen):
                raise
            line, state = findings.kept_buffer(host)
            summary = "the plugin changes logits only while prompt_len.gpu and prefill_len.gpu stay the same tensors"
            expected, got = "the same edits on an engine that rebinds them, as vLLM does", "no edit at all"
            raise Failed(Finding(summary, {}, expected, got, location=line, state=state)) from None


class LP803(HostileCheck):
    """A call may contain a part of the batch.

    Large verifications are split into several calls. With batch-sharded sampling, a tensor-parallel rank receives
    all requests, and its calls have the rows of its own slots (slot modulo ranks). A rank may get no call for many
    steps.

    Why: row numbers continued from the last call, or state advanced once per call, refer to the wrong request. Data
    that only the next call clears overflows.

    Fix: use only this call's ``ctx.expanded_idx_mapping``; bring staged values to the device in
    ``apply_staged_writes``, which every rank calls in every step.
    """

    code, name = "LP803", "split-applies"
    manner = {"split": 3}

    def run(self, subject: Subject) -> str | None:
        note = super().run(subject)
        # A request at a time has the same slot each time: the other rank hears of all of them, and is not called.
        (arrive,) = mixed_arrivals(1)
        others: list[Op] = []
        for n in range(subject.setup.max_num_seqs + 1):
            others += [replace(arrive, request=f"a{n}"), Step(), Finish(f"a{n}")]
        sharded = program("requests of another rank", others, mixed_arrivals(4), Step(3))
        verify.verify(subject, [sharded], partial(v2.V2Host, manner=v2.Manner(ranks=ranks.RANKS)))
        return note


class LP804(HostileCheck):
    """Each draft token has its own row.

    Under speculative decoding a request has one row per draft. A row sees the drafts before it, in ``ctx.input_ids``.
    Rejected drafts, and placeholders of -1, are discarded. Adaptive verification omits some or all scheduled drafts of
    a call, but the host bounds still count them. Under asynchronous scheduling the bounds also count the drafts
    rejected in the step before. The configuration announces drafts to the constructor, which may refuse them with
    ``ValueError``.

    Why: code that assumes one row per request, or ``total_len`` tokens per row, uses the wrong row or history. So
    does code that counts rows by ``seq_lens_upper_bound_np``.

    Fix: a row's history is ``ctx.pos + 1`` tokens: committed ones, then the inputs of the request's rows above it.
    ``ctx.expanded_idx_mapping`` holds each row's slot.
    """

    code, name = "LP804", "draft-rows"
    hazard = "drafts"
    requires = (*HostileCheck.requires, "LP210", "LP308")
    suspects = (*HostileCheck.suspects, "LP208")  # drafts make a batch of few requests large
    manner = {"trim": True}

    def run(self, subject: Subject) -> str | None:
        there = speculation.speculating(subject)
        if there is None:
            raise Skipped(REFUSES)
        return super().run(there)

    def programs(self, subject: Subject) -> Iterator[Program]:
        yield program("two drafts, one right", mixed_arrivals(4), Step(), *[Speculate(2, 1) for _ in range(4)], Step())
        yield program(
            "three drafts, all right", mixed_arrivals(4), Step(), *[Speculate(3, 3) for _ in range(3)], Step()
        )
        yield program(
            "every row ours", [Arrive(f"r{i}", i) for i in range(3)], Step(), Speculate(2, 1), Speculate(1, 1)
        )
        yield program("all wrong", mixed_arrivals(3), Step(), Speculate(2, 0), Speculate(1, 0), Step())
        yield program(
            "with a prefill beside",
            mixed_arrivals(3),
            Step(),
            Arrive("x", 1, 8, chunks=2),
            *[Speculate(2, 2) for _ in range(4)],
        )


class LP805(HostileCheck):
    """The row mapping may be int32.

    vLLM 0.31 sends int32, later releases int64.

    Why: ``take``, ``index_copy_`` and, in older versions of torch, ``gather`` and ``scatter_`` require int64. A custom
    kernel reads one width only.

    Fix: ``mapping = ctx.expanded_idx_mapping.long()``.
    """

    code, name = "LP805", "int32-mapping"
    prevented = "`rows.slots` and `rows.index` are always int64."

    def host(self, subject: Subject, max_num_seqs: int) -> v2.V2Host:
        return v2.V2Host(subject, max_num_seqs, v2.Manner(mapping=torch.int32))


class LP806(HostileCheck):
    """The host bounds may be padded.

    Under full CUDA graphs ``seq_lens_upper_bound_np`` has zeros behind the batch's requests.

    Why: code that uses its length as the number of requests counts requests that do not exist.

    Fix: cut ``seq_lens_upper_bound_np`` to ``len(ctx.idx_mapping_np)``.
    """

    code, name = "LP806", "padded-bounds"
    prevented = "they read the bounds of the batch's requests and nothing behind them."
    manner = {"padding": 3}


class LP807(Check):
    """Warm-up works.

    Before the first request vLLM sends dummy requests: no ``extra_args``, prompt length 0, logits of zeros.

    Why: an exception here keeps the engine from starting.

    Fix: decline requests without your arguments, and accept lengths of 0.
    """

    code, name, hosts, requires = "LP807", "warm-up", (V2,), ("LP101", "LP301")
    own_exceptions = EVERY_METHOD

    def run(self, subject: Subject) -> str | None:
        driver = v2.V2Driver(subject.plugin.cls, subject.setup.config(4), subject.setup.device)
        requests = [runtime.Request(name, make_params({}), [0]) for name in ("a", "b")]
        for request in requests:
            slot = driver.slots.add(request)
            driver.slots.prompt_len.np[slot] = driver.slots.prefill_len.np[slot] = 0
            driver.enter(slot, request.params)
        driver.slots.flush()
        driver.flush()
        zeros = torch.zeros(len(requests), subject.setup.vocab_size, device=subject.setup.device)
        driver.edit_copy(zeros, *driver.context(requests))
        return None


class LP808(HostileCheck):
    """Random mixtures of batch changes work on V2.

    Long random mixtures with drafts (unless the constructor refuses them), split calls, rebound buffers, and bounds
    that are padded and loose. Several cases share the mixtures.

    Why: some defects appear only after a combination of changes.

    Fix: the operations shown are the smallest failing sequence that was found; step through them by hand.
    """

    code, name = "LP808", "hostile-soak"
    requires = (*HostileCheck.requires, "LP219", "LP802", "LP803", "LP804", "LP806")
    manner = {"poison": True, "split": 2, "padding": 1, "trim": True}

    def run(self, subject: Subject) -> str | None:
        return super().run(speculation.speculating(subject) or subject)

    def programs(self, subject: Subject) -> Iterator[Program]:
        drafts = subject.setup.world is SPECULATING
        yield from (soak(subject.setup.seed * 100 + n, drafts=drafts) for n in range(2))
