"""The requests of a program, before any runner's bookkeeping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lpkit.runtime import Request

from lpkit_conformance.hosts.recycling import Recycler
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.programs.play import RequestSource
from lpkit_conformance.subject.subject import Subject


@dataclass
class ActiveRequest:
    """A request and what the program decided about it."""

    request: Request
    variant: int | None
    chunks: int  # partial prefills still to come
    arrived: Arrive
    begun: int = 0  # output tokens that it came with
    temperature: float = 1.0  # as it came; its parameters are gone once it has finished
    committed: list[int] = field(default_factory=list)  # output tokens, those it came with included

    @property
    def id(self) -> str:
        return self.request.request_id

    @property
    def logits_key(self) -> str:
        """The key that selects the simulated model's logits for this request."""
        return self.arrived.character or self.request.request_id

    def steps_to(self, position: int) -> int:
        """Return the number of the step in which it has ``position`` tokens, if it is alone and no draft is right."""
        return position - self.request.prompt_len - self.begun + self.arrived.chunks + 1


class RequestPool(RequestSource):
    """Turns operations into the changes of the next step: departures, entries (in order) and swaps.

    Once the plugin has received a request's departure, the record in :attr:`requests` is replaced by a copy.

    Args:
        max_num_seqs: arrivals beyond it are ignored.

    Attributes:
        shared: requests whose parameters the client uses for other requests, even after they have finished.
    """

    def __init__(self, subject: Subject, max_num_seqs: int) -> None:
        self.subject = subject
        self._max = max_num_seqs
        self.requests: dict[str, ActiveRequest] = {}
        self.running: dict[str, ActiveRequest] = {}
        self.waiting: dict[str, ActiveRequest] = {}
        self.left: list[str] = []
        self.entered: list[ActiveRequest] = []
        self.swaps: list[tuple[int, int]] = []
        self.shared: set[str] = set()
        self._in_batch: set[str] = set()
        self._finished: list[ActiveRequest] = []
        self._recycler = Recycler()
        self._kept: list[tuple[object, ...]] | None = None

    def arrive(self, op: Arrive) -> None:
        served = op.variant is not None or op.twin_of or self.subject.foreign
        if served and op.request not in self.requests and len(self.running) < self._max:
            active = make_active(self.subject, op, self.requests.get)
            self._recycler.renew(active.request, op.twin_of is not None)
            self.requests[op.request] = active
            self._enter(active)

    def finish(self, request: str) -> None:
        active = self._leave(request) or self.waiting.pop(request, None)
        if active is not None:
            self._finished.append(active)

    def preempt(self, request: str) -> None:
        active = self._leave(request)
        if active is not None:
            self.waiting[request] = active

    def resume(self, request: str, new_list: bool) -> None:
        waits = request in self.waiting and "resumed" not in self.subject.without
        if waits and len(self.running) < self._max:
            active = self.waiting.pop(request)
            if new_list:
                active.request.output_token_ids = list(active.request.output_token_ids)
            self._enter(active)

    def swap(self, first: int, second: int) -> None:
        self.swaps.append((first, second))

    def possible_swaps(self) -> list[tuple[int, int]]:
        """Return the swaps whose rows exist once the other changes are carried out."""
        return [(a, b) for a, b in self.swaps if a != b and max(a, b) < len(self.running)]

    def keep_objects(self) -> None:
        """Keep finished requests' objects from now on: no other object gets their addresses."""
        self._kept = []

    def settle(self) -> None:
        """The host has taken the changes over."""
        self._in_batch = set(self.running)
        self.left, self.entered, self.swaps = [], [], []
        if self._kept is not None:
            gone = [active.request for active in self._finished]
            self._kept += [(item.params, item.prompt_token_ids, item.output_token_ids) for item in gone]
        records = self._recycler.let_go([(active.request, active.id in self.shared) for active in self._finished])
        for active, record in zip(self._finished, records, strict=True):
            active.request = record
        self._finished = []

    def emit(self, active: ActiveRequest, count: int = 1) -> list[int]:
        """The next ``count`` output tokens that a request's model wants."""
        n = len(active.request.output_token_ids)
        return self.subject.model.emitted(active.logits_key, active.variant, n + count, n)

    def all_requests(self) -> list[Request]:
        """Requests that have arrived, including running, waiting and finished requests."""
        return [active.request for active in self.requests.values()]

    def _enter(self, active: ActiveRequest) -> None:
        self.running[active.id] = active
        self.entered.append(active)

    def _leave(self, request: str) -> ActiveRequest | None:
        active = self.running.pop(request, None)
        if active is not None:
            self.entered = [other for other in self.entered if other is not active]
            if request in self._in_batch:
                self._in_batch.discard(request)
                self.left.append(request)
        return active


def make_active(
    subject: Subject, op: Arrive, find: Callable[[str], ActiveRequest | None] = lambda _: None
) -> ActiveRequest:
    """Return the request that ``op`` describes; the same object each time."""
    twin = find(op.twin_of) if op.twin_of else None
    character = op.character or op.request
    variant = twin.variant if twin is not None else op.variant
    begun = subject.model.begun(character, variant)
    if twin is not None:
        params, prompt = twin.request.params, twin.request.prompt_token_ids
    else:
        prompt = subject.model.prompt(character, max(op.prompt_len, op.chunks + 1), variant)
        params = subject.params(variant, op.greedy, sum(character.encode()), len(prompt))
    request = Request(op.request, params, prompt, 10**6, output_token_ids=begun)
    chunks = 0 if twin is not None else op.chunks
    return ActiveRequest(request, variant, chunks, op, len(begun), params.temperature, list(begun))


def known_as(arrived: Arrive) -> Arrive:
    """``arrived`` without what makes no difference to a request alone: its name, and how it was prefilled."""
    length = max(arrived.prompt_len, arrived.chunks + 1)
    return replace(arrived, request=arrived.character or arrived.request, prompt_len=length, chunks=0)
