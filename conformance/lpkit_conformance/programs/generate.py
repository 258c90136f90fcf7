"""Programs: operations on requests, independent of the runner. A host translates them to its own events.

An operation that does not apply (finishing a request that has finished) does nothing. So any subsequence of a program
is a program.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass


class Op:
    """One operation; its text appears in reports."""


@dataclass(frozen=True)
class Arrive(Op):
    """A new request. ``variant`` is the number of the case's relative; None: the request does not use the plugin.

    ``chunks`` is the number of partial prefills before its first token. ``twin_of`` shares that request's
    SamplingParams object and prompt. ``greedy`` forces temperature 0. Requests of one ``character`` get the same
    prompt, tokens and logits, so their results alone are computed once. By default every request has its own character.
    """

    request: str
    variant: int | None = 0
    prompt_len: int = 5
    chunks: int = 0
    twin_of: str | None = None
    greedy: bool = False
    character: str = ""

    def __str__(self) -> str:
        use = " without the plugin" if self.variant is None else ""
        extra = f", {self.chunks} partial prefills" if self.chunks else ""
        twin = f", twin of {self.twin_of}" if self.twin_of else ""
        return f"{self.request} arrives{use}{', greedy' if self.greedy else ''}{extra}{twin}"


@dataclass(frozen=True)
class Finish(Op):
    request: str

    def __str__(self) -> str:
        return f"{self.request} finishes"


@dataclass(frozen=True)
class Preempt(Op):
    request: str

    def __str__(self) -> str:
        return f"{self.request} is preempted"


@dataclass(frozen=True)
class Resume(Op):
    """``new_list``: with a copy of its output list, as under async scheduling."""

    request: str
    new_list: bool = False

    def __str__(self) -> str:
        return f"{self.request} resumes{' with a new output list' if self.new_list else ''}"


@dataclass(frozen=True)
class Swap(Op):
    """The attention backend exchanges two rows (V1)."""

    first: int
    second: int

    def __str__(self) -> str:
        return f"rows {self.first} and {self.second} are swapped"


@dataclass(frozen=True)
class Step(Op):
    """The engine runs the batch ``count`` times; each request that is past its prefill gets a token."""

    count: int = 1

    def __str__(self) -> str:
        return f"step x{self.count}" if self.count > 1 else "step"


@dataclass(frozen=True)
class Idle(Op):
    """A step without scheduled tokens: state is updated, nothing is applied."""

    def __str__(self) -> str:
        return "step without tokens"


@dataclass(frozen=True)
class Speculate(Op):
    """A step in which each decoding request brings up to ``drafts`` draft tokens, up to ``accepted`` right (V2)."""

    drafts: int = 2
    accepted: int = 1

    def __str__(self) -> str:
        return f"step with up to {self.drafts} drafts each, up to {self.accepted} accepted"


@dataclass(frozen=True)
class Program:
    """A named list of operations and the batch size it needs."""

    name: str
    ops: tuple[Op, ...]
    max_num_seqs: int = 8


def program(name: str, *ops: Op | Iterable[Op], max_num_seqs: int = 8) -> Program:
    flat: list[Op] = []
    for op in ops:
        if isinstance(op, Iterable):
            flat.extend(op)
        else:
            flat.append(op)
    return Program(name, tuple(flat), max_num_seqs)


_CAST = (("s0", 1, False), ("s1", 4, False), ("s2", 7, False), ("s3", 4, True), ("s4", 7, False), ("s5", 1, False))
"""Characters of a soak, with the length of the prompt and True for greedy. They are few, as each is also run alone."""


def soak(seed: int, steps: int = 60, max_num_seqs: int = 8, drafts: bool = False) -> Program:
    """Everything at once, at random: arrivals, departures, preemptions, swaps, partial prefills, idle steps."""
    rng = random.Random(f"soak {seed}")
    ops: list[Op] = []
    running: list[str] = []
    waiting: list[str] = []
    number = 0
    for _ in range(steps):
        # Sometimes half of the batch leaves at once and few arrive: such updates hold every kind of change.
        rush = rng.random() < 0.1
        leaving, coming, swapping = (0.5, 0.4, 0.7) if rush else (0.08, 0.45, 0.25)
        for request in list(running):
            chance = rng.random()
            if chance < leaving:
                running.remove(request)
                ops.append(Finish(request))
            elif chance < leaving + 0.04:
                running.remove(request)
                waiting.append(request)
                ops.append(Preempt(request))
        while len(running) < max_num_seqs and rng.random() < coming:
            if waiting and rng.random() < 0.6:
                request = waiting.pop(rng.randrange(len(waiting)))
                ops.append(Resume(request, rng.random() < 0.5))
            else:
                request = f"r{number}"
                number += 1
                variant = rng.choice([None, 0, 1, 2, 3])
                character, length, greedy = rng.choice(_CAST)
                chunks = rng.choice([0, 0, 0, 1, 2]) if length > 2 else 0
                ops.append(Arrive(request, variant, length, chunks, None, greedy, character))
            running.append(request)
        while len(running) > 1 and rng.random() < swapping:
            ops.append(Swap(*rng.sample(range(len(running)), 2)))
        if rng.random() < 0.08:
            ops.append(Idle())
        if drafts and rng.random() < 0.5:
            wanted = rng.randint(1, 3)
            ops.append(Speculate(wanted, rng.randint(0, wanted)))
        else:
            ops.append(Step())
    return Program(f"soak seed {seed}", tuple(ops), max_num_seqs)
