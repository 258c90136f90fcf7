"""Base classes of all hosts: a driver that builds and steps one instance, and a runner of programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.hosts.requests import ActiveRequest, RequestPool
from lpkit_conformance.programs.generate import Arrive, Op
from lpkit_conformance.programs.play import play
from lpkit_conformance.subject.calls import Observation, calling, checked
from lpkit_conformance.subject.subject import Subject

Swaps = Iterable[tuple[int, int]]
"""Pairs of rows that are swapped."""

Watch = Callable[[str, tuple[Any, ...]], AbstractContextManager[None]]
"""Returns a context manager that surrounds a call of the plugin, from the method's name and its arguments."""


def _unwatched(method: str, args: tuple[Any, ...]) -> AbstractContextManager[None]:
    return nullcontext()


class Driver(ABC):
    """One instance of a plugin's class, called as the engine would call it.

    The rules are :mod:`lpkit.runtime`'s. Exceptions of the plugin arrive as ``PluginError``.

    Args:
        config: the ``vllm_config`` for its constructor; holds the largest number of requests.

    Attributes:
        invariant: True if the instance claims to keep the argmax and the engine asks for that claim.
        given: text after a method's name if a call does not return.
    """

    asks_claim: ClassVar[bool] = False
    """True if the engine asks an instance whether it keeps the argmax."""

    shares: ClassVar[tuple[str, ...]] = ()
    """Methods whose arguments the engine shares with other processors."""

    processor: Any
    invariant: bool = False
    given: str = ""
    _watch: Watch = staticmethod(_unwatched)

    @abstractmethod
    def __init__(self, cls: Any, config: Any, device: torch.device) -> None: ...

    @abstractmethod
    def begin(self, leaving: Iterable[str] = (), entering: Iterable[Request] = (), swaps: Swaps = ()) -> None:
        """Begin a step: report the changes to the plugin. ``swaps`` are of rows, on engines that have rows."""

    def stage(self, raw: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
        """The model's logits as they reach the plugin."""
        return raw

    @abstractmethod
    def step(self, before: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        """Call ``apply`` once for the next token of each request; ``before`` is the result of :meth:`stage`."""

    def context(self, requests: Sequence[Request]) -> tuple[Any, ...]:
        """Return the arguments of ``apply`` after the logits, for the next token of each request."""
        return ()

    def declines(self, request: str) -> bool:
        """Return True if the plugin said when the request came that it does not edit its rows; on V1 it cannot."""
        return False

    def shared(self, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the arguments of a call of :attr:`shares` that the engine shares with other processors, by name."""
        return {}

    def edit(self, logits: torch.Tensor, *context: Any) -> Any:
        """Return the result of ``apply`` for exactly these logits, unchecked."""
        return self.call("apply", logits, *context)

    def call(self, method: str, *args: Any) -> Any:
        """Call one method of the plugin as the engine does."""
        with self._watch(method, args), calling(method, True, self.given):
            return getattr(self.processor, method)(*args)

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Within it, ``watch`` is around every call. The plugin is not touched: it may be frozen, or have slots."""
        self._watch = watch
        try:
            yield
        finally:
            del self._watch

    def edit_copy(self, before: torch.Tensor, *context: Any) -> torch.Tensor:
        """Return the logits that ``apply`` makes of a copy of ``before``."""
        with torch.inference_mode():
            logits = before.clone()
            return checked(self.edit(logits, *context), before).clone()

    def commit(self, request: Request, tokens: Sequence[int]) -> None:
        """A request gains output tokens."""
        request.output_token_ids.extend(tokens)


class Host(ABC):
    """Runs programs on one instance and records every row."""

    driver_class: type[Driver]
    driver: Driver

    def __init__(self, subject: Subject, max_num_seqs: int | None = None) -> None:
        self.subject = subject
        self.max_num_seqs = max_num_seqs or subject.setup.max_num_seqs
        self.pool = RequestPool(subject, self.max_num_seqs)
        self.step = 0
        self.config = subject.setup.config(self.max_num_seqs)
        self.driver = self.drive(self.config)

    def drive(self, config: Any) -> Any:
        """Return the driver of a new instance of the plugin."""
        return self.driver_class(self.subject.plugin.cls, config, self.subject.setup.device)

    @property
    def processor(self) -> Any:
        """The plugin's instance."""
        return self.driver.processor

    def run(self, ops: Iterable[Op]) -> Iterator[Observation]:
        """Carry out ``ops``; yields every ``apply``."""
        ops = tuple(ops)
        self.pool.shared.update(op.twin_of for op in ops if isinstance(op, Arrive) and op.twin_of)
        return play(ops, self.pool, self)

    def forward(self, drafts: int, accepted: int) -> Iterator[Observation]:
        """Run a step in which each request brings ``drafts`` drafts, and the engine accepts ``accepted`` of them."""
        self._begin()
        return self._sample(drafts, accepted)

    def idle(self) -> None:
        """Run a step without tokens."""
        self._begin()

    def _begin(self) -> None:
        """Report the changes since the last step to the plugin."""
        self.step += 1
        pool = self.pool
        for request in [active.request for active in pool.running.values()]:
            if request.params.max_tokens and len(request.output_token_ids) >= request.params.max_tokens:
                pool.finish(request.request_id)
        self.driver.begin(pool.left, [active.request for active in pool.entered], pool.possible_swaps())
        pool.settle()

    def serve(self, subject: Subject) -> None:
        """Take the requests that arrive from now on from another subject of the same plugin and setup."""
        self.subject = self.pool.subject = subject

    def position(self, row: int, request: str) -> int:
        """Return the position in the batch of a request whose first row of logits is ``row``."""
        return row

    def rewind(self) -> None:  # noqa: B027 - most engines' calls do not depend on what was committed since
        """Allow the last call to be repeated as it was, although its tokens have been committed since."""

    def anew(self, alter: Callable[[Request], Request | None] = lambda request: request) -> Driver | None:
        """Return a new instance on this engine that receives only the current requests.

        None if the batch cannot be replayed into a new instance.

        Args:
            alter: returns the request that the instance gets instead of each; None, on V2: the instance gets none.
        """
        return None

    def _commit(self, active: ActiveRequest, tokens: Sequence[int]) -> None:
        active.committed += tokens
        self.driver.commit(active.request, tokens)

    @abstractmethod
    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        """The rest of a step: logits, ``apply``, new tokens."""
