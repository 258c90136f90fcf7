"""The table of hosts: every row has a module, and nothing is taken for another host."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lpkit.loading import interfaces_of
from lpkit_conformance.hosts import drive, parts_of
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.verify import default_host
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Resume, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS, hosts_of
from zoo import CORRECT

PORTABLE = next(item for item in CORRECT if len(interfaces_of(item.target)) == 2)


def subject(cls: Any, host: str) -> PluginUnderTest:
    return PluginUnderTest("x", cls, host, Case.parse({"extra_args": {"bias": 1.5}}))


@pytest.mark.parametrize("host", HOSTS)
def test_the_module_of_a_row_offers_all_parts_under_its_name(host: str) -> None:
    parts = parts_of(host)
    assert parts.candidate.host == host
    assert type(default_host(subject(PORTABLE.target, host), 2)) is parts.host
    assert isinstance(drive(subject(PORTABLE.target, host), 2), parts.driver)
    assert parts.engine(device="cpu", vocab_size=128).vocab_size == 128


@pytest.mark.parametrize("host", HOSTS)
def test_a_program_does_not_know_its_host(host: str) -> None:
    runner = default_host(subject(PORTABLE.target, host), 4)
    ops: list[Op] = [Arrive("a"), Arrive("b"), Step(2), Preempt("a"), Step(), Resume("a"), Finish("b"), Step(2)]
    seen = [{row.request: row.position for row in item.rows} for item in runner.run(ops)]
    start = runner.pool.requests["a"].request.prompt_len
    assert [item.get("a") for item in seen] == [start, start + 1, None, start + 2, start + 3]


@pytest.mark.parametrize("host", ["", "v3", "V1"])
def test_an_unknown_host_is_taken_for_no_other(host: str) -> None:
    with pytest.raises(ValueError, match=f"there is no host '{host}', only v1, v2"):
        drive(PluginUnderTest("x", torch.nn.Module, host, Case({})))


def test_a_class_is_driven_by_the_hosts_of_its_interfaces() -> None:
    assert hosts_of({"v2"}) == ("v2",)
    assert hosts_of({"v2", "v1"}) == tuple(HOSTS)
    assert hosts_of(()) == ()
