"""Search for a case in which a plugin acts, if the given case lacks an argument or a token."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lpkit.runtime import Request
from lpkit.sampling_params import GREEDY_EPSILON

from lpkit_conformance import traces
from lpkit_conformance.activity.acting import Activity, activity
from lpkit_conformance.activity.declined import fails
from lpkit_conformance.activity.stand import stepped
from lpkit_conformance.errors import CaseError, StandinError
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.results import Blocked
from lpkit_conformance.settings.cases import GENERATED, MOST_GENERATED, Case
from lpkit_conformance.settings.derived import derived_cases, guessed_cases
from lpkit_conformance.subject.setup import MAX_MODEL_LEN
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api.tokenizer import leaves

SOON = 4
"""Output tokens by which a request should be edited: short programs end then."""

SHORT = 8
"""Most output tokens of requests for a plugin that may act shortly before they end."""

ENOUGH = 2
"""Number of edits in the first steps that rules out an accident."""

EARLY = 12
"""Output tokens in which the better of two derived cases has more edits: most programs end then."""

PLENTY = 26
"""Number of edits within these tokens that ends the search at a derived case: half the edits of four requests."""

MOST_SWEPT = 2
"""Derived cases whose trigger tokens are examined, if no derived case makes the plugin act unchanged."""

MOST_IDS = 64
"""Token ids of the arguments that a stream repeats in order."""

RUN, PLAIN = 8, 3
"""Length of a run of one token, and a token that is no argument."""

MANY = 8
"""Number of edits in the whole run that makes a single early edit credible."""


@dataclass(frozen=True)
class Found:
    """A case to use instead of the given case.

    Attributes:
        case: the case.
        why: the finding that led to it.
        soon: number of edits in the first steps of its requests.
        early: number of edits in these and some later steps.
    """

    case: Case
    why: str
    soon: int = 0
    early: int = 0

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Rank of a candidate: it acts soon, at all, without aged requests, and often."""
        return self.soon >= ENOUGH, self.early > 0, not self.case.generated, self.early


def search(subject: Subject) -> Found | None:
    """Return a case for which the plugin acts soon; None: no case is better, or the plugin raises."""
    given = activity(subject)
    soon = _often(given, 0)
    if given.raises or soon >= ENOUGH or (soon and len(given.lengths) >= MANY):
        return None
    best = _best(subject, _given(subject))
    if not given.acts and not subject.setup.case.fields.get("extra_args"):
        derived = derived_cases(subject.plugin.cls, subject.plugin.accepts)
        for candidates, plenty in ((_plain(derived), PLENTY), (_switched_on(subject, derived), 0)):
            if best is None or best.soon < ENOUGH:
                best = _best(subject, candidates, best, plenty)
        if best is None and subject.setup.trace is not None:
            best = _best(subject, _traced(subject, subject.setup.trace[0]))
    return None if best is None or best.case == subject.setup.case else best


def _best(subject: Subject, candidates: Iterable[Found], best: Found | None = None, plenty: int = 0) -> Found | None:
    """Return the candidate for which the plugin acts soonest and most often; stop at the first good candidate."""
    for candidate in candidates:
        acts = _tried(subject, candidate.case)
        first = min(acts.lengths, default=None)
        if first is None:
            if best is None and (acts.raises or fails(subject.having(case=candidate.case))):
                best = candidate  # else nobody would hear of the exception
            continue
        start = min(max(first - 1, 0), MOST_GENERATED) if first > SOON else 0
        if start:  # requests that are old enough to act soon
            why = "; ".join(part for part in (candidate.why, f"edits were first seen at {first} output tokens") if part)
            candidate = Found(replace(candidate.case, generated=start), why)
        tried = replace(candidate, soon=_often(acts, start), early=_often(acts, start, EARLY))
        if best is None or tried.rank > best.rank:
            best = tried
        if best.soon >= ENOUGH and best.early >= plenty:
            break
    return best


def _given(subject: Subject) -> Iterator[Found]:
    yield Found(subject.setup.case, "")
    yield from _sampled(subject.setup.case)
    yield from _written_out(subject.setup.case)
    yield from _triggered(subject, "")
    yield from _ended(subject.setup.case)


def _sampled(case: Case) -> Iterator[Found]:
    temperature = case.fields.get("temperature")
    if temperature is not None and temperature < GREEDY_EPSILON:
        sampled = Case.parse({name: value for name, value in case.to_json().items() if name != "temperature"})
        yield Found(sampled, "the plugin acts if the request is sampled, and not greedy")


def _ended(case: Case) -> Iterator[Found]:
    if case.fields.get("max_tokens") is None:
        with contextlib.suppress(CaseError):
            ended = Case.parse({**case.to_json(), "max_tokens": SHORT, GENERATED: 0})
            yield Found(ended, f"the plugin acts if max_tokens is {SHORT}")


def streams(subject: Subject) -> Iterator[Case]:
    """Yield the case with other tokens and lengths, for lines that depend on them, and with further arguments."""
    case, size = subject.setup.case, subject.setup.vocab_size
    numbers = [item for item in leaves(case.fields.get("extra_args")) if type(item) is int]
    ids = tuple([token for token in numbers if 0 <= token < size] or subject.model.named(case))[:MOST_IDS]
    most = min(case.fields.get("max_tokens") or MAX_MODEL_LEN, MOST_GENERATED) - SOON
    runs = tuple(token for token in (*ids[:2], PLAIN) for _ in range(RUN))
    yield from (candidate.case for candidate in (*_written_out(case), *_ended(case)))
    if raised := _raised(subject):
        yield replace(case, output_token_ids=raised)
    for outputs in (ids, runs):
        yield replace(case, output_token_ids=outputs)
    yield replace(case, prompt_token_ids=(*case.prompt_token_ids, *ids))
    for length in (max(numbers, default=0), MOST_GENERATED):
        yield replace(case, output_token_ids=runs, generated=max(min(length, most) - 1, 0))
    given = case.fields.get("extra_args") or {}
    for derived in derived_cases(subject.plugin.cls, subject.plugin.accepts):
        yield replace(derived, fields={**case.fields, "extra_args": {**derived.fields["extra_args"], **given}})


def _raised(subject: Subject) -> tuple[int, ...]:
    """Return tokens that the plugin raises in turn: it may raise the next only after the last was generated."""
    tokens, before = list[int](), set[int]()
    with contextlib.suppress(PluginError, Blocked, StandinError):
        driver, request = (
            drive(subject, 2),
            Request("raised", subject.params(0), subject.model.prompt("a", 5, 0), 10**6),
        )
        driver.begin(entering=[request])
        while len(tokens) < RUN:
            logits, after = stepped(subject, driver, [request])
            raised = set((after > logits)[0].nonzero().flatten().tolist())
            if not 0 < len(raised) <= MOST_IDS:
                break
            tokens.append(min(raised, key=lambda token: (token in before, token in tokens, token)))
            driver.commit(request, tokens[-1:])
            driver.begin()
            before = raised
    return tuple(tokens)


def _traced(subject: Subject, path: str) -> Iterator[Found]:
    """Yield cases with the arguments of a server's requests; a trace that hides values has names and types."""
    watch = traces.load(path).settings.get("watch", {"arguments": {}})
    for arguments in dict.fromkeys(tuple(given.items()) for given in watch["arguments"].values()):
        types = [str(kind).strip("<>") for _, kind in arguments]
        for case in guessed_cases([key for key, _ in arguments], types):
            if subject.plugin.accepts(case.params()):
                yield Found(case, "derived from the arguments in the trace")


def _written_out(case: Case) -> Iterator[Found]:
    """Yield cases whose output is a list of their arguments: phrases, markers and sequences are lists of token ids."""
    for name, value in (case.fields.get("extra_args") or {}).items():
        for ids in value if isinstance(value, list) and value and isinstance(value[0], list) else [value]:
            if isinstance(ids, list) and len(ids) > 1 and all(type(token) is int and token >= 0 for token in ids):
                written = replace(case, output_token_ids=tuple(ids))
                yield Found(written, f"the plugin acts once {name} was generated")


def _plain(derived: Iterable[Case]) -> Iterator[Found]:
    return (Found(case, "derived from the declared parameters") for case in derived)


def _switched_on(subject: Subject, derived: Sequence[Case]) -> Iterator[Found]:
    for case in derived[:MOST_SWEPT]:
        yield from _triggered(subject.having(case=case), "derived from the declared parameters; ")


def _triggered(subject: Subject, before: str) -> Iterator[Found]:
    case = subject.setup.case
    for stance in activity(subject).triggers:
        if stance.prompted is not None:
            prompt = (*case.prompt_token_ids, stance.prompted)
            why = f"{before}the plugin acts if token {stance.prompted} is in the prompt"
            yield Found(replace(case, prompt_token_ids=prompt), why)
            continue
        token = stance.best if stance.last is None else stance.last
        assert token is not None
        where = "has the largest logit" if stance.last is None else "was generated"
        # A token that the model is made to emit is one that it likes, too.
        why = f"{before}the plugin acts if token {token} {where}"
        yield Found(replace(case, output_token_ids=(*case.output_token_ids, token)), why)


def _tried(subject: Subject, case: Case) -> Activity:
    return activity(subject if case == subject.setup.case else subject.having(case=case))


def _often(edits: Activity, start: int, steps: int = SOON) -> int:
    """Count the edits of requests in these steps from this length on."""
    return sum(start <= length <= start + steps for length in edits.lengths)
