"""A second process gives the same answer as this process, started early or late, and never outlives its use."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lpkit.loading import resolve_target
from lpkit_conformance.checks.lp6_environment import LP604
from lpkit_conformance.expectation.rank_process import second_rank
from lpkit_conformance.expectation.ranks import OWN, choices, parting
from lpkit_conformance.processes.peer import Peer
from lpkit_conformance.settings.cases import FOREIGN_ARGS, Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session

BIAS = Path(__file__).parents[1] / "suspects" / "bias.py"
CASE = Case.parse({"extra_args": {"bias": 2.5}})


def job(target: str = f"{BIAS}:Good") -> dict[str, Any]:
    setup = {"vocab_size": 256, "max_num_seqs": 8, "seed": 3, "device": "cpu", "words": ()}
    return {"target": target, "case": {"extra_args": {"bias": 2.5}}, "foreign": FOREIGN_ARGS, **setup}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_its_choices_are_those_of_this_process_if_nothing_depends_on_the_process() -> None:
    cls = resolve_target(f"{BIAS}:Good").cls
    here = choices(Subject.of("x", cls, "", CASE, vocab_size=256, max_num_seqs=8, seed=3), rank=0)
    with second_rank() as second:
        second.ask(job())
        there = second.answer()
    assert parting(here, there) is None
    whole = [host for host in here if not host.endswith(OWN)]
    assert whole
    assert all([tuple(choice) for choice in there[host]] == here[host] for host in whole)


def test_a_class_that_is_not_there_gives_no_answer() -> None:
    with second_rank() as second:
        second.ask(job(f"{BIAS}:Nobody"))
        assert second.answer() is None


def test_it_is_gone_when_nobody_asked_it() -> None:
    with second_rank() as second:
        pid = second.pid
        assert not gone(pid)
    assert gone(pid)


def test_a_process_that_has_died_gives_no_answer() -> None:
    with second_rank() as second:
        os.kill(second.pid, signal.SIGKILL)
        os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
        second.ask(job())
        assert second.answer() is None


@pytest.mark.parametrize("early", [True, False])
def test_the_check_takes_the_process_that_was_started_ahead(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = resolve_target(f"{BIAS}:Good").cls
    started: list[Peer] = []
    init = Peer.__init__
    monkeypatch.setattr(Peer, "__init__", lambda self, entry: (started.append(self), init(self, entry))[1])
    ahead = second_rank() if early else None
    session = Session(f"{BIAS}:Good", cls, Plan(cases=(CASE,)), second=ahead)
    assert session.compute(LP604, "").status == "passed"
    assert len(started) == 1
    assert gone(started[0].pid)


def test_the_check_that_needs_it_says_so() -> None:
    assert LP604.compares_processes


def test_modules_of_the_current_folder_do_not_replace_the_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('not torch')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with second_rank() as second:
        second.ask(job())
        assert second.answer()
