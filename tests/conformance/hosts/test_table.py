"""The table of hosts: every row has a module, and nothing is taken for another host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lpkit.loading import interfaces_of
from lpkit_conformance.hosts import default_host, drive, parts_of
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Resume, Step
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS, hosts_of
from lpkit_conformance.subject.subject import Subject
from zoo import CORRECT

PORTABLE = next(item for item in CORRECT if len(interfaces_of(item.target)) == 2)


def subject(cls: Any, host: str) -> Subject:
    return Subject.of("x", cls, host, Case.parse({"extra_args": {"bias": 1.5}}))


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
    with pytest.raises(ValueError, match=f"there is no host '{host}', only v1, v2, export"):
        drive(Subject.of("x", torch.nn.Module, host, Case({})))


def test_a_class_is_driven_by_the_hosts_of_its_interfaces() -> None:
    assert hosts_of({"v2"}) == ("v2",)
    assert hosts_of({"v2", "v1"}) == ("v1", "v2")
    assert hosts_of({"v1"}, HOSTS) == ("v1", "export")
    assert hosts_of(()) == ()


THIRD = """
import json, sys
from dataclasses import replace
import lpkit_conformance.hosts.v2
from lpkit_conformance.settings import hosts

hosts._ROWS += (replace(hosts.HOSTS["v2"], name="third"),)
hosts.HOSTS["third"] = hosts._ROWS[-1]
sys.modules["lpkit_conformance.hosts.third"] = lpkit_conformance.hosts.v2

from lpkit_conformance.testing import compute_check
from zoo.correct.portable import PortableMinP
from zoo.lp202 import DeclineKeeps

class TakesNothing(DeclineKeeps):
    def __init__(self): ...

found = []
for target, case in (PortableMinP, {"extra_args": {"min_p": 0.2}}), (DeclineKeeps, None), (TakesNothing, None):
    for code in sys.argv[1:]:
        results = [compute_check(code, target, host=host, case=case or target.CASE) for host in ("v2", "third")]
        found.append([(one.status, one.finding and (one.finding.fix, one.finding.cause)) for one in results])
print(json.dumps(found).replace("THIRD", "V2"))
"""


@pytest.mark.broad
def test_a_row_of_the_table_is_all_that_checks_know_of_a_host() -> None:
    command = [sys.executable, "-c", THIRD, "LP101", "LP202", "LP220"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [third for _, third in found] == [second for second, _ in found]
    assert [second[0] for second, _ in found[:5]] == ["passed", "passed", "passed", "passed", "failed"]
    assert found[6][0][0] == "failed"
