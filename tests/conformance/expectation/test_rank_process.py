"""A second process gives the same answer as this process."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
from lpkit.loading import resolve_target
from lpkit_conformance.checks.lp6_environment import LP604
from lpkit_conformance.expectation.rank_process import answer, as_second_rank, second_rank
from lpkit_conformance.expectation.ranks import OWN, choices, parting
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.suite.in_process import Session
from zoo.correct.v1 import Bias

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
    with second_rank(TARGET, SUBJECT) as second:
        there = answer(second)
    assert there is not None
    assert parting(here, there) is None
    whole = [host for host in here if not host.endswith(OWN)]
    assert whole
    assert all([tuple(choice) for choice in there[host]] == here[host] for host in whole)


@pytest.mark.parametrize("dead", [False, True])
def test_a_class_that_is_not_there_and_a_dead_process_give_no_answer(dead: bool) -> None:
    with second_rank(f"{BIAS}:Nobody", SUBJECT) as second:
        if dead:
            os.kill(second.pid, signal.SIGKILL)
            os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
        assert answer(second) is None


RANKED = """
import os, time, torch
from zoo.correct.v1 import Bias

MORE = {more}

class Ranked(Bias):
    def apply(self, logits):
        logits = super().apply(logits)
        logits[list(self.rows), 7] += MORE
        return logits
"""


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("float(os.environ.get('RANK', 0))", "failed"),
        ("time.time() // 3600 % 997", "failed"),
        ("torch.rand(()).item()", "failed"),
        ("0.25", "passed"),
    ],
)
def test_a_class_that_is_imported_as_the_second_rank_passes_if_it_chooses_as_the_first(
    more: str, status: str, tmp_path: Path
) -> None:
    plan, first = Plan(cases=(Case.parse(Bias.CASE),)), None
    for file in (tmp_path / "first.py", tmp_path / "second.py"):
        file.write_text(RANKED.format(more=more), encoding="utf-8")
        target = f"{file}:Ranked"
        with as_second_rank("cpu") if first else nullcontext():
            session = Session(target, resolve_target(target), plan, first)
        first = first or session.first_rank()
    assert session.compute(LP604, "").status == status
