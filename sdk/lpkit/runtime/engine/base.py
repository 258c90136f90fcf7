"""Common part of the reference engines: their requests, the requests in a step, and the commit of tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from lpkit.interfaces.config import ThinkingMarkers, make_config
from lpkit.runtime.batch.logits import LogitsSource, pick_device
from lpkit.runtime.batch.request import Request
from lpkit.runtime.engine.results import StepResult, StepRow


class Order(NamedTuple):
    """Orders for a step: the arguments of :meth:`Engine.step`."""

    plan: dict[str, int]
    idle: bool
    force: Mapping[str, int]
    discard: frozenset[str]
    drafts: Mapping[str, list[int]]


class Engine(ABC):
    """An engine whose model is a :class:`LogitsSource`.

    Requests are added, finished, preempted and resumed between steps. The next :meth:`step` reports the
    changes to processors, in the engine's order. Steps run under ``torch.inference_mode``, constructors do not.

    Args:
        source: the model; by default made from ``vocab_size`` and ``seed``.
        vocab_size: columns of the logits, unless a source sets them.
        device: ``"auto"`` is the source's, or CUDA when present.
        seed: of the model and of the requests without a seed.
        async_scheduling: value in the configuration; see ``V1AsyncEngine``.
        max_num_seqs, max_model_len, thinking, tokenizer, hf_config: as for :func:`~lpkit.runtime.make_config`. Markers
            enable ``thinking_token_budget``.

    Attributes:
        requests: the unfinished requests by id, preempted ones included.
        config: the ``vllm_config`` of the processors' constructors.
    """

    def __init__(
        self,
        source: LogitsSource | None = None,
        *,
        vocab_size: int = 512,
        max_num_seqs: int = 8,
        max_model_len: int = 1024,
        device: str | torch.device = "auto",
        seed: int = 0,
        async_scheduling: bool = False,
        thinking: ThinkingMarkers | None = None,
        tokenizer: Any = None,
        hf_config: Mapping[str, Any] | None = None,
    ) -> None:
        if source is None:
            source = LogitsSource(vocab_size, seed, pick_device(device))
        self.source = source
        self.device = source.device if device == "auto" else torch.device(device)
        self.vocab_size = source.vocab_size
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        self.seed = seed
        self.thinking = thinking
        self.config = make_config(
            max_num_seqs=max_num_seqs,
            vocab_size=self.vocab_size,
            max_model_len=max_model_len,
            device=self.device,
            async_scheduling=async_scheduling,
            thinking=thinking,
            tokenizer=tokenizer,
            hf_config=hf_config,
        )
        self.requests: dict[str, Request] = {}
        self.processors: list[Any] = []
        # Requests that take part, in order of arrival or resumption, and changes that the next step must report.
        self._active: dict[str, None] = {}
        self._new: dict[str, None] = {}
        self._left: dict[str, None] = {}

    def add(self, request: Request) -> None:
        """Add a new request. As in vLLM, every processor's class first checks its parameters.

        Args:
            request: a request that is in no engine.

        Raises:
            ValueError: a processor refuses the request, its id is in use, the engine is full, or its prompt leaves no
                room for a token.
        """
        for cls in dict.fromkeys(map(type, self.processors)):
            validate = getattr(cls, "validate_params", None)
            if validate is not None:
                validate(request.params)
        if request.request_id in self.requests:
            raise ValueError(f"request {request.request_id!r} is running already")
        if request.total_len >= self.max_model_len:
            raise ValueError(f"{request.total_len} tokens leave no room in max_model_len {self.max_model_len}")
        self._check_room()
        self.requests[request.request_id] = request
        self._active[request.request_id] = None
        self._new[request.request_id] = None

    def finish(self, request_id: str) -> Request:
        """End a request, preempted ones included: it is complete, or its client has left.

        Args:
            request_id: of the request.

        Returns:
            The request.

        Raises:
            KeyError: the request is not running.
        """
        request = self.requests.pop(request_id)
        self._active.pop(request_id, None)
        self._new.pop(request_id, None)
        self._left[request_id] = None
        return request

    def preempt(self, request_id: str) -> None:
        """Take the request ``request_id`` out of the batch. It keeps its outputs; a resume computes all of it again."""
        del self._active[request_id]
        self.requests[request_id].num_computed_tokens = 0
        if request_id in self._new:
            del self._new[request_id]
        else:
            self._left[request_id] = None

    def resume(self, request_id: str, *, new_list: bool = False) -> None:
        """Return a preempted request to the batch.

        Args:
            request_id: of the request.
            new_list: True to copy its outputs into a new list, as asynchronous scheduling does.

        Raises:
            ValueError: the request is not preempted, or the engine is full.
        """
        request = self.requests[request_id]
        if request_id in self._active:
            raise ValueError(f"request {request_id!r} is not preempted")
        self._check_room()
        if new_list:
            request.output_token_ids = list(request.output_token_ids)
        self._active[request_id] = None

    def step(
        self,
        plan: Mapping[str, int] | None = None,
        *,
        partial: Collection[str] | Mapping[str, int] = (),
        idle: bool = False,
        force: Mapping[str, int] | None = None,
        discard: Collection[str] = (),
        drafts: Mapping[str, Sequence[int]] | None = None,
    ) -> StepResult:
        """Run one scheduler step.

        Args:
            plan: tokens to feed per request, in the scheduler's order. If a request feeds less than it lacks, its
                sampled token is discarded. A request outside the plan skips the step. By default every request feeds
                everything that it lacks.
            partial: without a plan, requests that feed less: a number each, or 1 for all of them.
            idle: report arrivals and departures to processors, but run no forward pass.
            force: tokens to commit instead of the sampled ones.
            discard: complete requests whose token is discarded all the same.
            drafts: draft tokens of requests that feed everything they lack (V2). Each draft adds a row. A draft is
                accepted if the previous row samples it. The first token that differs ends the step for its request.

        Returns:
            The rows, samples and reports of the step.

        Raises:
            ValueError: the plan names an unknown request or an impossible number of tokens, or drafts cannot be
                verified.
        """
        plan = self._plan(partial) if plan is None else dict(plan)
        for request_id, count in plan.items():
            if request_id not in self._active:
                raise ValueError(f"request {request_id!r} cannot be scheduled")
            if not 1 <= count <= self.requests[request_id].remaining:
                raise ValueError(f"request {request_id!r} cannot feed {count} tokens")
        guesses = {name: list(ids) for name, ids in (drafts or {}).items() if ids}
        order = Order(plan, idle, force or {}, frozenset(discard), guesses)
        self._check_drafts(order)
        with torch.inference_mode():
            return self._step(order)

    def _check_drafts(self, order: Order) -> None:
        for name, ids in order.drafts.items():
            if name not in order.plan or order.plan[name] != self.requests[name].remaining:
                raise ValueError(f"request {name!r} cannot have drafts: it does not feed all its tokens")
            if name in order.force:
                raise ValueError(f"request {name!r} cannot have both drafts and a forced token")
            if self.requests[name].total_len + len(ids) >= self.max_model_len:
                raise ValueError(f"{len(ids)} drafts of request {name!r} do not fit max_model_len {self.max_model_len}")

    @abstractmethod
    def swap(self, first: int, second: int) -> None:
        """Exchange two rows in the next step (V1); V2 has no persistent rows.

        Args:
            first: a row.
            second: another row.
        """

    @abstractmethod
    def _step(self, order: Order) -> StepResult: ...

    def _check_room(self) -> None:
        if len(self._active) >= self.max_num_seqs:
            raise ValueError(f"the engine is full ({self.max_num_seqs} requests)")

    def _plan(self, partial: Collection[str] | Mapping[str, int]) -> dict[str, int]:
        fed = partial if isinstance(partial, Mapping) else dict.fromkeys(partial, 1)
        plan = {}
        for request_id in self._active:
            remaining = self.requests[request_id].remaining
            plan[request_id] = fed.get(request_id, remaining)
            if request_id in fed and fed[request_id] >= remaining:
                raise ValueError(f"request {request_id!r} has no {fed[request_id] + 1} tokens left to feed")
        if unknown := set(fed) - set(plan):
            raise ValueError(f"request {min(unknown)!r} cannot be scheduled")
        return plan

    def _arrivals(self, plan: Mapping[str, int], present: Container[str]) -> list[Request]:
        """Return the planned requests that are not present: new requests first, then resumed requests."""
        absent = [request_id for request_id in plan if request_id not in present]
        absent.sort(key=lambda request_id: request_id not in self._new)
        for request_id in absent:
            self._new.pop(request_id, None)
        return [self.requests[request_id] for request_id in absent]

    def _rows(self, names: Iterable[str], order: Order) -> tuple[StepRow, ...]:
        rows = []
        for name in names:
            request = self.requests[name]
            seen = request.num_computed_tokens + order.plan[name]
            discarded = seen < request.total_len or name in order.discard
            rows += [StepRow(name, seen - 1 + n, discarded) for n in range(1 + len(order.drafts.get(name, ())))]
        return tuple(rows)

    def _logits(self, rows: tuple[StepRow, ...]) -> torch.Tensor:
        return self.source.rows([(row.request_id, row.position) for row in rows]).to(self.device)

    def _commit(self, rows: tuple[StepRow, ...], sampled: torch.Tensor, order: Order) -> dict[str, list[int]]:
        """Append the sampled tokens of complete rows to their requests; tokens after a wrong draft do not count."""
        tokens: dict[str, list[int]] = {}
        rejected: set[str] = set()
        for row, token in zip(rows, sampled.tolist(), strict=True):
            name, request = row.request_id, self.requests[row.request_id]
            if name in rejected:
                continue
            # A complete request without a sample must compute its last token again.
            request.num_computed_tokens = min(row.position + 1, request.total_len - row.discarded)
            if row.discarded:
                continue
            token = order.force.get(name, token)
            request.output_token_ids.append(token)
            committed = tokens.setdefault(name, [])
            committed.append(token)
            guesses = order.drafts.get(name, [])
            if len(committed) > len(guesses) or token != guesses[len(committed) - 1]:
                rejected.add(name)
        return tokens


def build(processor: Any, *args: Any) -> Any:
    """Make a processor from a class or factory; an instance is returned unchanged."""
    made = not isinstance(processor, type) and hasattr(processor, "apply")
    return processor if made else processor(*args)
