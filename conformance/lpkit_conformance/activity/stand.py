"""A batch held at one step, so that the plugin can be applied to any logits repeatedly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from lpkit.runtime import Request

from lpkit_conformance.errors import StandinError
from lpkit_conformance.hosts import Driver, PluginError, alone, default_host, drive
from lpkit_conformance.instruments.edits import NoteEdits
from lpkit_conformance.programs.generate import Arrive, Op, Step
from lpkit_conformance.results import Blocked, Finding, Skipped
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject import worlds
from lpkit_conformance.subject.calls import Observation
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.setup import MAX_MODEL_LEN
from lpkit_conformance.subject.subject import Subject

Apply = Callable[[torch.Tensor], Any]

T = TypeVar("T")

MOST_ASKED = 24
"""Tokens of a history about which a plugin that forbids some is asked first: asking about each late step takes long."""

RUN_STEPS = 40
"""Steps of the run that shows where a plugin acts."""

LIFE = 1000
"""Steps of a request that has the engine to itself."""

NEVER_AGAIN = range(129, 389)
"""Output tokens of this request that it gets once: windows of 256 and 512 lose them, and they are more than 255."""


@dataclass(frozen=True)
class Stance:
    """A request at one step of its life.

    Attributes:
        variant: its arguments; None: it does not use the plugin.
        character: the key of its logits in the simulated model.
        length: tokens that it has generated.
        last, prompted, best: a token that is its last output, is in its prompt, or has the largest logit.
    """

    variant: int | None
    character: str
    length: int
    last: int | None = None
    prompted: int | None = None
    best: int | None = None

    def request(self, subject: Subject, name: str, most_asked: int = MOST_ASKED) -> Request:
        """Return the request as it enters a batch at this length: with its outputs, as after a preemption."""
        prompt = subject.model.prompt(self.character, 5, self.variant)
        params = subject.params(self.variant, salt=sum(self.character.encode()), prompt_len=len(prompt))
        plain = Request(name, params, prompt, 10**6)
        outputs = generated(subject, self.character, self.variant, plain, self.length, most_asked)
        if self.prompted is not None:
            prompt = [prompt[0], self.prompted, *prompt[1:]]
        if self.last is not None:
            outputs[-1:] = [self.last]
        return Request(name, params, prompt, 10**6, output_token_ids=outputs)


def forbids(subject: Subject) -> bool:
    """Return True if the plugin masks tokens that the model wants, in a run of all its requests."""
    return _masks(subject.home or subject)[1]


def masks(subject: Subject) -> bool:
    """Return True if the plugin masks any token in a run of all its requests."""
    return _masks(subject.home or subject)[0]


@fact
def _masks(subject: Subject) -> tuple[bool, bool]:
    masked = False
    everyone = range(len(subject.cases))  # neighbours with other cases, too
    host = default_host(subject, max(subject.setup.max_num_seqs, len(everyone)))
    with contextlib.suppress(PluginError, Blocked, StandinError):
        for seen in host.run([*arrivals(everyone), Step(RUN_STEPS)]):
            masked |= bool((seen.after.isneginf() & ~seen.before.isneginf()).any())
    return masked, any(
        active.committed != subject.model.emitted(active.logits_key, active.variant, len(active.committed))
        for active in host.pool.requests.values()
    )


def arrivals(variants: Iterable[int]) -> list[Op]:
    """Return a request of each variant."""
    return [Arrive(f"v{i}", i, character=f"variant {i}") for i in variants]


def life(subject: Subject) -> tuple[Subject, list[Op]]:
    """Return a request that has the engine to itself for a thousand steps, some of its tokens once, and its engine."""
    model, case = subject.model, subject.setup.case
    stream = model.emitted("life", 0, LIFE)
    unusual = (token for token in range(subject.setup.vocab_size) if token not in model.usual)
    for n, token in zip(NEVER_AGAIN, unusual, strict=False):
        stream[n] = token
    once = subject.having(case=replace(case, generated=0, output_token_ids=tuple(stream)))
    return once.within(worlds.LONG), [Arrive("life", 0), Step(LIFE)]


class Histories:
    """Outputs of requests; the plugin allowed each token when the request was served alone."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._served: dict[tuple[str, int | None, tuple[int, ...]], tuple[Driver, Request]] = {}

    def outputs(self, character: str, variant: int | None, request: Request, count: int) -> list[int]:
        """Return the first ``count`` tokens that a request with this prompt and these parameters generates."""
        subject = self._subject
        key = (character, variant, tuple(request.prompt_token_ids or ()))
        if key in self._served and len(self._served[key][1].output_token_ids) >= count:
            return self._served[key][1].output_token_ids[:count]
        with subject.as_imported():
            if key not in self._served:
                served = Request("alone", request.params, list(request.prompt_token_ids or ()), 10**6)
                self._served[key] = drive(subject, 2), served
            driver, served = self._served[key]
            done = len(served.output_token_ids)
            for _ in alone(subject, driver, served, character, variant, count - done, new=not done):
                pass
        return served.output_token_ids[:count]


@fact
def histories(subject: Subject) -> Histories:
    """Return the outputs that the plugin allows."""
    return Histories(subject)


def generated(
    subject: Subject, character: str, variant: int | None, request: Request, count: int, most_asked: int = MOST_ASKED
) -> list[int]:
    """Return a request's first ``count`` outputs; a plugin that forbids tokens is asked about the first of them."""
    if not forbids(subject):
        return subject.model.emitted(character, variant, count)
    asked = min(count, most_asked)
    allows = subject.home if subject.home is not None and asked <= MOST_ASKED else subject
    return [
        *histories(allows).outputs(character, variant, request, asked),
        *subject.model.emitted(character, variant, count, asked),
    ]


def allowed(subject: Subject, attempt: Callable[[int], T]) -> T:
    """Return ``attempt(most_asked)``; if the plugin raises there, ask it about every token of the histories."""
    try:
        return attempt(MOST_ASKED)
    except PluginError:
        if not forbids(subject):
            raise
    return attempt(MAX_MODEL_LEN**2)


@dataclass(frozen=True)
class Standing:
    """Some requests at one step.

    Attributes:
        logits: the plugin's input, ``[rows, vocab]``.
        again: applies the plugin to any logits of that shape; the engine's state does not advance.
        after: the plugin's output for ``logits``.
        driver: the instance.
        stances: the request of each row.
    """

    logits: torch.Tensor
    again: Apply
    after: torch.Tensor
    driver: Driver
    stances: tuple[Stance, ...]

    @property
    def acts(self) -> bool:
        """True if the plugin changes any of its rows."""
        return not torch.equal(self.logits, self.after)

    def located(self, finding: Finding, logits: torch.Tensor | None, cases: Sequence[Case]) -> Finding:
        """``finding`` with the request of its row, the step at which it stands, and the line that edits the row.

        ``logits``: the plugin's input that shows the defect, if it is known; ``cases``: of the requests.
        """
        if "row" not in finding.where:
            return finding
        row = int(finding.where["row"])
        stance = self.stances[row]
        case = "without the plugin's arguments" if stance.variant is None else cases[stance.variant % len(cases)].text
        where = {**finding.where, "output tokens": str(stance.length), "request": case}
        finding = replace(finding, where=where)
        if logits is None or finding.location:
            return finding
        with contextlib.suppress(Exception), NoteEdits(logits, row) as notes:  # a line is being looked for
            self.again(logits)
        return replace(finding, location=(notes.spoilt if finding.got in ("nan", "all -inf") else "") or notes.line)


def stepped(
    subject: Subject, driver: Driver, requests: Sequence[Request], raw: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a forward pass; return the rows before and after ``apply``. ``raw``: other logits than the model's."""
    if raw is None:
        raw = subject.model.rows([(request.request_id, request.total_len) for request in requests])
    before = driver.stage(raw, [request.params for request in requests])
    return before, driver.step(before, requests)


def continued(subject: Subject, driver: Driver, requests: Sequence[Request], after: torch.Tensor) -> None:
    """Give each request the token that the model wants next, or another if the plugin forbids it."""
    wanted = [subject.model.emit(request.request_id, 0, len(request.output_token_ids)) for request in requests]
    for request, token in zip(requests, subject.model.sampled(wanted, after), strict=True):
        driver.commit(request, [token])


def stand_at(subject: Subject, stances: Sequence[Stance]) -> Standing:
    """Return a new instance with these requests, each at its step, as after a preemption of all of them."""
    return allowed(subject, lambda most_asked: _stand_at(subject, stances, most_asked))


def _stand_at(subject: Subject, stances: Sequence[Stance], most_asked: int) -> Standing:
    driver = drive(subject, max(subject.setup.max_num_seqs, len(stances)))
    requests = [stance.request(subject, f"s{i}", most_asked) for i, stance in enumerate(stances)]
    driver.begin(entering=requests)
    raw = subject.model.rows(
        [(stance.character, request.total_len) for stance, request in zip(stances, requests, strict=True)]
    )
    for row, stance in enumerate(stances):
        if stance.best is not None:
            raw[row, stance.best] = raw[row].max() + 1.0
    before, after = stepped(subject, driver, requests, raw)
    return Standing(before, _again(driver, driver.context(requests)), after, driver, tuple(stances))


def stand_after(subject: Subject, ops: Iterable[Op], steps: int = 3) -> Standing:
    """Return a batch some steps into a run.

    Raises:
        Skipped: if the engine never calls ``apply`` for these requests.
    """
    host = default_host(subject, subject.setup.max_num_seqs)
    driver = host.driver
    calls: list[tuple[Any, ...]] = []
    latest: tuple[tuple[Any, ...], Observation] | None = None

    @contextmanager
    def spy(method: str, args: tuple[Any, ...]) -> Iterator[None]:
        if method == "apply":
            calls.append((args[0].clone(), args[1:]))
        yield

    with driver.watched(spy):
        for seen in host.run([*ops, Step(steps)]):
            if calls:
                latest = calls.pop(), seen
    if latest is None:
        raise Skipped("the engine never calls apply for these requests")
    (logits, context), seen = latest
    stances = []
    for row in seen.rows:
        active = host.pool.requests[row.request]
        length = max(row.position - active.request.prompt_len, 0)
        stances.append(Stance(active.variant, active.logits_key, length))
    host.rewind()
    return Standing(logits, _again(driver, context), seen.after, driver, tuple(stances))


def _again(driver: Driver, context: tuple[Any, ...]) -> Apply:
    def again(logits: torch.Tensor) -> Any:
        with torch.inference_mode():
            return driver.edit(logits, *context)

    return again
