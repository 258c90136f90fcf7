"""Odd arguments, derived from a case: values that clients send by mistake, and the plugin's response to them."""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any

import torch
from lpkit.columns.ragged import ListTooLongError
from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.activity.declined import watched
from lpkit_conformance.activity.stand import continued, stepped
from lpkit_conformance.expectation.compare import first_difference
from lpkit_conformance.expectation.solo import solo_runs
from lpkit_conformance.hosts import Driver, PluginError, drive
from lpkit_conformance.hosts.requests import ActiveRequest, make_active
from lpkit_conformance.processes.pulse import GIVEN
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.settings.cases import WatchedArgs, accepted_at, make_params, replaced
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.tokenizer import SPECIAL

ODD_VALUES: tuple[Any, ...] = (
    None,
    "",
    "x",
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63 - 1,
    2**63,
    0.0,
    -0.5,
    1e30,
    1e300,  # infinite as a float32
    math.nan,
    math.inf,
    [],
    [0],
    ["x"],
    [-1],
    [[1]],
    [1, "x", None, {"a": [True]}],
    list(range(100)),
    {},
    {"a": 1},
)
"""Values that clients send by mistake, for any argument."""

ODD_WORDS = ("", " ", "\n", "\u2603\u0301", "\x00", *SPECIAL[1:], "two words")
"""Texts without a token, of several tokens, or of a token that a client should not name."""

MOST_KEYS = 6
"""Odd values of arguments that the plugin reads and no case gives."""

LONGER_THAN_LIMITS = 2048
"""Longer than any list limit seen in practice (`lpkit.ragged` stops at 1,024)."""

MOST_ITEMS = 3
"""Items of a list that are tried at the ends of what is accepted, and keys of an object that are left out."""

MOST = 2**63 - 1

NAMED = (0, 1, 2)
"""Tokens that an argument names in turn."""

STEPS = 2
TOGETHER = 8
"""Odd requests served before the neighbour is replaced."""


def odd_requests(subject: Subject) -> Iterator[tuple[str, Any, SamplingParams]]:
    """Yield the case with one argument replaced by each odd value.

    These include the ends of the range that the plugin accepts. Further arguments that the plugin reads are added with
    odd values. Each argument, and each vLLM field that the case names, is left out.
    """
    given = subject.setup.case.fields.get("extra_args") or {}
    for key, value in given.items():

        def accepts(item: Any, key: str = key) -> bool:
            return subject.plugin.accepts(_params(subject, key, item))

        for odd in (*ODD_VALUES, *relatives(value, subject.setup.vocab_size), *ends(value, accepts)):
            yield key, odd, _params(subject, key, odd)
        if len(given) > 1:
            others = {name: copy.deepcopy(item) for name, item in given.items() if name != key}
            yield key, "left out", subject.setup.case.params(extra_args=others)
    for key in _read_besides(subject)[:MOST_KEYS] if given else ():
        for odd in ODD_VALUES:
            yield key, odd, _params(subject, key, odd)
    for name in subject.setup.case.fields:
        without = _without(subject, name) if name != "extra_args" else None
        if without is not None:
            yield name, getattr(without, name), without


def _without(subject: Subject, name: str) -> SamplingParams | None:
    """Return the case of a client that omits a field; None if the other fields are invalid without it."""
    fields = {key: item for key, item in copy.deepcopy(subject.setup.case.fields).items() if key != name}
    try:
        return make_params({**fields, "max_tokens": fields.get("max_tokens")})
    except Exception:  # of vLLM's classes not all are ValueError
        return None


def _params(subject: Subject, key: str, value: Any) -> SamplingParams:
    fields = copy.deepcopy(subject.setup.case.fields)
    fields["extra_args"][key] = copy.deepcopy(value)
    return make_params(fields)


def _read_besides(subject: Subject) -> list[str]:
    """Return the keys that validation reads of a request with the case's arguments, and that the case does not give."""
    read: set[str] = set()
    params = subject.setup.case.params()
    params.extra_args = WatchedArgs(params.extra_args or {}, read)
    subject.plugin.refusal(params)
    return sorted(read - set(subject.setup.case.fields["extra_args"]))


def relatives(value: Any, vocab_size: int) -> Iterator[Any]:
    """Yield values of the case's own form: around the vocabulary's size, in long, repetitive and unsorted lists,
    nested."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str):
        yield from (*ODD_WORDS, value * 100)
        return
    if isinstance(value, int):
        yield from (vocab_size - 1, vocab_size, vocab_size + 1, -vocab_size, 10 * vocab_size)
    elif isinstance(value, float):
        yield from (-value, value * 1e6, value * 1e-6)
    elif isinstance(value, Mapping):
        for item in [*value.values()][:1]:
            yield {**value, str(vocab_size): item}
            yield {**value, "-1": item, "x": item}
        for key, item in [*value.items()][:MOST_ITEMS]:
            yield {name: other for name, other in value.items() if name != key}
            for odd in (*relatives(item, vocab_size), None, "x", math.nan):
                yield {**value, key: odd}
    elif isinstance(value, list | tuple) and value:
        items = list(value)
        yield [*items[::-1], items[0]]
        yield items * 40
        yield [items]
        for odd in (*relatives(items[0], vocab_size), None, "x"):
            yield [*items, odd]
            yield [odd]
        yield [*items, *items[:1] * (max(vocab_size, LONGER_THAN_LIMITS) + 1)]


def ends(value: Any, accepts: Callable[[Any], bool]) -> Iterator[Any]:
    """Yield the accepted values furthest from a value of a case, the longest accepted list, and the value as other JSON
    types; of an object's entries, too."""
    if isinstance(value, bool | str) or not accepts(value):
        return
    if isinstance(value, int):
        yield from (str(value), float(value), [value])
        yield from (far if accepts(far) else _last(value, sign, accepts) for far, sign in ((MOST, 1), (-MOST - 1, -1)))
    elif isinstance(value, float):
        yield from (str(value), [value])
        for inside in filter(accepts, (value, math.copysign(1e-3, -value))):
            for outside in (math.copysign(1e308, inside), math.copysign(5e-324, inside)):
                yield _nearest(inside, outside, accepts)
    elif value:
        places: list[Any] = [*value]
        if not isinstance(value, Mapping):
            places = [*range(len(value))][:MOST_ITEMS]

            def fits(size: int) -> bool:
                return size <= LONGER_THAN_LIMITS and accepts(_extended(value, size))

            longest = _extended(value, _last(len(value), 1, fits))
            others = [item + n if type(item) is int else item for n, item in enumerate(longest)]
            yield others if accepts(others) else longest  # items that a neighbour does not have
        for place in places:
            for end in ends(value[place], partial(accepted_at, value, place, accepts)):
                yield replaced(value, place, end)


def _last(inside: int, step: int, accepts: Callable[[int], bool]) -> int:
    """Return the last accepted number in the direction of ``step``: in growing steps, then in shrinking ones."""
    grows = True
    while step and abs(inside) < MOST:
        accepted = accepts(inside + step)
        inside += accepted * step
        grows &= accepted
        step = step * 2 if grows else int(math.copysign(abs(step) // 2, step))
    return inside


def _nearest(inside: float, outside: float, accepts: Callable[[float], bool]) -> float:
    """Return the accepted number nearest to ``outside``, with the three digits in which authors write limits."""
    if accepts(outside):
        return outside
    while True:
        middle = math.copysign(math.sqrt(abs(inside)) * math.sqrt(abs(outside)), outside)
        middle = float(f"{middle:.3g}")
        if middle in (inside, outside):
            return inside
        inside, outside = (middle, outside) if accepts(middle) else (inside, middle)


def _extended(items: Sequence[Any], size: int) -> list[Any]:
    return [items[n % len(items)] for n in range(size)]


@dataclass
class Served:
    """Result of one odd request.

    Attributes:
        argument: key and value, for a report.
        refusal: the exception of ``validate_params``.
        error: the plugin's exception after admission.
        changed: the request's ``extra_args`` before, if the plugin changed them.
        declined: the exception of ``admit``, which made the SDK decline the request.
        rows: its logits before and after each step; the second step's logits have masked tokens.
        edited: True if a row was changed although ``add_request`` returned False.
        disturbed: the neighbour that got different logits than alone.
        difference: kind of the difference, as a comparison names it: ``lost`` if the plugin left the row alone.
    """

    argument: str
    params: SamplingParams
    refusal: BaseException | None = None
    error: PluginError | None = None
    changed: dict[str, Any] | None = None
    declined: BaseException | None = None
    rows: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    edited: bool = False
    disturbed: str = ""
    difference: str = ""

    @property
    def too_long(self) -> bool:
        """True if the SDK declined the request because a list does not fit into its column."""
        return isinstance(self.declined, ListTooLongError)


@fact
def odd_served(subject: Subject) -> tuple[Served, ...]:
    """Ask about every odd request of a subject, and serve the accepted requests among good ones."""
    asked = tuple(starmap(Served, _answers(subject)))
    _Table(subject).serve(served for served in asked if served.refusal is None)
    return asked


@fact
def refused_served(subject: Subject) -> tuple[Served, ...]:
    """Serve every odd request that the plugin refuses among good ones, like a front end that does not ask."""
    refused = tuple(served for served in starmap(Served, _answers(subject)) if served.refusal is not None)
    _Table(subject).serve(refused)
    return refused


@fact
def tokens_named(subject: Subject) -> tuple[tuple[Served, ...], ...]:
    """Serve, for each argument that could name tokens, a request that names each of ``NAMED`` instead; leave arguments
    out for which one of these is refused."""
    asked = []
    for key, value in (subject.setup.case.fields.get("extra_args") or {}).items():
        several = isinstance(value, list) and bool(value)
        if type(value[0] if several else value) is int:
            params = [_params(subject, key, [token] if several else token) for token in NAMED]
            if all(map(subject.plugin.accepts, params)):
                asked.append(tuple(Served(key, item) for item in params))
    if asked:  # most classes name no token, and need no neighbours
        _Table(subject).serve(served for tokens in asked for served in tokens)
    return tuple(asked)


def longest_named(subject: Subject, key: str) -> tuple[Served, int]:
    """Serve a request whose argument names as many tokens as it may, from token 1 on; return their number, too."""

    def params(size: int) -> SamplingParams:
        return _params(subject, key, [*range(1, size + 1)])

    most = _last(1, 1, lambda size: size < subject.setup.vocab_size and subject.plugin.accepts(params(size)))
    served = Served(key, params(most))
    _Table(subject).serve([served])
    return served, most


def edited_for_itself(subject: Subject, served: Served) -> bool:
    """Return True if the row of an odd request is edited among the first requests of an instance, and the row of a
    request without arguments is not."""
    again, plain = Served(served.argument, served.params), Served("no arguments", subject.params(None))
    for each in (again, plain):
        _Table(subject).serve([each])
    return again.edited and not plain.edited


@fact
def _answers(subject: Subject) -> tuple[tuple[str, SamplingParams, BaseException | None], ...]:
    """Ask about every odd request in a process without an instance, such as a front end."""
    return tuple(
        (f"{key}={reprlib.repr(value)}", params, subject.plugin.refusal(params))
        for key, value, params in odd_requests(subject)
    )


class _Table:
    """Serves three requests at a time: a neighbour that stays, an odd request, and a good request that comes and
    goes with it."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._alone = {name: self._run_alone(name, steps) for name, steps in (("n", STEPS * TOGETHER), ("g", STEPS))}
        self._driver: Driver | None = None
        self._requests: list[Request] = []

    def serve(self, odd: Iterable[Served]) -> None:
        for served in odd:
            params = self._subject.completed(served.params)
            before = copy.deepcopy(dict(params.extra_args or {}))
            self._serve(served)
            if repr(dict(params.extra_args or {})) != repr(before):
                served.changed = before

    def _serve(self, served: Served) -> None:
        try:
            with watched() as declined:
                self._step_through(served)
            served.declined = next(iter(declined), None)
        except PluginError as error:
            served.error = error
        if served.error or served.disturbed:
            self._driver = None

    def _step_through(self, served: Served) -> None:
        odd = Request("odd", served.params, self._subject.model.prompt("odd", 5, 0), 10**6)
        fresh = [odd, self._new("g").request]
        driver, entering, leaving = self._driver, fresh, [request.request_id for request in self._requests[1:]]
        neighbour = self._requests[0] if driver else None
        most = min(self._subject.most_outputs(0) or STEPS * TOGETHER, STEPS * TOGETHER)
        if driver is None or neighbour is None or len(neighbour.output_token_ids) + STEPS > most:
            driver = self._driver = drive(self._subject, 4)
            neighbour = self._new("n").request
            entering, leaving = [neighbour, *fresh], []
        driver.given = GIVEN + served.argument
        driver.begin(leaving, entering)
        self._requests = [neighbour, *fresh]
        for step in range(STEPS):
            if step:
                driver.begin()
            self._step(driver, served, masked=step > 0)

    def _step(self, driver: Driver, served: Served, masked: bool) -> None:
        subject, requests = self._subject, self._requests
        raw = subject.model.rows([(request.request_id, request.total_len) for request in requests])
        if masked:
            raw[1, ::5] = -math.inf
        before, after = stepped(subject, driver, requests, raw)
        served.rows.append((before[1], after[1]))
        served.edited |= driver.declines("odd") and not torch.equal(before[1], after[1])
        for row, name, who in ((0, "n", "its neighbour"), (2, "g", "the request that came after it in the update")):
            expected = self._alone[name].get(requests[row].total_len)
            if expected is None:  # it has all its tokens
                continue
            difference = first_difference(before[row : row + 1], expected.unsqueeze(0), after[row : row + 1])
            if difference is not None and not served.disturbed:
                served.disturbed, served.difference = who, difference[-1]
        continued(subject, driver, requests, after)

    def _new(self, name: str) -> ActiveRequest:
        return make_active(self._subject, Arrive(name, 0))

    def _run_alone(self, name: str, steps: int) -> dict[int, torch.Tensor]:
        active = self._new(name)
        start = active.request.total_len
        active.request.output_token_ids += [0] * steps
        solo = solo_runs(self._subject)
        solo.prepare({name: active})
        rows = {start + n: solo.expected(name, start + n) for n in range(steps)}
        return {position: row for position, row in rows.items() if row is not None}
