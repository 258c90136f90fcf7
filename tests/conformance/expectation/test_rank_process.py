"""A second process gives the same answer as this process, started early or late, and never outlives its use."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from lpkit.loading import resolve_target
from lpkit_conformance.checks.lp6_environment import LP604
from lpkit_conformance.expectation import rank_process
from lpkit_conformance.expectation.rank_process import answer, ask, second_rank
from lpkit_conformance.expectation.ranks import OWN, choices, parting
from lpkit_conformance.processes.supervise import Child
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session
from pids import runs

BIAS = Path(__file__).parents[1] / "suspects" / "bias.py"
TARGET = f"{BIAS}:Good"
CASE = Case.parse({"extra_args": {"bias": 2.5}})
OTHER = Case.parse({"extra_args": {"bias": -7.5}})
SUBJECT = Subject.of("x", resolve_target(TARGET), "", CASE, vocab_size=256, max_num_seqs=8, seed=3, others=(OTHER,))


def test_its_choices_are_those_of_this_process_if_nothing_depends_on_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('not torch')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # from where nothing is imported
    here = choices(SUBJECT, rank=0)
    with second_rank() as second:
        ask(second, TARGET, SUBJECT)
        there = answer(second)
    assert there is not None
    assert parting(here, there) is None
    whole = [host for host in here if not host.endswith(OWN)]
    assert whole
    assert all([tuple(choice) for choice in there[host]] == here[host] for host in whole)


@pytest.mark.parametrize("dead", [False, True])
def test_a_class_that_is_not_there_and_a_dead_process_give_no_answer(dead: bool) -> None:
    with second_rank() as second:
        if dead:
            os.kill(second.pid, signal.SIGKILL)
            os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
        ask(second, f"{BIAS}:Nobody", SUBJECT)
        assert answer(second) is None


@pytest.mark.parametrize("early", [True, False])
def test_the_check_takes_the_process_that_was_started_ahead_and_ends_it(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Child] = []

    def start() -> Child:
        started.append(second_rank())
        return started[-1]

    monkeypatch.setattr(rank_process, "second_rank", start)
    assert LP604.compares_processes
    session = Session(TARGET, SUBJECT.plugin.cls, Plan(cases=(CASE,)), second=start() if early else None)
    assert session.compute(LP604, "").status == "passed"
    (child,) = started
    assert not runs(child.pid)
