"""The oracle: a request's processed logits depend on its own parameters and tokens, and on nothing else.

*Solo runs*: each request alone in a private instance, one clean step per token. *Fresh batch* puts the rows of
a step into a new instance by additions only. No reference implementation of the plugin is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from lpkit.runtime import Request, V2Row, make_context
from lpkit.v1 import BatchUpdate

from lpkit_conformance.hosts import v1, v2
from lpkit_conformance.hosts.calls import Observation, calling
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, known_as, make_active
from lpkit_conformance.programs.generate import Arrive


class SoloRuns:
    """Expected rows of requests, kept for all programs of a subject: a request is known by how it arrives.

    Args:
        subject: the plugin.
    """

    def __init__(self, subject: PluginUnderTest) -> None:
        self._subject = subject
        self._rows: dict[tuple[Arrive, Arrive | None], dict[int, torch.Tensor]] = {}
        self._changed: set[tuple[Arrive, Arrive | None]] = set()
        self._current: dict[str, tuple[Arrive, Arrive | None]] = {}

    def prepare(self, actives: dict[str, ActiveRequest], reached: Mapping[Arrive, int] | None = None) -> bool:
        """Run the requests of a program alone, up to the lengths they reached. True if the plugin acted on one.

        ``reached``: how many output tokens they get in programs to come, so that none is run twice; by how they
        arrive (:func:`~lpkit_conformance.hosts.requests.known_as`).
        """
        acted = False
        self._current = {}
        for active in actives.values():
            twin = actives.get(active.arrived.twin_of or "")
            key = (known_as(active.arrived), known_as(twin.arrived) if twin else None)
            self._current[active.id] = key
            count = len(active.request.output_token_ids)
            if count > len(self._rows.get(key, ())):
                count = max(count, reached.get(key[0], 0)) if reached else count
                companion = make_active(self._subject, key[1]) if key[1] else None
                alone = make_active(self._subject, key[0], {key[0].twin_of or "": companion}.get)
                run = self._v1 if self._subject.host == "v1" else self._v2
                self._rows[key] = run(alone, key, count)
            acted = acted or key in self._changed
        self._subject.acted = self._subject.acted or acted
        return acted

    def expected(self, request: str, position: int) -> torch.Tensor | None:
        """The row ``[vocab]`` of a request with ``position`` tokens; None if it never got that far."""
        return self._rows.get(self._current[request], {}).get(position) if request in self._current else None

    def _v1(self, active: ActiveRequest, key: tuple[Arrive, Arrive | None], count: int) -> dict[int, torch.Tensor]:
        subject = self._subject
        with calling("__init__"):
            processor = subject.create()
        with calling("is_argmax_invariant"):
            invariant = bool(processor.is_argmax_invariant())
        request = private(active)
        added = (0, request.params, request.prompt_token_ids, request.output_token_ids)
        found = {}
        params = [request.params]
        for n, before in enumerate(
            v1.stage_input(self._raw(active, request, count), params * count, invariant).unsqueeze(1)
        ):
            v1.update(processor, BatchUpdate(1, [], [added], []) if n == 0 else None)
            found[request.total_len] = self._note(key, before, v1.apply(processor, before, invariant, params))
            request.output_token_ids.append(subject.emit(active.logits_key, active.variant, n))
        return found

    def _v2(self, active: ActiveRequest, key: tuple[Arrive, Arrive | None], count: int) -> dict[int, torch.Tensor]:
        subject = self._subject
        slots = subject.slots(2)
        with calling("__init__"):
            processor = subject.create_v2(slots, 2)
        request = private(active)
        slot = slots.add(request)
        wanted = v2.enter(processor, slot, request.params, subject.vocab_size)
        slots.flush()
        found = {}
        for n, before in enumerate(self._raw(active, request, count).unsqueeze(1)):
            v2.flush(processor)
            after = before
            if wanted:
                rows = [V2Row(slot, request.total_len - 1, request.last_token_id)]
                after = v2.apply(processor, before, make_context(rows, subject.device))
            found[request.total_len] = self._note(key, before, after)
            token = subject.emit(active.logits_key, active.variant, n)
            request.output_token_ids.append(token)
            slots.commit(slot, [token])
        return found

    def _raw(self, active: ActiveRequest, request: Request, count: int) -> torch.Tensor:
        """What the model says at the next ``count`` positions of a request: ``[count, vocab]``."""
        return self._subject.rows([(active.logits_key, request.total_len + n) for n in range(count)])

    def _note(self, key: tuple[Arrive, Arrive | None], before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        if key not in self._changed and not torch.equal(before, after):
            self._changed.add(key)
        return after[0]


def private(active: ActiveRequest) -> Request:
    """The request with lists of its own, from its first token."""
    request = active.request
    prompt = None if request.prompt_token_ids is None else list(request.prompt_token_ids)
    return Request(request.request_id, request.params, prompt, request.max_tokens, prompt_len=request.prompt_len)


def fresh_batch(subject: PluginUnderTest, actives: list[ActiveRequest], seen: Observation) -> torch.Tensor:
    """The V1 rows of ``seen`` from a new instance that only ever saw these requests added.

    ``actives`` are the requests by row; their lists may have grown since.
    """
    with calling("__init__"):
        processor = subject.create()
    with calling("is_argmax_invariant"):
        invariant = bool(processor.is_argmax_invariant())
    added = []
    for row, (active, item) in enumerate(zip(actives, seen.rows, strict=True)):
        outputs = active.request.output_token_ids[: item.position - active.request.prompt_len]
        added.append((row, active.request.params, active.request.prompt_token_ids, outputs))
    v1.update(processor, BatchUpdate(len(actives), [], added, []))
    return v1.apply(processor, seen.before, invariant, [active.request.params for active in actives])
