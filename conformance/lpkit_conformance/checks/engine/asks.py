"""Requests to a real engine, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One request to send: ``params`` are the arguments of ``vllm.SamplingParams``.

    ``at`` is the step before which it is sent, ``abort_at`` the step before which it is aborted (None: never). With
    ``logits`` the answer carries every position's row of logits (``EngineSettings.logprobs_mode`` says which).
    ``text`` is what it is to generate, whatever is sampled (:mod:`lpkit_conformance.engine.following`).
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    at: int = 0
    abort_at: int | None = None
    logits: bool = False
    text: tuple[int, ...] = ()


@dataclass
class Answer:
    """The end of a request.

    ``rows``: float32 numpy array [output tokens, vocab_size] when logits were asked for; masked tokens are -inf.
    ``error``: why the engine refused the request ("ValueError: ..."), None when it was accepted. ``followed``: whether
    it was given its text; the engine refuses that next to some parameters, and the request is served without.
    """

    request_id: str
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    rows: Any = None
    error: str | None = None
    followed: bool = False


@dataclass(frozen=True)
class Workload:
    """Requests for one runner.

    Attributes:
        batches: each is served on its own, its requests mixed.
        users: ids of the requests that use the plugin.
        unjudged: ids of those whose processed logits say nothing: V1 calls an argmax-invariant processor for greedy
            requests or not, depending on their neighbours, and throws the result away.
        bad: requests with an argument that ``validate_params`` refuses, each with the argument as text.
        company: requests that are served together with the bad ones.
        operations: a line for each operation, for a report.
        beside: requests that are served in the batch only.
        notes: what is not as it was recorded, in sentences.
        drafted: requests with texts that a drafter finds in their prompts in part, for an engine with drafts.
    """

    batches: tuple[tuple[Ask, ...], ...]
    users: frozenset[str]
    unjudged: frozenset[str]
    bad: tuple[tuple[str, Ask], ...]
    company: tuple[Ask, ...]
    operations: tuple[str, ...]
    beside: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    drafted: tuple[Ask, ...] = ()

    @property
    def asks(self) -> dict[str, Ask]:
        return {ask.request_id: ask for batch in (*self.batches, self.drafted) for ask in batch}
