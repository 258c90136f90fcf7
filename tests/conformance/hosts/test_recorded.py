"""Drafts and placeholders that a plugin sees when a recorded trace is replayed."""

from __future__ import annotations

from typing import Any, ClassVar

import lpkit
import pytest
import torch
from lpkit import v1, v2
from lpkit_conformance import traces
from lpkit_conformance.hosts.v1 import V1TraceHost
from lpkit_conformance.hosts.v2 import V2TraceHost
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject


class SeesContexts(v2.LogitsProcessor):
    """Keeps every context, and forbids nothing."""

    seen: list[v2.LogitsContext]
    configs: ClassVar[list[Any]] = []

    def __init__(self, config: Any, req_states: Any) -> None:
        self.configs.append(config)

    def add_request(self, req_idx: int, params: Any) -> bool:
        return True

    def apply_staged_writes(self) -> None: ...

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        self.seen.append(ctx)
        return logits


class OneToken(SeesContexts):
    """Leaves one token, which hardly any draft is."""

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        logits[:, 1:] = -torch.inf
        return logits


class SeesLists(v1.LogitsProcessor):
    """Counts the placeholders in the lists of its rows, whenever it is called."""

    updated: list[dict[int, int]]
    applied: list[int]

    def __init__(self, config: Any, device: Any, pinned: bool) -> None:
        self.lists: dict[int, list[int]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        lpkit.v1.process_dict_updates(self.lists, batch_update, lambda params, prompt, outputs: outputs)
        self.updated.append({row: outputs.count(-1) for row, outputs in self.lists.items() if -1 in outputs})

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self.applied.append(sum(outputs.count(-1) for outputs in self.lists.values()))
        return logits


def drafts(cls: type[SeesContexts]) -> V2TraceHost:
    cls.seen = []
    subject = Subject.of("x", cls, "v2", Case.parse({"extra_args": {}}))
    return V2TraceHost(subject, traces.load("v2_drafts"), "all")


@pytest.mark.parametrize(("name", "method"), [("v2_drafts", "ngram"), ("v2_async", "ngram_gpu"), ("v2_churn", None)])
def test_the_constructor_gets_drafts_and_asynchronous_scheduling_as_they_were_recorded(
    name: str, method: str | None
) -> None:
    subject = Subject.of("x", SeesContexts, "v2", Case.parse({"extra_args": {}}))
    SeesContexts.seen = []
    next(V2TraceHost(subject, traces.load(name), "all").run())
    config = SeesContexts.configs[-1]
    assert config.scheduler_config.async_scheduling is (name == "v2_async")
    found = config.speculative_config
    assert (found and (found.method, found.num_speculative_tokens)) == (method and (method, 3))


def test_as_many_drafts_are_right_as_were_recorded() -> None:
    host = drafts(SeesContexts)
    observed = list(host.run())
    made = {name: len(active.request.output_token_ids) for name, active in host.requests.items()}
    assert made == host.trace.output_lens
    calls = [call for step in host.trace.v2_steps for call in step.applies]
    right = 0
    for seen, ctx, call in zip(observed, SeesContexts.seen, calls, strict=True):
        assert tuple(ctx.expanded_local_pos.tolist()) == call.local
        for item, token in zip(seen.rows, ctx.input_ids.tolist(), strict=True):
            request = host.requests[item.request].request
            if item.local and not item.discarded:
                right += 1
                assert token == request.token_at(item.position - 1)
    committed = sum(len(ids) for step in host.trace.v2_steps for ids in step.tokens.values())
    assert right == committed - sum(len(step.tokens) for step in host.trace.v2_steps) > 30


def test_the_first_wrong_draft_is_not_the_token_that_is_committed() -> None:
    host = drafts(SeesContexts)
    wrong = 0
    for seen, ctx in zip(list(host.run()), SeesContexts.seen, strict=True):
        for row, item in enumerate(seen.rows):
            if item.local and item.discarded and not seen.rows[row - 1].discarded:
                wrong += 1
                request = host.requests[item.request].request
                assert int(ctx.input_ids[row]) != request.token_at(item.position - 1)
    assert wrong > 30


def test_a_request_whose_drafts_are_forbidden_falls_behind() -> None:
    host = drafts(OneToken)
    observed = list(host.run())
    judged = [item for seen in observed for item in seen.rows if not item.discarded]
    # The first token that is left may be drafted by chance, the tokens behind it are not.
    assert sum(item.local > 0 for item in judged) < len(judged) / 20
    for name, active in host.requests.items():
        assert len(active.request.output_token_ids) <= host.trace.output_lens[name]


def test_lists_end_in_placeholders_during_an_update_and_hold_the_tokens_when_it_is_applied() -> None:
    SeesLists.updated, SeesLists.applied = [], []
    subject = Subject.of("x", SeesLists, "v1", Case.parse({"extra_args": {}}))
    host = V1TraceHost(subject, traces.load("v1_async"), "all")
    list(host.run())
    expected = [
        {row: step.placeholders[name] for row, name in enumerate(step.rows) if name in step.placeholders}
        for step in host.trace.v1_steps
    ]
    assert SeesLists.updated == expected
    assert any(expected)
    assert not any(SeesLists.applied)
