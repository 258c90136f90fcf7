"""A saved failure's operations as requests to a real engine, as far as an engine can be made to do them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpkit_conformance.checks.engine.asks import Ask, Workload
from lpkit_conformance.engine.requests import ROOMY_MODEL_LEN, arguments
from lpkit_conformance.programs.generate import Arrive, Idle, Preempt, Program, Speculate, Swap
from lpkit_conformance.programs.play import RequestSource, play

if TYPE_CHECKING:
    from lpkit_conformance.subject.subject import Subject

LEFT_TO_THE_ENGINE = {
    Preempt: "preemptions",
    Swap: "swaps of rows",
    Idle: "steps without tokens",
    Speculate: "drafts",
}
"""Operations that no request can cause, and their names in a report."""


def workload(program: Program, subject: Subject, unjudged_if_greedy: bool) -> Workload:
    """The program's requests: when each arrives, its prompt, its arguments, how many tokens it gets, and which.

    Args:
        unjudged_if_greedy: whether V1 calls the processor for greedy requests or not, as it likes.
    """
    lifetimes = _Lifetimes(program).lifetimes()
    asks: dict[str, Ask] = {}
    users: set[str] = set()
    for number, (op, (at, tokens)) in enumerate(lifetimes.items()):
        twin = asks.get(op.twin_of or "")
        name, variant = op.character or op.request, op.variant
        case = subject.cases[variant % len(subject.cases)] if variant is not None else None
        if twin is not None:
            prompt, params = twin.prompt_token_ids, {**twin.params, "max_tokens": tokens}
        else:
            prompt = tuple(subject.model.prompt(name, max(op.prompt_len, op.chunks + 1), variant))
            params = arguments(case, tokens, not op.greedy, number)
        begun = case.generated if case is not None else 0
        tokens = min(tokens + begun, ROOMY_MODEL_LEN - len(prompt))
        params["max_tokens"] = tokens
        text = tuple(subject.model.emitted(name, variant, tokens))
        asks[op.request] = Ask(op.request, prompt, params, at, logits=True, text=text)
        if variant is not None:
            users.add(op.request)
    unjudged = {name for name, ask in asks.items() if unjudged_if_greedy and not ask.params["temperature"]}
    listed = tuple(str(op) for op in program.ops)
    return Workload((tuple(asks.values()),), frozenset(users), frozenset(unjudged), (), (), listed)


def left_to_the_engine(program: Program) -> list[str]:
    """Names of the parts of a program that no request can cause."""
    parts = {words: None for op in program.ops if (words := LEFT_TO_THE_ENGINE.get(type(op)))}
    pieces = ["prompts in pieces"] if any(isinstance(op, Arrive) and op.chunks for op in program.ops) else []
    return [*parts, *pieces, "the order of rows"]


class _Lifetimes(RequestSource):
    """Plays a program to learn when requests arrive and finish, in steps."""

    def __init__(self, program: Program) -> None:
        self._size, self._step = program.max_num_seqs, 0
        self._arrived: dict[str, tuple[Arrive, int]] = {}
        self._ended: dict[str, int] = {}
        for _ in play(program.ops, self, self):
            pass

    def arrive(self, op: Arrive) -> None:
        if len(self._arrived) - len(self._ended) < self._size:
            self._arrived.setdefault(op.request, (op, self._step))

    def finish(self, request: str) -> None:
        if request in self._arrived:
            self._ended.setdefault(request, self._step)

    def forward(self, drafts: int, accepted: int) -> tuple[()]:
        self._step += 1
        return ()

    def idle(self) -> None:
        """Do nothing: no request gets a token."""

    def lifetimes(self) -> dict[Arrive, tuple[int, int]]:
        """Return the step at which each request arrives, and how many tokens it gets; requests without any are left
        out."""
        spans = {op: (at, self._ended.get(op.request, self._step) - at) for op, at in self._arrived.values()}
        return {op: (at, tokens) for op, (at, tokens) in spans.items() if tokens > 0}
