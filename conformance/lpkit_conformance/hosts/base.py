"""What every host has: a driver that builds and steps one instance, and a runner of programs around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.hosts.calls import Observation, calling, checked
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, RequestPool
from lpkit_conformance.programs.generate import Arrive, Idle, Op, Speculate, Step

Watch = Callable[[str, tuple[Any, ...]], AbstractContextManager[None]]
"""What is around a call of the plugin: it gets the method's name and the arguments."""


def _unwatched(method: str, args: tuple[Any, ...]) -> AbstractContextManager[None]:
    return nullcontext()


class Driver(ABC):
    """One instance of a plugin's class, told of requests and called as the engine would.

    The rules are :mod:`lpkit.runtime`'s. Whatever the plugin raises comes as a ``PluginError``.

    Args:
        cls: the class.
        config: what its constructor gets as ``vllm_config``; says how many requests there may be.
        device: of the logits.

    Attributes:
        processor: the instance.
        invariant: whether it claims to keep the argmax, where the engine asks.
    """

    asks_claim: ClassVar[bool] = False
    """Whether the engine asks an instance if it keeps the argmax."""

    shares: ClassVar[tuple[str, ...]] = ()
    """Methods that are given what all processors of an engine read."""

    processor: Any
    invariant: bool = False
    _watch: Watch = staticmethod(_unwatched)

    @abstractmethod
    def __init__(self, cls: Any, config: Any, device: torch.device) -> None: ...

    @abstractmethod
    def begin(
        self,
        leaving: Iterable[str] = (),
        entering: Iterable[Request] = (),
        swaps: Iterable[tuple[int, int]] = (),
    ) -> None:
        """A step begins: tell the plugin what changes. ``swaps`` are of rows, where there are rows."""

    def stage(self, raw: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
        """The model's logits as they reach the plugin."""
        return raw

    @abstractmethod
    def step(self, before: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        """One ``apply`` for the next token of each request; ``before`` is what :meth:`stage` returned."""

    def context(self, requests: Sequence[Request]) -> tuple[Any, ...]:
        """What ``apply`` gets besides the logits for the next token of each request."""
        return ()

    def shared(self, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """By name, what other processors read too of what a call of one of :attr:`shares` is given."""
        return {}

    def edit(self, logits: torch.Tensor, *context: Any) -> Any:
        """What ``apply`` returns for these very logits, whatever it is."""
        return self.call("apply", logits, *context)

    def call(self, method: str, *args: Any) -> Any:
        """One call of the plugin, as the engine makes it."""
        with self._watch(method, args), calling(method, as_engine=True):
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
        """What ``apply`` makes of ``before``, which stays as it is."""
        with torch.inference_mode():
            logits = before.clone()
            return checked(self.edit(logits, *context), before).clone()

    def commit(self, request: Request, tokens: Sequence[int]) -> None:
        """A request gains output tokens."""
        request.output_token_ids.extend(tokens)


class Host(ABC):
    """Runs programs on one instance and watches every row.

    Args:
        subject: the plugin and its requests.
        max_num_seqs: batch size of the engine.
    """

    driver: Driver

    def __init__(self, subject: PluginUnderTest, max_num_seqs: int | None = None) -> None:
        self.subject = subject
        self.max_num_seqs = max_num_seqs or subject.max_num_seqs
        self.pool = RequestPool(subject, self.max_num_seqs)
        self.step = 0

    @property
    def processor(self) -> Any:
        """The plugin's instance."""
        return self.driver.processor

    def run(self, ops: Iterable[Op]) -> Iterator[Observation]:
        """Carry out ``ops``; yields every ``apply``."""
        ops = tuple(ops)
        self.pool.shared.update(op.twin_of for op in ops if isinstance(op, Arrive) and op.twin_of)
        for op in ops:
            if isinstance(op, Step):
                for _ in range(op.count):
                    self._begin()
                    yield from self._sample(0, 0)
            elif isinstance(op, Speculate):
                self._begin()
                yield from self._sample(op.drafts, op.accepted)
            elif isinstance(op, Idle):
                self._begin()
            else:
                self.pool.do(op)

    @abstractmethod
    def position(self, row: int, request: str) -> int:
        """Where a request stands in the batch, of which ``row`` is its first row of logits."""

    def rewind(self) -> None:  # noqa: B027 - most engines' calls do not depend on what was committed since
        """Let the last call be made again as it was, although its tokens have been committed since."""

    def anew(self) -> Driver | None:
        """Another instance on this engine, which is told of the requests at hand and of nothing before; None: there is
        no telling it."""
        return None

    def _commit(self, active: ActiveRequest, tokens: Sequence[int]) -> None:
        active.committed += tokens
        self.driver.commit(active.request, tokens)

    def _begin(self) -> None:
        self.step += 1
        pool = self.pool
        self.driver.begin(pool.left, [active.request for active in pool.entered], pool.possible_swaps())
        pool.settle()

    @abstractmethod
    def _sample(self, drafts: int, accepted: int) -> Iterator[Observation]:
        """The rest of a step: logits, ``apply``, new tokens."""
