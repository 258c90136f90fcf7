"""What both reference engines share: which requests there are, who takes part in a step, and committing tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from lpkit.runtime.batch.device import pick_device
from lpkit.runtime.batch.logits import LogitsSource
from lpkit.runtime.batch.request import Request
from lpkit.runtime.engine.config import make_config
from lpkit.runtime.engine.results import StepResult, StepRow

if TYPE_CHECKING:
    from lpkit.runtime.sampler.thinking import ThinkingMarkers


class Order(NamedTuple):
    """What a step was asked to do: the arguments of :meth:`Engine.step`."""

    plan: dict[str, int]
    idle: bool
    force: Mapping[str, int]
    discard: frozenset[str]
    drafts: Mapping[str, list[int]]


class Engine(ABC):
    """An engine whose model is a :class:`LogitsSource`.

    Requests are added, finished, aborted, preempted and resumed between steps; processors are told during the
    next :meth:`step`, in the engine's order. Steps run under ``torch.inference_mode``, constructors do not.

    Args:
        source: the model; by default one of ``vocab_size`` and ``seed``.
        vocab_size: columns of the logits, unless a source says so.
        max_num_seqs: requests in the batch at most.
        max_model_len: tokens of a request at most.
        device: ``"auto"`` is the source's, or CUDA when present.
        seed: of the model and of the requests without a seed.
        vocab_padding: columns behind the vocabulary, which make the logits non-contiguous as a model's padded
            vocabulary does.
        async_scheduling: what the configuration says; see ``V1AsyncEngine``.
        thinking: the markers of thoughts, which give requests with a ``thinking_token_budget`` one.
        tokenizer: what ``lpkit.tokenizer`` gives: the folder of one, a tokenizer, or a function that makes one.

    Attributes:
        requests: the unfinished requests by id, preempted ones included.
        config: the ``vllm_config`` that processors were constructed with.
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
        vocab_padding: int = 0,
        async_scheduling: bool = False,
        thinking: ThinkingMarkers | None = None,
        tokenizer: Any = None,
    ) -> None:
        if source is None:
            source = LogitsSource(vocab_size, seed, pick_device(device))
        self.source = source
        self.device = source.device if device == "auto" else torch.device(device)
        self.vocab_size = source.vocab_size
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        self.seed = seed
        self.vocab_padding = vocab_padding
        self.thinking = thinking
        self.config = make_config(
            max_num_seqs=max_num_seqs,
            vocab_size=self.vocab_size,
            max_model_len=max_model_len,
            device=self.device,
            async_scheduling=async_scheduling,
            thinking=thinking,
            tokenizer=tokenizer,
        )
        self.requests: dict[str, Request] = {}
        self.processors: list[Any] = []
        # Requests that want to take part, in order of arrival or resumption, and what the next step must announce.
        self._active: dict[str, None] = {}
        self._new: dict[str, None] = {}
        self._left: dict[str, None] = {}

    def add(self, request: Request) -> None:
        """A new request arrives; as in vLLM every processor's class is asked first whether its parameters will do.

        Args:
            request: a request that no engine holds.

        Raises:
            ValueError: if a processor refuses it, its id is in use, the engine is full, or its prompt leaves no room
                for a token.
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
        """A request ends.

        Args:
            request_id: of the request.

        Returns:
            The request.

        Raises:
            KeyError: it is not running.
        """
        request = self.requests.pop(request_id)
        self._active.pop(request_id, None)
        self._new.pop(request_id, None)
        self._left[request_id] = None
        return request

    def abort(self, request_id: str) -> Request:
        """A client goes away: as :meth:`finish`, at any time, also while preempted.

        Args:
            request_id: of the request.

        Returns:
            The request.
        """
        return self.finish(request_id)

    def preempt(self, request_id: str) -> None:
        """Take a request out of the batch; it keeps its outputs and must be computed anew when resumed.

        Args:
            request_id: of the request.
        """
        del self._active[request_id]
        self.requests[request_id].num_computed_tokens = 0
        if request_id in self._new:
            del self._new[request_id]
        else:
            self._left[request_id] = None

    def resume(self, request_id: str, *, new_list: bool = False) -> None:
        """Let a preempted request back in.

        Args:
            request_id: of the request.
            new_list: its outputs come in another list object, as under asynchronous scheduling.

        Raises:
            ValueError: if it is not preempted, or the engine is full.
        """
        request = self.requests[request_id]
        if request_id in self._active:
            raise ValueError(f"request {request_id!r} is not preempted")
        self._check_room()
        if new_list:
            request.output_token_ids = list(request.output_token_ids)
        self._active[request_id] = None

    def go_on(self, request_id: str, token_ids: Sequence[int]) -> Request:
        """A streaming session: a request goes on with more tokens.

        What it generated belongs to the prompt from here on. Processors get a new request under the same id.

        Args:
            request_id: of the request.
            token_ids: what the client adds behind all that the request has.

        Returns:
            The request as it is now.
        """
        old = self.finish(request_id)
        prompt = [*(old.prompt_token_ids or ()), *old.output_token_ids, *token_ids]
        request = Request(request_id, old.params, prompt, old.max_tokens)
        self.add(request)
        return request

    def __str__(self) -> str:
        """The batch as a table: where each request is, what it has, and what it waits for."""
        lines = [f"{'place':>5}  {'request':<16} {'prompt':>6} {'outputs':>7} {'computed':>8}  state"]
        for request in sorted(self.requests.values(), key=self._order):
            place = self._place(request.request_id)
            if request.request_id not in self._active:
                state = "preempted"
            elif place is None:
                state = "arriving"
            else:
                state = "prefill" if request.remaining > 1 else "decode"
            lines.append(
                f"{'-' if place is None else place:>5}  {request.request_id:<16} {request.prompt_len:>6} "
                f"{len(request.output_token_ids):>7} {request.num_computed_tokens:>8}  {state}"
            )
        return "\n".join(lines)

    def _order(self, request: Request) -> int:
        place = self._place(request.request_id)
        return self.max_num_seqs if place is None else place

    @abstractmethod
    def _place(self, request_id: str) -> int | None:
        """The request's row (V1) or slot (V2); None if it has none."""

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
        """One scheduler step.

        Args:
            plan: tokens to feed per request, in the scheduler's order; a request that feeds less than it lacks
                has its sampled token discarded, one that is not named sits the step out. By default every
                request feeds all that it lacks.
            partial: without a plan, the requests that feed less: a number each, or 1 for all.
            idle: tell processors of arrivals and departures, but run no forward pass.
            force: tokens to commit instead of the sampled ones.
            discard: complete requests whose token is discarded nevertheless.
            drafts: draft tokens of requests that feed all they lack (V2). Each gets a row more per draft; a draft is
                accepted if it is what its row's predecessor samples, and the first token that is not ends the step
                for its request.

        Returns:
            What was computed, sampled and told to processors.

        Raises:
            ValueError: if the plan names an unknown request or an impossible number of tokens, or if drafts cannot
                be verified.
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
            second: another one.
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
        """The planned requests that are not present: new ones first, then resumed ones."""
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
        logits = self.source.rows([(row.request_id, row.position) for row in rows]).to(self.device)
        if self.vocab_padding:
            logits = torch.nn.functional.pad(logits, (0, self.vocab_padding))[:, : self.vocab_size]
        return logits

    def _commit(self, rows: tuple[StepRow, ...], sampled: torch.Tensor, order: Order) -> dict[str, list[int]]:
        """Append the sampled tokens of complete rows to their requests; behind a wrong draft nothing counts."""
        tokens: dict[str, list[int]] = {}
        rejected: set[str] = set()
        for row, token in zip(rows, sampled.tolist(), strict=True):
            name, request = row.request_id, self.requests[row.request_id]
            if name in rejected:
                continue
            # A request with all tokens computed, but none sampled, must compute the last one again.
            request.num_computed_tokens = min(row.position + 1, request.total_len - row.discarded)
            if row.discarded:
                continue
            token = order.force.get(name, token)
            request.output_token_ids.append(token)
            found = tokens.setdefault(name, [])
            found.append(token)
            guesses = order.drafts.get(name, [])
            if len(found) > len(guesses) or token != guesses[len(found) - 1]:
                rejected.add(name)
        return tokens


def build(processor: Any, *args: Any) -> Any:
    """A processor from a class or factory; an instance is returned as it is."""
    made = not isinstance(processor, type) and hasattr(processor, "apply")
    return processor if made else processor(*args)
