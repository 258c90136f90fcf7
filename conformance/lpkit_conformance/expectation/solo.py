"""The oracle: a request's processed logits depend on its own parameters and tokens, and on nothing else.

*Solo runs*: each request alone in a private instance, one clean step per token. *Fresh batch* puts the rows of
a step into a new instance by additions only. No reference implementation of the plugin is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from lpkit.runtime import Request

from lpkit_conformance.hosts import Observation, alone, drive
from lpkit_conformance.hosts.requests import ActiveRequest, known_as, make_active
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.subject.worlds import SPECULATING, USUAL


class SoloRuns:
    """Expected rows of requests, kept for all programs of a subject: a request is known by how it arrives.

    Args:
        subject: the plugin.
        strangers: True if only rows of requests that do not use it are expected.
    """

    def __init__(self, subject: Subject, strangers: bool = False) -> None:
        self._subject = subject
        self._strangers = strangers
        self._rows: dict[tuple[Arrive, Arrive | None], dict[int, torch.Tensor]] = {}
        self._changed: set[tuple[Arrive, Arrive | None]] = set()
        self._current: dict[str, tuple[Arrive, Arrive | None]] = {}

    def prepare(self, actives: dict[str, ActiveRequest], reached: Mapping[Arrive, int] | None = None) -> bool:
        """Run the requests of a program alone, up to the lengths they reached. True if the plugin acted on any.

        ``reached``: how many output tokens they get in programs to come, so that none is run twice; by how they
        arrive (:func:`~lpkit_conformance.hosts.requests.known_as`).
        """
        acted = False
        self._current = {}
        for active in actives.values():
            twin = actives.get(active.arrived.twin_of or "")
            key = (known_as(active.arrived), known_as(twin.arrived) if twin else None)
            self._current[active.id] = key
            count = len(active.request.output_token_ids) - active.begun
            if count > len(self._rows.get(key, ())):
                # Who comes back comes with more tokens: all is run again, and far enough for the next time.
                count = max(count, reached.get(key[0], 0) if reached else 0, 2 * len(self._rows.get(key, ())))
                companion = make_active(self._subject, key[1]) if key[1] else None
                solo = make_active(self._subject, key[0], {key[0].twin_of or "": companion}.get)
                with self._subject.as_imported():
                    self._rows[key] = self._alone(solo, key, count)
            acted = acted or key in self._changed
        return acted

    def expected(self, request: str, position: int) -> torch.Tensor | None:
        """The row ``[vocab]`` of a request with ``position`` tokens; None if it never got that far."""
        key = self._current.get(request)
        if key is None or (self._strangers and key[0].variant is not None):
            return None
        return self._rows.get(key, {}).get(position)

    def _alone(self, active: ActiveRequest, key: tuple[Arrive, Arrive | None], count: int) -> dict[int, torch.Tensor]:
        """The processed row at each of the next ``count`` positions of a request that has an instance to itself."""
        driver, request = drive(self._subject, 2), private(active)
        rows = {}
        for before, after in alone(self._subject, driver, request, active.logits_key, active.variant, count, new=True):
            rows[request.total_len] = after[0]
            if key not in self._changed and not torch.equal(before, after):
                self._changed.add(key)
        return rows


@fact
def solo_runs(subject: Subject) -> SoloRuns:
    """Return the rows of the subject's requests when each is served alone, in an engine without drafts."""
    if subject.setup.world is SPECULATING:
        return solo_runs(subject.home or subject.having(world=USUAL))
    return SoloRuns(subject, subject.strangers)


def private(active: ActiveRequest) -> Request:
    """The request with its own lists, as it came."""
    request, begun = active.request, active.request.output_token_ids[: active.begun]
    prompt = None if request.prompt_token_ids is None else list(request.prompt_token_ids)
    copied = Request(request.request_id, request.params, prompt, request.max_tokens, prompt_len=request.prompt_len)
    copied.output_token_ids += begun
    return copied


def fresh_batch(subject: Subject, actives: list[ActiveRequest], seen: Observation) -> torch.Tensor:
    """The rows of ``seen`` from a new instance that only ever saw these requests added.

    ``actives`` are the requests by row; their lists may have grown since.
    """
    driver = drive(subject)
    requests = []
    for active, item in zip(actives, seen.rows, strict=True):
        request = private(active)
        request.output_token_ids = active.request.output_token_ids[: item.position - active.request.prompt_len]
        requests.append(request)
    driver.begin(entering=requests)
    return driver.step(seen.before, requests)
