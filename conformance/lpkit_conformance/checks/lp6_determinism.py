"""LP6: the same requests give the same logits, on every rank and for as long as the server runs."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lpkit_conformance.checks.base import STATE, Check
from lpkit_conformance.checks.ladder import mixed_arrivals, observed, parted, parting_of
from lpkit_conformance.checks.lazily import (
    Host,
    Subject,
    calls,
    compare,
    culprit,
    findings,
    module_state,
    np,
    parts,
    process_settings,
    solo,
    state,
    torch,
    trails,
    writes,
)
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Step
from lpkit_conformance.results import Failed, Finding, NeverActive
from lpkit_conformance.settings import class_code
from lpkit_conformance.settings.cases import Case, distinct
from lpkit_conformance.vllm_api.tokenizer import leaves

CHURN = 40
"""Requests that arrive and leave before each measurement of the state."""

CHURN_STEPS = 4
"""Tokens of each of these requests."""

AT_ONCE = 8
"""Number of these requests per batch.

Each step must weigh more than half a request, or objects that each step leaves behind go undetected.
"""

PASSING = 300
"""Requests that arrive and leave, each with different arguments, while another request stays."""

PASSING_BATCHES = 10
"""Batches of these requests that share the engine with it, one after the other."""

OVERFLOW = 2
"""Times the bound of a table of the class that many requests pass."""

PASSING_SECONDS = 2.0
"""Seconds of computing after which no further batch of them comes, once :data:`PASSING` have."""

MOST_TOKENS = 8192
"""The largest vocabulary in which requests are different, if the usual vocabulary has too few tokens."""

BLOCKS = 80
"""Measurements of growing state before it counts as growth: caches and windows of a few thousand entries fill up."""

BEYOND = 2 * CHURN * BLOCKS
"""Numbers that arguments go round, if they need not be token ids: none recurs in all blocks."""

ENOUGH = 16
"""Measurements of state that grows, when only the reason is asked for."""


PAUSE = 0.05
"""Seconds before each step of a plugin that starts threads, which then come further than without."""


class LP601(Check):
    """Two instances give the same logits.

    Each tensor-parallel rank samples with its own instance.

    Why: an unseeded random number, a clock, a thread, or the order of a set makes ranks choose different tokens, and
    the engine hangs or generates garbage.

    Fix: seed from the request; derive randomness from (seed, position); sort sets before using their order.
    """

    code, name, requires = "LP601", "two-instances-agree", ("LP101", "LP301", "LP108", "LP402")
    quick, suspects = "first", ("LP602", "LP605")

    def run(self, subject: Subject) -> str | None:
        self._compare(subject)
        if subject.setup.case.fields.get("seed") is not None:
            # Most clients give none, and the ranks must agree for them, too.
            fields = {name: value for name, value in subject.setup.case.fields.items() if name != "seed"}
            self._compare(subject.having(case=replace(subject.setup.case, fields=fields)), " without a seed")
        return None

    def _compare(self, subject: Subject, which: str = "") -> None:
        ops: list[Op] = [*mixed_arrivals(5), Step(4), Finish("r1"), Step(2)]

        def served(pause: float = 0.0) -> list[calls.Observation]:
            with process_settings.settings_kept(), subject.as_imported():  # each rank is a process
                return observed(subject, ops, pause)

        with process_settings.threads_started() as threads:
            first = served()
        torch.manual_seed(random.randrange(2**31))
        # What a thread has done by the next step depends on the machine.
        where = parted(first, served(PAUSE if threads else 0.0))
        if where is not None:
            name, line = parting_of(served, served)
            finding = Finding(
                f"two instances give different logits for the same requests{which}",
                {"row": str(where[1]), "step": str(where[0])},
                "equal logits",
                f"different logits, {PAUSE:g} s later in each step" if threads else "different logits",
                cause=advice.cause("thread", self.code).format(name=threads[0]) if threads else "",
                fix=advice.fix("thread", self.code) if threads else "",
                location=line,
                state=name,
            )
            raise Failed(finding)


class LP602(Check):
    """The plugin does not advance the global random state.

    The global generators of torch, numpy and Python stay unchanged.

    Why: the engine draws from it for every request without a seed. A run with a fixed engine seed is no longer
    reproducible, and workers diverge.

    Fix: use a ``torch.Generator`` of your own, seeded from the request and the length of its output; or `lpkit.rng`.
    """

    code, name, requires = "LP602", "leaves-global-rng", ("LP101", "LP301")

    def run(self, subject: Subject) -> str | None:
        def state() -> tuple[Any, ...]:
            return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())

        # States that a plugin with a fixed seed cannot have left behind.
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(int.from_bytes(os.urandom(4), "little"))
        before, ops = state(), [*mixed_arrivals(4), Step(3)]
        observed(subject, ops)
        after, size = state(), subject.setup.max_num_seqs
        changed = [
            name for name, old, new in zip(("torch", "random", "numpy"), before, after, strict=True) if old != new
        ]
        if changed:
            kinds = " and a ".join(advice.fix(name, self.code) for name in changed)
            general = advice.fix("general", self.code).format(kinds=kinds)
            fix = advice.fix("draws", *findings.readers_of(subject)) or general
            cls = subject.plugin.cls
            wrote = writes.follow(cls, lambda: parts.default_host(subject, size), state, lambda host: [*host.run(ops)])
            line = str(wrote.first or "")
            how = advice.sign(self.code, line) or "drew"
            summary = f"the plugin {how} {'from ' * (how == 'drew')}the global generator of {' and '.join(changed)}"
            name = trails.set_by(line)
            cause = advice.cause(how, self.code).format(name=f" `{name}`" if name else "")
            raise Failed(
                Finding(summary, {}, "an unchanged state", "a changed state", (), cause, fix, line, state=name)
            )
        return None


class LP603(Check):
    """State does not grow with the number of requests served.

    After hundreds of requests with different arguments, an instance holds as much as after the first dozens. A cache or
    a window of bounded size may fill up.

    Why: a server runs for weeks, so even a small leak per request, or per argument that a client chooses, exhausts
    its memory.

    Fix: forget a request when its row is removed or replaced (V1), or its slot is reused (V2). Give caches a bound:
    `functools.lru_cache(maxsize=...)`.
    """

    code, name, requires, method = "LP603", "no-growth", ("LP101", "LP301", "LP601", "LP113", "LP210"), STATE
    suspects = ("LP208",)  # the batch is large

    def run(self, subject: Subject) -> str | None:
        size = subject.setup.vocab_size
        sizes = self._sizes(subject, size)
        if not _grows(sizes):
            # A number need not be a token id, and the ids of a small vocabulary soon recur.
            size, sizes = BEYOND, []
            with contextlib.suppress(calls.PluginError):
                sizes = self._sizes(subject, size) if _takes_more(subject) else []
            if not _grows(sizes):
                return None
        whose = "request" if _grows(self._sizes(subject, most=ENOUGH)) else "argument"
        name, line = self._growing(subject, size)
        raise Failed(
            f"the instance keeps data of every {whose} that it has {'served' if whose == 'request' else 'been given'}",
            {"objects held": " -> ".join(map(str, sizes[-3:])), "requests": f"{CHURN} between two measurements"},
            "no growth",
            f"{(sizes[-1] - sizes[-2]) / CHURN:.1f} objects per request",
            cause=advice.cause("grows", self.code).format(name=name) if name not in ("", state.CALLABLES) else "",
            fix=advice.fix(whose, self.code),
            location=line,
        )

    def _growing(self, subject: Subject, numbers: int) -> tuple[str, str]:
        """Return the name of the state that grows most, and ``file:line`` of the last write that let it grow."""
        subject.plugin.restore_modules()
        host = parts.default_host(subject, AT_ONCE)
        _churn(subject, host, 0, numbers)
        root = state.State.of(host.processor, list(module_state.owners(subject.plugin.cls)))
        for name, value in [(name, root.get(name)) for name in root.places]:
            if state.is_authors_object(value) and hasattr(value, "__dict__"):
                root.add_attributes(name, value)

        def size(name: str) -> int:
            return _objects([root.get(name)], host.processor)

        before = {name: size(name) for name in root.places}
        _churn(subject, host, 1, numbers)
        name = max(before, key=lambda name: (size(name) - before[name], name.count(".")))
        grows = partial(size, name)
        wrote = writes.follow(
            type(host.processor), lambda: host, grows, lambda _: _churn(subject, host, 2, numbers, AT_ONCE)
        )
        line = str(wrote.last or "")
        return name if line else "", line

    @staticmethod
    def _sizes(subject: Subject, numbers: int = 0, most: int = 0) -> list[int]:
        """Measure the state after each block of requests: three blocks, and up to ``most`` while it grows.

        Args:
            numbers: as for :func:`_churn`.
            most: by default as many as a table of the class takes to fill.
        """
        most = most or max(BLOCKS, 3 + class_code.largest_bound(subject.plugin.cls).entries // CHURN)
        subject.plugin.restore_modules()  # what is cached already would not grow
        host = parts.default_host(subject, AT_ONCE)
        sizes: list[int] = []
        while len(sizes) < 3 or (len(sizes) < most and _grows(sizes)):
            _churn(subject, host, len(sizes), numbers)
            sizes.append(held(host.processor))
        return sizes


class LP608(Check):
    """A running request keeps its state, however many others come.

    While a request runs, hundreds of others with different arguments arrive and leave: twice as many as a table in the
    class's code holds. It gets the same as alone, and so does a request that arrives after them, or comes again.

    Why: if a table of bounded size drops or overwrites its oldest entry, a long request gets another request's
    arguments, or none. If a full table answers with an entry that it has, a new request gets another request's.

    Fix: keep what a running request uses with its row (V1) or slot (V2), whatever a table of all of them drops. Compute
    what a full table lacks.
    """

    code, name, requires, method = (
        "LP608",
        "keeps-running-state",
        ("LP101", "LP301", "LP601", "LP113", "LP202", "LP210"),
        STATE,
    )
    suspects = ("LP208",)  # the batch is large
    needs_action = True

    def run(self, subject: Subject) -> str | None:
        bound = class_code.largest_bound(subject.plugin.cls)
        crowd = _crowd(subject, max(PASSING, OVERFLOW * bound.entries))
        crowd.plugin.restore_modules()
        many = len(crowd.cases) - 1
        at_once = max(PASSING, many) // PASSING_BATCHES
        host = parts.default_host(crowd, 3 + at_once)
        played: list[Op] = []
        served: list[calls.Observation] = []

        def play(*ops: Op) -> None:
            played.extend(ops)
            served.extend(host.run(ops))

        play(Arrive("resident", 0), Step())
        began, start = time.process_time(), 1
        while start < many and (start <= PASSING or time.process_time() - began < PASSING_SECONDS):
            names = [(f"r{n}", n) for n in range(start, min(start + at_once, many))]
            names.append((f"again {start}", 1))
            arrivals = (Arrive(name, n, character="r1" if n == 1 else "") for name, n in names)
            play(*arrivals, Step(), *(Finish(name) for name, _ in names))
            start += at_once
        play(Arrive("late", many), Step(), Arrive("again", 0, character="resident"), Step())
        runs = solo.solo_runs(crowd)
        judged = [name for name in host.pool.requests if name in ("resident", "late") or name.startswith("again")]
        acted = runs.prepare({name: host.pool.requests[name] for name in judged})
        for observation in served:
            mismatch = compare.compare(observation, runs)
            if mismatch is not None:
                lost = None
                if many <= PASSING + 1:  # with more, it takes minutes
                    lost = culprit.find_culprit(crowd, played, host.max_num_seqs, mismatch, parts.default_host)
                key = "dropped" if mismatch.request == "resident" else "saturated"
                passed = min((observation.step - 1) * at_once, many)
                raise Failed(
                    f"a request gets different logits than alone once {passed} others with other arguments have come",
                    {"request": mismatch.request, "token id": str(mismatch.token), "step": str(observation.step)},
                    f"{mismatch.expected:g}",
                    f"{mismatch.got:g}",
                    cause=advice.cause(key, self.code),
                    fix=advice.fix(key, self.code),
                    location=lost.line if lost else bound.line,
                    state=lost.name if lost else "",
                )
        if not acted:
            raise NeverActive
        return None


def _crowd(subject: Subject, count: int) -> Subject:
    """Return the plugin with so many relatives of the case; in a larger vocabulary if the usual tokens recur."""
    crowds = []
    for size in sorted({subject.setup.vocab_size, min(max(count, subject.setup.vocab_size), MOST_TOKENS)}):
        there = subject.having(vocab_size=size)
        relatives = relatives_of(there, range(1, count + 2))
        crowds.append(replace(there, relatives=(subject.setup.case, *relatives)))
        if len({case.text for case in relatives}) > count:
            break
    return max(crowds, key=lambda crowd: len(crowd.cases))


def _churn(subject: Subject, host: Host, block: int, numbers: int, count: int = CHURN) -> None:
    """Serve a block of requests, and then the same few as after each block: these are the last in every row.

    ``numbers``: whole numbers of their arguments are less than this; 0: all have the arguments of the case.
    """
    start = block * CHURN
    if numbers:
        relatives = relatives_of(subject, range(start + 1, start + count + 1), numbers)
        host.serve(replace(subject, relatives=(subject.setup.case, *relatives)))
    for i in range(start, start + count, AT_ONCE):
        # A few tokens each: what is kept of every history grows too.
        names = [f"r{n}" for n in range(i, i + AT_ONCE)]
        arrivals = [Arrive(name, n) for n, name in enumerate(names, i)]
        for _ in host.run([*arrivals, Step(CHURN_STEPS), *map(Finish, names)]):
            pass
    last = [f"last {n} of {start}" for n in range(AT_ONCE)]
    for _ in host.run([*(Arrive(name, 0, 5) for name in last), Step(2), *map(Finish, last)]):
        pass


def relatives_of(subject: Subject, nths: Iterable[int], numbers: int = 0) -> list[Case]:
    """Return relatives of the subject's case, no two with equal arguments; whole numbers are less than ``numbers``."""
    setup = subject.setup
    return distinct(setup.case, subject.plugin.accepts, numbers or setup.vocab_size, nths)


def _takes_more(subject: Subject) -> bool:
    """Return True if whole numbers of the case may be larger than any token id."""
    size = subject.setup.vocab_size
    whole = [item for item in leaves(subject.setup.case.fields.get("extra_args") or {}) if type(item) is int]
    return any(0 <= item < size for item in whole) and size < BEYOND and bool(relatives_of(subject, [size], BEYOND))


def _grows(sizes: list[int]) -> bool:
    """The first block warms caches up; a leak goes on at the same pace."""
    return len(sizes) > 2 and min(sizes[-1] - sizes[-2], sizes[-2] - sizes[-3]) >= CHURN // 2


def held(processor: Any) -> int:
    """Objects in the containers that an instance reaches: through its attributes, its class and its module."""
    cached = 0
    reached: list[Any] = [vars(processor) if hasattr(processor, "__dict__") else {}]
    for owner in (type(processor), sys.modules.get(type(processor).__module__)):
        for value in vars(owner).values() if owner else ():
            if isinstance(value, dict | list | set | deque):
                reached.append(value)
            elif hasattr(value, "cache_info"):  # functools.cache
                info = value.cache_info()
                cached += info.currsize if info.maxsize is None else 0
    return cached + _objects(reached, processor)


def _objects(stack: list[Any], processor: Any) -> int:
    """Objects in these containers, and in all that they hold; ``processor``: objects of its package are opened, too."""
    seen: set[int] = set()
    count = 0
    plain, arrays = {int, float, str, bool, type(None)}, (torch.Tensor, np.ndarray)
    packages = {type(processor).__module__.split(".")[0], "lpkit"}
    while stack:
        item = stack.pop()
        if type(item) in plain or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            count += len(item)
            stack.extend(item.values())
            stack.extend(key for key in item if isinstance(key, tuple))
        elif isinstance(item, deque) and item.maxlen is not None:
            continue
        elif isinstance(item, list | tuple | set | frozenset | deque):
            count += len(item)
            stack.extend(item)
        elif isinstance(item, arrays):
            count += len(item) if item.ndim else 0
        elif type(item).__module__.split(".")[0] in packages:
            stack.append(getattr(item, "__dict__", {}))
    return count
