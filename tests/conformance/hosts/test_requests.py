"""Requests are like those of a server: equal arrivals give equal requests, and finished requests are freed."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from lpkit_conformance.hosts import default_host
from lpkit_conformance.hosts.requests import make_active
from lpkit_conformance.programs.generate import Arrive, Finish, Speculate, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.subject.subject import Subject
from zoo.correct.v2 import TwoFaced


def subject(host: str) -> Subject:
    return Subject.of("subject", TwoFaced, host, Case.parse(TwoFaced.CASE))


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_parameters_of_a_finished_request_are_gone_and_the_next_lists_lie_where_its_lists_lay(host: str) -> None:
    runner = default_host(subject(host), 8)
    list(runner.run([Arrive("a", 0), Step(2)]))
    request = runner.pool.running["a"].request
    params, lists = weakref.ref(request.params), {id(request.output_token_ids), id(request.prompt_token_ids)}
    del request
    list(runner.run([Finish("a"), Step(), Arrive("b", 1)]))
    assert params() is None
    fresh = runner.pool.running["b"].request
    assert {id(fresh.output_token_ids), id(fresh.prompt_token_ids)} & lists
    assert len(runner.pool.requests["a"].request.output_token_ids) == 2


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_a_twin_has_the_parameters_of_a_request_that_has_finished(host: str) -> None:
    runner = default_host(subject(host), 8)
    ops = [Arrive("a", 0), Step(), Finish("a"), Step(), Arrive("b", twin_of="a"), Step()]
    kept: list[Any] = []
    for _ in runner.run(ops):
        kept += [active.request.params for active in runner.pool.running.values()]
    assert len(kept) == 2
    assert kept[0] is kept[1]


def test_own_and_foreign_arguments_come_together_and_max_tokens_may_be_missing() -> None:
    made = [subject("v1").asked(0, salt=salt) for salt in range(12)]
    own = set(Case.parse(TwoFaced.CASE).fields["extra_args"])
    assert any(set(params.extra_args or {}) > own for params in made)
    assert {params.max_tokens is None for params in made} == {True, False}
    assert any(len(params.stop_token_ids or ()) > 1 for params in made)
    assert {params.seed is None for params in made} == {True, False}


def test_max_tokens_is_filled_in_when_a_request_reaches_the_engine() -> None:
    plugin = subject("v1")
    actives = [make_active(plugin, Arrive(f"r{n}", n % 2 or None, prompt_len=n)) for n in range(4, 12)]
    room = {plugin.setup.world.max_model_len - active.request.prompt_len: active.request.params for active in actives}
    assert all(params.max_tokens in (left, plugin.setup.world.max_model_len) for left, params in room.items())
    assert any(params.max_tokens == left for left, params in room.items())


def test_requests_bring_different_numbers_of_drafts() -> None:
    runner = default_host(subject("v2"), 8)
    seen = list(runner.run([*(Arrive(f"r{n}", n) for n in range(4)), Step(), *[Speculate(3, 3)] * 4]))
    counts = {
        tuple(sorted(sum(row.request == name for row in item.rows) for name in ("r0", "r1", "r2", "r3")))
        for item in seen[1:]
    }
    assert any(len(set(count)) > 1 for count in counts)


def test_cases_share_out_programs_and_each_plays_one_at_least() -> None:
    def shared(cases: int, programs: str) -> list[str]:
        case = Case.parse(TwoFaced.CASE)
        every = [Subject.of("subject", TwoFaced, "v1", case, turn=(n, cases)) for n in range(cases)]
        return ["".join(one.setup.share(programs)) for one in every]

    assert shared(1, "abcd") == ["abcd"]
    assert shared(2, "abcd") == ["ac", "bd"]
    assert shared(3, "ab") == ["a", "b", "a"]
