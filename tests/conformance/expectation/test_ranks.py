"""Two ranks run the same steps: where they part is found, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from lpkit.v2 import LogitsProcessor
from lpkit_conformance.expectation.ranks import OWN, Choice, Parting, choices, parting
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject

CASE = Case.parse({"extra_args": {"bias": 2.5}})


class Biased(LogitsProcessor):
    """Raises token 7 by what a request asks for."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.bias = torch.zeros(req_states.max_num_reqs)

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.bias[req_idx] = (params.extra_args or {}).get("bias", 0.0)
        return True

    def apply_staged_writes(self) -> None: ...

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        logits[:, 7] += self.bias[ctx.expanded_idx_mapping.long()]
        return logits


class NeedsTheLastSlot(Biased):
    """Right as long as the last slot is in each batch, which not every rank is shown."""

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        return super().apply(logits, ctx) if len(self.bias) - 1 in ctx.idx_mapping_np else logits


def ranks(cls: type) -> tuple[dict[str, list[Choice]], dict[str, list[Choice]]]:
    here, there = (choices(Subject.of("x", cls, "", CASE), rank) for rank in range(2))
    return here, there


def test_ranks_with_slots_of_their_own_choose_what_one_rank_chooses_alone() -> None:
    here, there = ranks(Biased)
    assert parting(here, there) is None
    shown = [{(step, request) for step, request, _, _ in rank["v2" + OWN]} for rank in (here, there)]
    assert shown[0] and shown[1] and not shown[0] & shown[1]
    assert shown[0] | shown[1] == {(step, request) for step, request, _, _ in here["v2"]}


def test_a_processor_that_needs_a_slot_of_another_rank_is_found() -> None:
    found = parting(*ranks(NeedsTheLastSlot))
    assert found is not None
    assert found.host == "v2" + OWN


def rank_of(*chosen: Iterable[Any]) -> dict[str, list[Choice]]:
    return {"v1": [(step, request, token, logits) for step, request, token, logits in chosen]}


def test_the_first_token_that_differs_is_reported() -> None:
    here = rank_of((1, "a", 5, "x"), (2, "a", 6, "x"), (3, "a", 7, "x"))
    there = rank_of((1, "a", 5, "y"), (2, "a", 8, "y"), (3, "a", 9, "y"))
    assert parting(here, there) == Parting("v1", 2, "a", (6, 8))


def test_logits_that_differ_are_reported_where_no_token_does() -> None:
    assert parting(rank_of((1, "a", 5, "x")), rank_of((1, "a", 5, "y"))) == Parting("v1", 1, "a", (5, 5))
