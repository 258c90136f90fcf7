"""A recorded trace as requests to a real engine, and how much of the trace that engine then did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from lpkit_conformance.checks.engine.asks import Ask, Workload
from lpkit_conformance.engine import drafted
from lpkit_conformance.engine.requests import ROOMY_MODEL_LEN, arguments
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.settings.cases import VARIANTS
from lpkit_conformance.traces import Trace, V1Step, V2Step, kinds
from lpkit_conformance.traces.patterns import users
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

if TYPE_CHECKING:
    from lpkit_conformance.settings.cases import Case
    from lpkit_conformance.subject.subject import Subject

LONGEST_PROMPT = 1024
"""Longer prompts are cut: what a tiny engine computes for one makes no difference to a row."""

RUN_UP = 16
"""The most output tokens that a request has generated when the trace begins; the engine generates them first."""

MOST_JUDGED: dict[Runner, int] = {V1: 4000, V2: 400}
"""Output tokens that requests which are judged have together, about: each is served alone, too."""

SCHEDULING = ("max_num_batched_tokens", "num_gpu_blocks_override", "block_size")
"""Settings that decide where prompts are split and which requests wait. A server's traces lack them."""


@dataclass(frozen=True)
class Stay:
    """A request in the batch of a trace.

    Attributes:
        first, last: the steps with its first and its last row.
        prompt: how long its prompt is.
        tokens: how many it generates.
        ahead: how many of them before ``first``: the trace's first step may stand for many.
    """

    first: int
    last: int
    prompt: int
    tokens: int
    ahead: int


def stays(trace: Trace) -> dict[str, Stay]:
    """Stays of the requests that had a row, in order of arrival."""
    rows: dict[str, list[int]] = {}
    for number, step in enumerate(trace.steps):
        for name in _who(step):
            rows.setdefault(name, []).append(number)
    placed = {added.request: number for number, step in enumerate(trace.v2_steps) for added in step.added}
    turn = {name: number for number, name in enumerate(placed)}  # V2 sorts the rows of those that come together
    lens = trace.output_lens
    present = {}
    for name, steps in sorted(rows.items(), key=lambda item: (item[1][0], turn.get(item[0], 0))):
        first, prompt = steps[0], trace.requests[name].prompt_len
        ahead = min(lost := max(len(trace.steps[first].tokens.get(name, ())) - 1, 0), RUN_UP)
        tokens = lens[name] - lost + ahead - drafted.too_late(trace, name, steps[-1])
        unseen = "watch" in trace.settings and (first == 0 or placed.get(name, first) < first)
        if unseen and name in placed and prompt > 1 and name not in trace.v2_steps[first].applies[0].discarded:
            # Its prompt ends with what it generated in steps that a V2 processor does not see.
            prompt, ahead, tokens = prompt - 1, ahead + 1, tokens + 1
        present[name] = Stay(first, steps[-1], min(prompt, LONGEST_PROMPT), tokens, ahead)
    return present


def _who(step: V1Step | V2Step) -> Iterator[str]:
    """The requests that have a row of logits in a step."""
    if isinstance(step, V2Step):
        yield from dict.fromkeys(name for call in step.applies for name in call.rows)
    elif step.applied:
        yield from step.rows


def recorded_settings(trace: Trace, roomy: EngineSettings) -> EngineSettings:
    """Settings for the trace: those of its recording, as far as they are known."""
    roomy = replace(roomy, extra=drafted.extra(trace))
    recorded = {name: trace.settings[name] for name in SCHEDULING if trace.settings.get(name) is not None}
    if any(name in trace.settings for name in SCHEDULING):
        return replace(roomy, max_num_seqs=trace.max_num_seqs, max_model_len=trace.max_model_len, **recorded)
    need = max(stay.prompt + stay.tokens for stay in stays(trace).values())
    return replace(roomy, max_num_seqs=trace.max_num_seqs, max_model_len=max(ROOMY_MODEL_LEN, need + LONGEST_PROMPT))


def workload(
    trace: Trace,
    pattern: str,
    subjects: Sequence[Subject],
    unjudged_if_greedy: bool,
    max_model_len: int,
) -> Workload:
    """The trace's requests: when each comes and leaves, how long its prompt is, its arguments, and what it writes.

    Args:
        trace, pattern: as the hosts replay them.
        subjects: the plugin with each case; they make prompts, arguments and texts.
        unjudged_if_greedy: whether V1 calls the processor for greedy requests or not, as it likes.
        max_model_len: of the engine.
    """
    present = stays(trace)
    names = list(trace.requests)
    uses = dict(zip(names, users(pattern, trace.settings, names), strict=True))
    cast = {name: _character(trace, name, number, uses[name], subjects) for number, name in enumerate(present)}
    lead = {name: stay.ahead + cast[name].generated for name, stay in present.items()}
    begin = max(lead.values()) - min(stay.first for stay in present.values())
    judged = _judged(trace, present)
    texts = drafted.words(trace, subjects)
    recorded = {name: texts[name] for name, played in cast.items() if texts and not played.has_words}
    asks = []
    refused: set[str] = set()
    for number, (name, stay) in enumerate(present.items()):
        played = cast[name]
        words = recorded.get(name)
        prompt = words.prompt if words else tuple(played.subject.model.prompt(name, stay.prompt, played.variant))
        prompt = prompt[-(max_model_len - 1) :]
        tokens = min(max(stay.tokens + lead[name] - stay.ahead, 1), max_model_len - len(prompt))
        text = words.text if words else tuple(played.subject.model.emitted(name, played.variant, tokens))
        at = begin + stay.first - lead[name]
        greedy = number % 4 == 3 and not unjudged_if_greedy
        params = arguments(played.case, tokens, not greedy, number)
        if drafted.drafts(trace):
            refused |= params.keys() & set(drafted.REFUSED)
            params = {key: value for key, value in params.items() if key not in drafted.REFUSED}
        until = None if stay.tokens else at + stay.last - stay.first + 1
        asks.append(Ask(name, prompt, params, at, until, name in judged, text if name in judged else ()))
    using = frozenset(name for name in present if uses[name])
    summary = (f"{len(asks)} requests of the trace {trace.path or trace.name}; {len(using)} use the plugin",)
    beside = frozenset(present) - judged
    notes = [*_left_out(trace, present, beside), *drafted.left_out(trace, texts, len(texts) - len(recorded))]
    if refused:
        notes.append(f"requests are without {', '.join(sorted(refused))}, which vLLM refuses next to drafts")
    return Workload((tuple(asks),), using, beside, (), (), summary, beside, tuple(notes))


@dataclass(frozen=True)
class _Character:
    """The part that a request of the trace plays: its case, and the subject that the case is of."""

    subject: Subject
    variant: int | None
    case: Case | None

    @property
    def generated(self) -> int:
        """Number of tokens that it has generated when it arrives."""
        return self.case.generated if self.case else 0

    @property
    def has_words(self) -> bool:
        """True if the case names the end of its prompt, or output."""
        return self.case is not None and bool(
            self.case.prompt_token_ids or self.case.output_token_ids or self.generated
        )


def _character(trace: Trace, name: str, number: int, uses: bool, subjects: Sequence[Subject]) -> _Character:
    """Return a request's character: with its arguments in the server, if the trace has their values as a case."""
    watch: Mapping[str, Any] = trace.settings.get("watch", {})
    arguments = watch["arguments"].get(name) if watch.get("values") else None
    if uses and arguments is not None:
        for subject in subjects:
            if subject.setup.case.fields.get("extra_args") == arguments:
                return _Character(subject, 0, subject.setup.case)
    subject = subjects[number % len(subjects)]
    variant = number // len(subjects) % min(len(subject.cases), VARIANTS) if uses else None
    return _Character(subject, variant, subject.cases[variant] if variant is not None else None)


def _judged(trace: Trace, present: Mapping[str, Stay]) -> frozenset[str]:
    """Return the requests to serve alone, too: as many as there is time for, beginning near the trace's end."""
    culprit = trace.settings.get("watch", {}).get("request")
    order = sorted(present, key=lambda name: (name != culprit, -present[name].last, present[name].first))
    judged: list[str] = []
    left = MOST_JUDGED[trace.runner]
    for name in order:
        if left > 0 and present[name].tokens:
            judged.append(name)
            left -= present[name].tokens
    return frozenset(judged)


def _left_out(trace: Trace, present: Mapping[str, Stay], beside: frozenset[str]) -> Iterator[str]:
    """Sentences about each departure from the recording."""
    if cut := sum(trace.requests[name].prompt_len > LONGEST_PROMPT for name in present):
        yield f"{cut} prompts are cut to {LONGEST_PROMPT} tokens"
    if cut := sum(len(trace.steps[stay.first].tokens.get(name, ())) - 1 > RUN_UP for name, stay in present.items()):
        yield f"{cut} requests have generated {RUN_UP} tokens when the trace begins, and not as many as in the server"
    if late := [name for name in beside if present[name].tokens]:
        yield f"{len(late)} of {len(present)} requests are served in the batch only, and not judged: there are many"


def met(trace: Trace, steps: Sequence[V1Step | V2Step]) -> list[str]:
    """Sentences about the events of the trace that occur in ``steps``, recorded while an engine served it."""
    wanted, did = list(_batches(trace.steps)), list(_batches(steps))
    same, exact = _in_order([rows for rows, _ in wanted], [rows for rows, _ in did]), _in_order(wanted, did)
    changes = "batch updates" if trace.runner == V1 else "arrivals in the same slots"
    lines = [
        f"met: {same} of the trace's {len(wanted)} batches have the same requests in the same rows, "
        f"{exact} by the same {changes}"
    ]
    asked, came = (Counter(kind for step in each for kind in kinds(step)) for each in (trace.steps, steps))
    counts = ", ".join(f"{EVENTS[kind]} {came[kind]} of {asked[kind]}" for kind in EVENTS if asked[kind])
    return [*lines, f"met, in steps: {counts}"] if counts else lines


EVENTS = {
    "add": "arrivals",
    "remove": "removals",
    "move": "moves",
    "swap": "swaps",
    "resume": "requests that resume",
    "partial prefill": "prompts in pieces",
    "cut": "lists that shrink",
    "placeholder": "placeholders",
    "split": "several calls",
    "draft": "drafts",
}
"""Words for the events that are counted, by their names in the format."""


def _batches(steps: Sequence[V1Step | V2Step]) -> Iterator[tuple[Any, Any]]:
    """The rows of every step that has any, and the changes since the previous step."""
    changes: list[Any] = []
    for step in steps:
        if isinstance(step, V2Step):
            rows: Any = tuple(call.rows for call in step.applies)
            changes += [(added.request, added.slot) for added in step.added]
        else:
            rows = step.rows
            if (update := step.update) is not None:
                added = tuple((entry.row, entry.request) for entry in update.added)
                changes.append((update.removed, added, update.moved))
        if any(_who(step)):
            yield rows, tuple(changes)
            changes = []


def _in_order(wanted: list[Any], did: list[Any]) -> int:
    """Number of items of the first that occur in the second, in this order."""
    return sum(block.size for block in SequenceMatcher(None, wanted, did, autojunk=False).get_matching_blocks())


def has_swaps(trace: Trace) -> bool:
    """True if rows were swapped in the trace, as by an engine that sorts its batch."""
    return trace.runner == V1 and any("swap" in kinds(step) for step in trace.v1_steps)
