"""A saved failure's operations as requests to a real engine, as far as an engine can be made to do them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpkit_conformance.engine.requests import ROOMY_MODEL_LEN, arguments
from lpkit_conformance.engine_checks.asks import Ask, Workload
from lpkit_conformance.programs.generate import Arrive, Finish, Idle, Preempt, Program, Speculate, Step, Swap

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
        subject: makes prompts, arguments and texts, as the hosts have them.
        unjudged_if_greedy: whether V1 calls the processor for greedy requests or not, as it likes.
    """
    lifetimes = _lifetimes(program)
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
    told = tuple(str(op) for op in program.ops)
    return Workload((tuple(asks.values()),), frozenset(users), frozenset(unjudged), (), (), told)


def left_to_the_engine(program: Program) -> list[str]:
    """Names of the parts of a program that no request can cause."""
    found = {words: None for op in program.ops if (words := LEFT_TO_THE_ENGINE.get(type(op)))}
    pieces = ["prompts in pieces"] if any(isinstance(op, Arrive) and op.chunks for op in program.ops) else []
    return [*found, *pieces, "the order of rows"]


def _lifetimes(program: Program) -> dict[Arrive, tuple[int, int]]:
    """At which step each request arrives, and how many tokens it gets before it finishes; those with any."""
    step = 0
    arrived: dict[str, tuple[Arrive, int]] = {}
    ended: dict[str, int] = {}
    for op in program.ops:
        if isinstance(op, Arrive) and len(arrived) - len(ended) < program.max_num_seqs:
            arrived.setdefault(op.request, (op, step))
        elif isinstance(op, Finish) and op.request in arrived:
            ended.setdefault(op.request, step)
        elif isinstance(op, Step):
            step += op.count
        elif isinstance(op, Speculate):
            step += 1
    spans = {op: (at, ended.get(name, step) - at) for name, (op, at) in arrived.items()}
    return {op: (at, tokens) for op, (at, tokens) in spans.items() if tokens > 0}
