"""Traces with more than one known token per request and step: asynchronous scheduling, and drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lpkit_conformance.traces import Trace, kinds

if TYPE_CHECKING:
    from lpkit_conformance.subject.subject import Subject

LOOKED_UP = ("ngram", "ngram_gpu")
"""Drafting methods without a model, which a tiny engine can run."""

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
"""Speculative decoding without a second model: drafts are looked up in what was written so far."""

REFUSED = ("min_p", "logit_bias")
"""Arguments that vLLM refuses next to drafts."""


class DraftedTokens(NamedTuple):
    """Tokens of a request: its prompt, and what it writes."""

    prompt: tuple[int, ...] = ()
    text: tuple[int, ...] = ()


def extra(trace: Trace) -> dict[str, Any]:
    """``EngineSettings.extra`` of an engine for the trace, as far as a tiny one on a CPU can have it."""
    settings: dict[str, Any] = {}
    if trace.settings.get("async_scheduling") or any(step.placeholders for step in trace.v1_steps):
        settings["async_scheduling"] = True
    speculation = trace.settings.get("speculative_config") or {}
    if speculation.get("method") in LOOKED_UP:
        settings["speculative_config"] = dict(speculation)
    return settings


def drafts(trace: Trace) -> bool:
    """True if that engine has a drafter."""
    return "speculative_config" in extra(trace)


def words(trace: Trace, subjects: Sequence[Subject]) -> dict[str, DraftedTokens]:
    """The recorded texts with permuted tokens: tokens that the plugin names replace the first tokens of the trace.

    The drafts that are looked up in it are then the trace's. Empty if they were not looked up, if the trace has no
    prompts, or if the vocabulary is too small.
    """
    if not drafts(trace) or any(request.prompt is None for request in trace.requests.values()):
        return {}
    texts: dict[str, list[int]] = {name: [] for name in trace.requests}
    for step in trace.steps:
        for name, ids in step.tokens.items():
            texts[name] += ids
    texts_by_request = {name: (request.prompt or (), texts[name]) for name, request in trace.requests.items()}
    recorded = dict.fromkeys(token for pair in texts_by_request.values() for ids in pair for token in ids)
    named = [token for subject in subjects for case in subject.cases for token in subject.model.named(case)]
    ours = dict.fromkeys((*named, *range(min(subject.setup.vocab_size for subject in subjects))))
    if len(recorded) > len(ours):
        return {}
    new = dict(zip(recorded, ours, strict=False))
    return {
        name: DraftedTokens(tuple(map(new.__getitem__, prompt)), tuple(map(new.__getitem__, text)))
        for name, (prompt, text) in texts_by_request.items()
    }


def too_late(trace: Trace, name: str, last: int) -> int:
    """Return the number of tokens of a request's ``last`` step that came after its limit.

    Under asynchronous scheduling a step begins before the previous step's drafts are verified. A request that these
    drafts complete leaves after the surplus step; any other request leaves a step later.
    """
    late = trace.settings.get("async_scheduling") and trace.settings.get("speculative_config")
    left = late and any(name in step.freed for step in trace.v2_steps[last + 1 : last + 2])
    return len(trace.steps[last].tokens.get(name, ())) if left else 0


def left_out(trace: Trace, texts: Mapping[str, DraftedTokens], others: int) -> Iterator[str]:
    """Sentences about each departure from the recording that drafts cause.

    Args:
        known: what :func:`words` gave.
        others: requests that write something else than that.
    """
    if any("draft" in kinds(step) for step in trace.steps):
        if not drafts(trace):
            method = (trace.settings.get("speculative_config") or {}).get("method", "one that the trace does not name")
            yield f"the engine runs without drafts: their drafter ({method}) needs a model"
        elif not texts:
            yield "drafts are looked up in other texts than the recorded ones, which the trace or the vocabulary lacks"
        elif others:
            yield f"{others} requests write what their case names: their drafts are others than the recorded ones"
