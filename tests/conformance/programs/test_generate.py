"""Programs: any subsequence of a program is a program, on both hosts."""

from __future__ import annotations

import random

import pytest
import torch
from lpkit_conformance.hosts import default_host
from lpkit_conformance.hosts.v1 import V1Host
from lpkit_conformance.hosts.v2 import V2Host
from lpkit_conformance.programs.generate import Arrive, Finish, Preempt, Resume, Step, Swap, program, soak
from lpkit_conformance.subject.subject import Subject
from zoo.correct.portable import PortableTokenBias
from zoo.registry import Case

CASE = Case.parse(PortableTokenBias.CASE)


def subject(host: str) -> Subject:
    return Subject.of("x", PortableTokenBias, host, CASE)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("host", ["v1", "v2"])
def test_any_subsequence_of_a_soak_runs(host: str, seed: int) -> None:
    rng = random.Random(seed)
    whole = soak(seed, steps=25, drafts=host == "v2")
    ops = [op for op in whole.ops if rng.random() < rng.choice([0.3, 0.6, 0.9])]
    runner = default_host(subject(host), whole.max_num_seqs)
    for seen in runner.run(ops):
        assert seen.before.shape == seen.after.shape == (len(seen.rows), 512)
        own = [row.request for row in seen.rows]
        assert set(own) <= runner.pool.requests.keys()


def test_a_soak_is_a_function_of_its_seed() -> None:
    assert soak(3) == soak(3)
    assert soak(3) != soak(4)


def test_soaks_have_every_kind_of_operation() -> None:
    kinds = {type(op).__name__ for seed in range(3) for op in soak(seed, drafts=True).ops}
    assert kinds == {"Arrive", "Finish", "Preempt", "Resume", "Swap", "Step", "Idle", "Speculate"}


@pytest.mark.parametrize(
    "ops",
    [
        [Finish("a"), Step()],
        [Resume("a"), Step()],
        [Preempt("a"), Step()],
        [Swap(0, 5), Step()],
        [Arrive("a"), Finish("a"), Step()],
        [Arrive("a"), Arrive("a"), Step()],
        [Arrive("a"), Step(), Preempt("a"), Finish("a"), Resume("a"), Step()],
        [Arrive("b", twin_of="a"), Step()],
    ],
)
@pytest.mark.parametrize("host", ["v1", "v2"])
def test_operations_out_of_place_do_nothing(host: str, ops: list[object]) -> None:
    runner = default_host(subject(host), 4)
    assert all(len(seen.rows) <= 1 for seen in runner.run(ops))


def test_arrivals_beyond_the_batch_size_do_nothing() -> None:
    for host in ("v1", "v2"):
        runner = default_host(subject(host), 2)
        rows = [len(seen.rows) for seen in runner.run([Arrive("a"), Arrive("b"), Arrive("c"), Step()])]
        assert rows == [2]


def test_a_program_is_flat_and_its_operations_read_like_sentences() -> None:
    found = program("p", Arrive("a", None), [Step(), [Finish("a")][0]], Step(3))
    assert [str(op) for op in found.ops] == ["a arrives without the plugin", "step", "a finishes", "step x3"]
    assert str(Arrive("b", 2, chunks=1, twin_of="a", greedy=True)) == (
        "b arrives, greedy, 1 partial prefills, twin of a"
    )


@pytest.mark.parametrize("make", [V1Host, V2Host])
def test_a_host_repeats_itself(make: type[V1Host] | type[V2Host]) -> None:
    host = "v1" if make is V1Host else "v2"
    ops = soak(5, steps=12).ops
    runs = [list(make(subject(host), 8).run(ops)) for _ in range(2)]
    assert [seen.rows for seen in runs[0]] == [seen.rows for seen in runs[1]]
    assert all(torch.equal(one.after, other.after) for one, other in zip(*runs, strict=True))
