"""Plays programs: one function carries out their operations, in whatever engine and for whatever purpose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Op, Preempt, Resume, Speculate, Step, Swap

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class RequestSource:
    """The requests of a program. By default no operation has an effect."""

    def arrive(self, op: Arrive) -> None:
        """Add a request."""

    def finish(self, request: str) -> None:
        """End a request."""

    def preempt(self, request: str) -> None:
        """Take a request out of the batch."""

    def resume(self, request: str, new_list: bool) -> None:
        """Return a preempted request to the batch."""

    def swap(self, first: int, second: int) -> None:
        """Exchange two rows."""


class Steps(Protocol[T_co]):
    """An engine that runs steps, with the changes of requests since the last step."""

    def forward(self, drafts: int, accepted: int) -> Iterable[T_co]:
        """Run the batch once."""

    def idle(self) -> None:
        """Run a step without tokens."""


def play(ops: Iterable[Op], requests: RequestSource, engine: Steps[T]) -> Iterator[T]:
    """Carry out ``ops``; yields what the engine's steps yield."""
    for op in ops:
        if isinstance(op, Arrive):
            requests.arrive(op)
        elif isinstance(op, Finish):
            requests.finish(op.request)
        elif isinstance(op, Preempt):
            requests.preempt(op.request)
        elif isinstance(op, Resume):
            requests.resume(op.request, op.new_list)
        elif isinstance(op, Swap):
            requests.swap(op.first, op.second)
        elif isinstance(op, Idle):
            engine.idle()
        elif isinstance(op, Speculate):
            yield from engine.forward(op.drafts, op.accepted)
        elif isinstance(op, Step):
            for _ in range(op.count):
                yield from engine.forward(0, 0)
