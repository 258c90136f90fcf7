"""A host commits only tokens that the plugin left in the row that they were sampled from."""

from __future__ import annotations

from typing import Any

import lpkit
import pytest
import torch
from lpkit_conformance import traces
from lpkit_conformance.activity.stand import MOST_ASKED, Stance, forbids, stand_at
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.programs.generate import Arrive, Finish, Preempt, Resume, Speculate, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS, RUNNER_HOSTS
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session
from lpkit_conformance.testing import compute_check
from zoo.correct.v1 import V1Base


class Alternates(lpkit.LogitsProcessor):
    """Allows few tokens, by the token before: most that a model might choose are forbidden."""

    history = "tokens"
    CASE: dict[str, Any] = {"extra_args": {"alt_modulus": 5}}

    class Params(lpkit.Params, prefix="alt_"):
        modulus: int = lpkit.Field(ge=2, le=50)

    modulus = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        last = rows.tokens.gather(1, (rows.total_len - 1).unsqueeze(1))
        ids = torch.arange(logits.shape[1], device=logits.device)
        return logits.masked_fill_((ids + last) % self.modulus[rows].unsqueeze(1) != 1, -torch.inf)


class ForbidsAll(Alternates):
    """Leaves nothing at all."""

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.fill_(-torch.inf)


class NeverForgives(V1Base):
    """Forbids every other token, and raises if one of these was generated all the same."""

    CASE: dict[str, Any] = {"extra_args": {"odd": True}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return (params.extra_args or {}).get("odd") or None

    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        return outputs if self.read(params) else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, outputs in self.rows.items():
            if any(token >= 0 and token % 2 == 0 for token in set(outputs)):
                raise RuntimeError("a token that was forbidden")
            logits[row, ::2] = -torch.inf
        return logits


def subject(host: str, cls: Any = Alternates) -> Subject:
    return Subject.of("x", cls, host, Case.parse(cls.CASE))


@pytest.mark.parametrize("host", HOSTS)
def test_every_token_of_a_program_is_one_that_the_plugin_left(host: str) -> None:
    ran = parts_of(host).host(subject(host), 8)
    ops = [Arrive("a", 0), Arrive("b", 1, 9, chunks=2), Arrive("c", None), Step(5), Preempt("a"), Step(2), Resume("a")]
    judged = 0
    observed = list(ran.run([*ops, Step(3), *[Speculate(2, 2)] * 4, Finish("b"), Step(2)]))
    for seen in observed:
        for row, item in enumerate(seen.rows):
            active = ran.pool.requests[item.request]
            if not item.discarded:
                judged += 1
                token = active.committed[item.position - active.request.prompt_len]
                assert seen.after[row, token] > -torch.inf, item
    assert judged > 30


@pytest.mark.parametrize(
    ("host", "name"),
    [*((host, traces.names(HOSTS[host].interface)[0]) for host in HOSTS), ("v1", "v1_async"), ("v2", "v2_drafts")],
)
def test_every_token_of_a_trace_is_one_that_the_plugin_left(host: str, name: str) -> None:
    replayed = parts_of(host).recorded(subject(host), traces.load(name), "all")
    seen = list(replayed.run())
    judged = 0
    for step in seen:
        for row, item in enumerate(step.rows):
            request = replayed.requests[item.request].request
            n = item.position - request.prompt_len
            if not item.discarded and n < len(request.output_token_ids):
                judged += 1
                assert step.after[row, request.output_token_ids[n]] > -torch.inf
    assert judged > 20


def test_where_nothing_is_left_the_token_is_the_one_that_was_wanted() -> None:
    there = subject("v1", ForbidsAll)
    ran = parts_of("v1").host(there, 2)
    for _ in ran.run([Arrive("a", 0), Step(2)]):
        pass
    assert ran.pool.requests["a"].committed == [there.model.emit("a", 0, n) for n in range(2)]


@pytest.mark.parametrize(
    ("code", "host"),
    [
        *(("LP201", host) for host in RUNNER_HOSTS),
        *(("LP112", "v1"), ("LP211", "v2"), ("LP219", "v1"), ("LP220", "v2"), ("LP221", "v1")),
        *(("LP502", "v1"), ("LP506", "v1"), ("LP804", "v2"), ("LP808", "v2")),
    ],
)
def test_a_plugin_that_forbids_most_tokens_gets_the_same_alone_and_in_a_batch(code: str, host: str) -> None:
    assert compute_check(code, Alternates, host=host, case=Alternates.CASE).status in ("passed", "skipped")


@pytest.mark.parametrize("length", [1, MOST_ASKED, 10 * MOST_ASKED])
def test_a_request_at_any_step_of_its_life_has_a_history_that_the_plugin_allowed(length: int) -> None:
    there = subject("v1", NeverForgives)
    assert forbids(there)
    assert stand_at(there, [Stance(0, "a", 1), Stance(0, "a", length)]).acts


def test_a_plugin_is_asked_for_all_of_a_long_history_only_if_it_raises() -> None:
    there = subject("v1", Alternates)
    assert forbids(there)
    stand_at(there, [Stance(0, "a", 10 * MOST_ASKED)])
    request = Stance(0, "a", 10 * MOST_ASKED).request(there, "a")
    assert request.output_token_ids[MOST_ASKED:] == there.model.emitted("a", 0, 10 * MOST_ASKED, MOST_ASKED)


def test_no_check_blames_a_plugin_for_raising_at_a_token_that_it_forbade() -> None:
    plan = Plan(cases=(Case.parse(NeverForgives.CASE),), ignore=("LP219", "LP221", "LP603", "LP604", "LP606"))
    results = list(Session("target", NeverForgives, plan).results())
    assert not [result for result in results if result.status in ("failed", "blocked", "error")]
