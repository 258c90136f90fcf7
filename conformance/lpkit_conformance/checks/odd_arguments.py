"""Odd arguments, derived from a case: what clients send by mistake, and what the plugin makes of it among others."""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from lpkit.runtime import Request
from lpkit.sampling_params import SamplingParams

from lpkit_conformance.checks.declined import watched
from lpkit_conformance.hosts import Driver, PluginError, drive
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.hosts.requests import ActiveRequest, make_active
from lpkit_conformance.oracle.compare import first_difference
from lpkit_conformance.oracle.verify import solo_runs
from lpkit_conformance.programs.generate import Arrive
from lpkit_conformance.settings.cases import make_params
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
    list(range(100)),
    {},
    {"a": 1},
)
"""What clients send by mistake, whatever the argument."""

ODD_WORDS = ("", " ", "\n", "\u2603\u0301", "\x00", *SPECIAL[1:], "two words")
"""Texts without a token, of several tokens, or of one that a client should not name."""

MOST_KEYS = 6
"""Of those that the plugin reads and no case gives."""

LONGER_THAN_LIMITS = 2048
"""Of a list: `lpkit.ragged` holds 1,024, and who thinks of a limit rarely thinks of more."""

STEPS = 2
TOGETHER = 8
"""Odd requests that one neighbour outlives."""


def odd_requests(subject: PluginUnderTest) -> Iterator[tuple[str, Any, SamplingParams]]:
    """The case with one argument replaced by each odd value, with each that the plugin reads besides, and without each
    of vLLM's own fields that it names."""
    given = subject.case.fields.get("extra_args") or {}
    for key, value in given.items():
        for odd in (*ODD_VALUES, *relatives(value, subject.vocab_size)):
            yield key, odd, _params(subject, key, odd)
    for key in _read_besides(subject)[:MOST_KEYS] if given else ():
        for odd in ODD_VALUES:
            yield key, odd, _params(subject, key, odd)
    for name in subject.case.fields:
        params = _without(subject, name) if name != "extra_args" else None
        if params is not None:
            yield name, getattr(params, name), params


def _without(subject: PluginUnderTest, name: str) -> SamplingParams | None:
    """The case of a client that leaves a field to its default; None if the others do not fit that."""
    fields = {key: item for key, item in copy.deepcopy(subject.case.fields).items() if key != name}
    try:
        return make_params({**fields, "max_tokens": fields.get("max_tokens")})
    except Exception:  # of vLLM's classes not all are ValueError
        return None


def _params(subject: PluginUnderTest, key: str, value: Any) -> SamplingParams:
    fields = copy.deepcopy(subject.case.fields)
    fields["extra_args"][key] = copy.deepcopy(value)
    return make_params(fields)


def _read_besides(subject: PluginUnderTest) -> list[str]:
    """The keys that validation reads of a request with the case's arguments, and that the case does not give."""
    read: set[str] = set()
    subject.refusal(make_params(copy.deepcopy(subject.case.fields), read))
    return sorted(read - set(subject.case.fields["extra_args"]))


def relatives(value: Any, vocab_size: int) -> Iterator[Any]:
    """Values of the case's own form: around the vocabulary's size, in long, repetitive and unsorted lists, nested."""
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
        for key, item in [*value.items()][:1]:
            yield {**value, str(vocab_size): item}
            yield {**value, "-1": item, "x": item}
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


@dataclass
class Served:
    """What became of one odd request.

    Attributes:
        argument: key and value, for a report.
        refusal: what ``validate_params`` raised; nothing else is known of such a request.
        error: what the plugin raised for it later.
        changed: the request's ``extra_args`` before, if they are others now.
        declined: what ``admit`` raised, which made the SDK decline the request.
        rows: its logits before and after each step; those of the second step have masked tokens.
        disturbed: which neighbour got different logits than alone.
        difference: in which way, as a comparison calls it: ``lost`` if the plugin left the row alone.
    """

    argument: str
    params: SamplingParams
    refusal: BaseException | None = None
    error: PluginError | None = None
    changed: dict[str, Any] | None = None
    declined: BaseException | None = None
    rows: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    disturbed: str = ""
    difference: str = ""


def serve_odd(subject: PluginUnderTest) -> list[Served]:
    """Every odd request of a subject, among others that are good; computed once for all checks."""
    if subject.odd_requests is None:
        subject.odd_requests = _Table(subject).serve()
    found = subject.odd_requests
    assert isinstance(found, list)
    return found


class _Table:
    """Three requests at a time: a neighbour that stays, an odd one, and a good one that comes and goes with it."""

    def __init__(self, subject: PluginUnderTest) -> None:
        self._subject = subject
        self._alone = {name: self._run_alone(name, steps) for name, steps in (("n", STEPS * TOGETHER), ("g", STEPS))}
        self._driver: Driver | None = None
        self._requests: list[Request] = []

    def serve(self) -> list[Served]:
        found = []
        for key, value, params in odd_requests(self._subject):
            served = Served(f"{key}={reprlib.repr(value)}", params)
            before = copy.deepcopy(dict(params.extra_args or {}))
            served.refusal = self._subject.refusal(params)
            if served.refusal is None:
                self._subject.completed(params)
                self._serve(served)
            if served.refusal is None and repr(dict(params.extra_args or {})) != repr(before):
                served.changed = before
            found.append(served)
        return found

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
        fresh = [self._odd(served.params), self._new("g").request]
        neighbour = self._requests[0] if self._driver else None
        if self._driver is None or neighbour is None or len(neighbour.output_token_ids) >= STEPS * TOGETHER:
            self._driver = drive(self._subject, 4)
            neighbour = self._new("n").request
            self._driver.begin(entering=[neighbour, *fresh])
        else:
            self._driver.begin([request.request_id for request in self._requests[1:]], fresh)
        self._requests = [neighbour, *fresh]
        for step in range(STEPS):
            if step:
                self._driver.begin()
            self._step(self._driver, served, masked=step > 0)

    def _step(self, driver: Driver, served: Served, masked: bool) -> None:
        subject, requests = self._subject, self._requests
        raw = subject.rows([(request.request_id, request.total_len) for request in requests])
        if masked:
            raw[1, ::5] = -math.inf
        before = driver.stage(raw, [request.params for request in requests])
        after = driver.step(before, requests)
        served.rows.append((before[1], after[1]))
        for row, name, who in ((0, "n", "its neighbour"), (2, "g", "the request that came after it in the update")):
            expected = self._alone[name][requests[row].total_len]
            found = first_difference(before[row : row + 1], expected.unsqueeze(0), after[row : row + 1])
            if found is not None and not served.disturbed:
                served.disturbed, served.difference = who, found[-1]
        wanted = [subject.emit(request.request_id, 0, len(request.output_token_ids)) for request in requests]
        for request, token in zip(requests, subject.sampled(wanted, after), strict=True):
            driver.commit(request, [token])

    def _new(self, name: str) -> ActiveRequest:
        return make_active(self._subject, Arrive(name, 0))

    def _odd(self, params: SamplingParams) -> Request:
        return Request("odd", params, self._subject.prompt("odd", 5, 0), 10**6)

    def _run_alone(self, name: str, steps: int) -> dict[int, torch.Tensor]:
        active = self._new(name)
        start = active.request.total_len
        active.request.output_token_ids += [0] * steps
        solo = solo_runs(self._subject)
        solo.prepare({name: active})
        rows = {start + n: solo.expected(name, start + n) for n in range(steps)}
        return {position: row for position, row in rows.items() if row is not None}
