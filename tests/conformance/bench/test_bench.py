"""The bench: it counts the real operations, plays a valid batch, and reports anything that it could not measure."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lpkit
import numpy as np
import pytest
import torch
from lpkit_conformance.bench import measure, run
from lpkit_conformance.bench.candidates import Function, Parameters, floors
from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.bench.launches import budget, in_python
from lpkit_conformance.bench.results import Bench, CandidateResult, Point, TargetBench, Times
from lpkit_conformance.hosts.steady import LIFETIME, SteadyBatch, update_with
from lpkit_conformance.hosts.v1 import V1Candidate
from lpkit_conformance.hosts.v2 import V2Candidate
from lpkit_conformance.instruments.meta_kernels import META, fused_on_meta
from lpkit_conformance.instruments.operations import CountLaunches, MeasureOperations
from lpkit_conformance.processes.codec import decode
from lpkit_conformance.report.bench import WIDE, WIDER, duration, ratio, show

CPU = torch.device("cpu")
FAST = measure.Effort(seconds=0.0, rounds=2)


class Floor(lpkit.LogitsProcessor):
    """Masks what is below a number."""

    class Params(lpkit.Params):
        floor: float

    floor = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill_(logits < self.floor[rows].unsqueeze(1), -math.inf)


PARAMETERS = Parameters({"extra_args": {"floor": 0.5}})


# -- counting -----------------------------------------------------------------------------------------------------


def test_views_are_no_launches() -> None:
    logits = torch.zeros(4, 100)
    with MeasureOperations() as counter:
        twice = logits * 2
        twice[1:].add_(1)  # in place, through a view
        twice > 0  # noqa: B015
        twice.sum(1)
    assert (counter.launches, counter.views) == (4, 1)


def test_launches_are_what_a_device_is_asked_to_compute_or_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    class JITFunction:
        __name__ = "_kernel"

        def run(self, *args: int) -> int:
            return sum(args)

    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(runtime=SimpleNamespace(JITFunction=JITFunction)))  # type: ignore[arg-type]
    original = JITFunction.run
    with CountLaunches(torch.device("meta")) as counter:
        sent = torch.zeros(4, 100).to("meta")  # made on the host, and one copy
        torch.empty_like(sent).view(-1)
        assert JITFunction().run(2, 3) == 5
        sent[1:].add_(1)
        torch.ones(3).add_(1)  # on the host
    assert counter.operations == {"_to_copy": 1, "add_": 1}
    assert counter.kernels == {"kernel": 1}
    assert counter.launches == 3
    assert JITFunction.run is original


@pytest.mark.parametrize(("history", "granted", "on_v1"), [("none", 4, 4), ("length", 6, 7), ("tokens", 6, 8)])
def test_the_budget_follows_the_kind_of_the_rule_and_the_runner(history: str, granted: int, on_v1: int) -> None:
    class Sparse(lpkit.LogitsProcessor):
        def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None: ...

    Sparse.history = history  # type: ignore[assignment]
    assert budget(Sparse, "v1") == on_v1
    assert (budget(Sparse), budget(Floor), budget(object), budget(None)) == (granted, 3, None, None)


@pytest.mark.parametrize("most", [4, 30])
def test_launches_stand_next_to_their_budget_and_too_many_are_reported(most: int) -> None:
    times = Times(1e-3, 1e-3, 3)
    uncounted = CandidateResult("a on V1", "target", "v1", apply=times, launch_budget=4)
    counted = CandidateResult("a on V2", "target", "v2", apply=times, launch_budget=4)
    sizes = ((1, 3), (8, most), (64, None))
    points = tuple(Point(batch, 100, 4, (uncounted, replace(counted, launches=count))) for batch, count in sizes)
    file = io.StringIO()
    show(Bench((TargetBench("a", points=points),), {}, {}), file)
    text = " ".join(file.getvalue().split())
    assert all(cell in text for cell in ("? of 4", "3 of 4", f"{most} of 4"))
    line = "V2: 30 launches on a GPU at 8 x 100, in a step in which no request comes or goes; the budget of such a rule"
    assert (f"{line} is 4: combine operations" in text) == (most > 4)


def test_the_peak_is_of_what_is_held_at_the_same_time() -> None:
    logits = torch.zeros(4, 100)
    with MeasureOperations() as counter:
        for _ in range(3):
            twice = logits * 2  # 1,600 bytes, and as many of the one before until the name is bound again
            twice.view(-1).add_(1)
        del twice
        logits > 0  # noqa: B015 - 400 bytes
    assert counter.peak == 2 * 1600


def test_waits_are_reported_by_the_name_that_authors_use() -> None:
    logits = torch.arange(4.0)
    with MeasureOperations() as counter:
        logits.sum().item()
        logits[logits > 1]
    assert counter.syncs == {"item": 1, "boolean index": 1}


def test_copies_to_a_device_are_counted_by_their_bytes() -> None:
    host, away = torch.zeros(10), torch.zeros(10, device="meta")
    with MeasureOperations() as counter:
        host.to("meta")
        away.copy_(host)
        away.clone()
        host.to(torch.float64)
    assert counter.to_device == 80


@pytest.mark.parametrize(
    ("call", "size"),
    [
        (lambda away: torch.tensor([1, 2, 3], device=away.device), 24),
        (lambda away: torch.as_tensor([1.0], device=away.device), 4),
        (lambda away: torch.as_tensor(np.arange(3), device=away.device), 24),
        (lambda away: away[[0, 1]], 16),
        (lambda away: away[torch.tensor([0, 1])], 16),
    ],
)
def test_values_of_the_host_are_a_copy_to_the_device(call: Callable[[torch.Tensor], Any], size: int) -> None:
    away = torch.zeros(10, device=META)
    with CountLaunches(META) as counter:
        call(away)
    assert counter.to_device == size
    assert counter.operations["to"] + counter.operations["_to_copy"] == 1


def test_a_number_that_is_written_is_one_launch_and_no_copy() -> None:
    away = torch.zeros(10, device=META)
    with CountLaunches(META) as counter:
        away[away > 1] = -math.inf
    assert (counter.to_device, counter.launches) == (0, 2)


# -- the steady batch -------------------------------------------------------------------------------------------


def test_a_world_keeps_its_size_and_replaces_a_few_requests_each_turn() -> None:
    steady = SteadyBatch(2 * LIFETIME, 1000, 32, 0.25, CPU)
    change = steady.change()
    assert len(change.update.added) == len(change.entered) == len(steady.rows) == 2 * LIFETIME
    assert sum(uses for _, uses in change.entered) == 0.25 * 2 * LIFETIME
    before = {request.request_id for request in steady.rows}
    steady.advance()
    change = steady.change()
    assert len(before - {request.request_id for request in steady.rows}) == len(change.entered) == 2
    assert len(steady.rows) == change.update.batch_size == 2 * LIFETIME


def test_both_hosts_are_shown_the_same_batch() -> None:
    steady = SteadyBatch(6, 200, 16, 0.5, CPU)
    candidates = [V1Candidate("one", Floor, PARAMETERS, CPU), V2Candidate("two", Floor, PARAMETERS, CPU)]
    logits = torch.randn(6, 200)
    for _ in range(5):
        change = steady.change()
        results = []
        for candidate in candidates:
            candidate.prepare(steady, change)
            candidate.follow()
            results.append(candidate.apply(logits.clone()))
        assert torch.equal(*results)
        uses = torch.tensor([bool(request.params) for request in steady.rows])
        assert torch.equal((results[0] != logits).any(1), uses)
        steady.advance()


def test_an_update_gets_the_parameters_of_its_side() -> None:
    change = SteadyBatch(3, 50, 8, 1.0, CPU).change()
    update = update_with(change.update, PARAMETERS)
    params = [added[1] for added in update.added]
    assert [item.extra_args for item in params] == [{"floor": 0.5}] * 3
    assert len({id(item) for item in params}) == 3


# -- measuring ----------------------------------------------------------------------------------------------------


def point(*candidates: Any, batch: int = 3, vocab: int = 128) -> Point:
    steady = SteadyBatch(batch, vocab, 8, 1.0, CPU)
    source = torch.randn(batch, vocab)
    return measure.measure(steady, candidates, source, torch.empty_like(source), FAST)


def test_every_side_is_timed_and_related_to_the_target_and_the_floor() -> None:
    found = point(V1Candidate("it", Floor, PARAMETERS, CPU), *floors())
    target, _, write = found.sides
    assert target.apply is not None and target.apply.rounds == 2
    assert target.churn is not None and target.idle is not None and write.churn is None
    assert target.versus_target == write.versus_floor == 1.0
    assert target.operations and target.peak and target.acted
    assert target.first is not None and target.first > 0 and write.first is None
    assert (found.batch, found.vocab, found.logits_bytes) == (3, 128, 3 * 128 * 4)
    assert decode(Point, Bench((TargetBench("it", points=(found,)),), {}, {}).to_json()["targets"][0]["points"][0])


def test_on_a_gpu_its_own_work_is_timed_in_turns_of_its_own_since_an_engine_asks_once_per_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def on_gpu(clock: Clock, call: Any) -> float:
        calls.append(call())
        return 1e-3

    monkeypatch.setattr(Clock, "on_gpu", on_gpu)
    for side in point(*floors()).sides:
        assert side.apply and side.launch and side.gpu
        assert side.gpu.median == 1e-3
        assert side.apply.rounds - side.gpu.rounds in (0, 1)
    assert calls


def test_each_side_gets_the_logits_as_they_were() -> None:
    seen = []

    def spoil(_: SteadyBatch) -> Any:
        def apply(logits: torch.Tensor) -> torch.Tensor:
            seen.append(logits.clone())
            return logits.fill_(7.0)

        return apply

    point(Function("a", spoil), Function("b", spoil))
    assert all(torch.equal(logits, seen[0]) for logits in seen)


def test_a_side_that_fails_has_a_problem_and_the_others_have_numbers() -> None:
    class Broken(Floor):
        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            raise RuntimeError("boom")

    broken, whole = point(
        V1Candidate("broken", Broken, PARAMETERS, CPU), V1Candidate("whole", Floor, PARAMETERS, CPU)
    ).sides
    assert broken.apply is None and "apply: raised RuntimeError: boom" in broken.problem
    assert Path(__file__).name in broken.problem
    assert whole.apply is not None


def test_a_case_that_never_acts_is_noticed() -> None:
    (candidate,) = point(V1Candidate("it", Floor, Parameters({}), CPU)).sides
    assert not candidate.acted


def test_what_does_not_fit_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "free_memory", lambda _: 1000)
    (candidate,) = point(V1Candidate("it", Floor, PARAMETERS, CPU)).sides
    assert candidate.apply is None and candidate.problem.startswith("needs 0.0 GiB of memory")


def counted(cls: Any, batch: int = 3, context: int = 8) -> int | None:
    with fused_on_meta():
        candidate = V1Candidate("it", cls, PARAMETERS, META)
        return measure.launches_without_memory(META, candidate, SteadyBatch(batch, 128, context, 1.0, META))


class InPython(Floor):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill_(logits.less(self.floor[rows].unsqueeze(1)), -math.inf)


def test_launches_are_counted_without_a_gpu() -> None:
    assert counted(InPython) == 3  # the gather of the columns, a comparison and the masking
    assert counted(Floor) == 1  # recorded


def test_memory_that_grows_behind_a_request_that_has_just_come_is_not_counted() -> None:
    class Counts(Floor):
        history = "tokens"

        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            logits[:, 0] += rows.tokens.sum(1)
            return super().process(logits, rows)

    few, many = (counted(Counts, batch, context=256) for batch in (1, 8))
    assert few == many is not None


def test_a_class_whose_python_runs_on_a_gpu_is_reported_with_the_reason() -> None:
    whys = []
    for cls in (InPython, Floor):
        steady = SteadyBatch(3, 128, 8, 1.0, CPU)
        candidate = V1Candidate("it", cls, PARAMETERS, CPU)
        candidate.prepare(steady, steady.change())
        whys.append(in_python(candidate))
    assert whys[0] == "it calls `less` on a tensor"
    assert whys[1] == in_python(floors()[0]) == ""


def test_what_reads_a_value_on_the_host_cannot_be_counted_without_a_device() -> None:
    class Reads(Floor):
        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            logits.max().item()
            return super().process(logits, rows)

    assert counted(Reads) is None


# -- the run ------------------------------------------------------------------------------------------------------


def test_times_and_ratios_are_short() -> None:
    assert [duration(Times(value, value, 1)) for value in (3e-8, 1.5e-6, 0.0123, 2.0)] == [
        "30 ns",
        "1.5 us",
        "12.3 ms",
        "2 s",
    ]
    assert duration(None) == ratio(None) == "-"
    assert [ratio(1.234), ratio(43.2)] == ["1.23x", "43x"]


ALTERNATIVES = """
from lpkit_conformance.bench.candidates import Function

def alternatives(identity, extra_args, device):
    yield Function(f"{identity} {extra_args} {device}", lambda steady: lambda logits: logits.add_(1.5), 0.0)
    yield "one is not installed here"
"""


@pytest.fixture
def no_longer_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "QUICK_SECONDS", 0.0)


@pytest.mark.usefixtures("no_longer_than_needed", "in_process")
def test_a_script_brings_alternatives_that_are_no_processors(tmp_path: Path) -> None:
    (tmp_path / "others.py").write_text(ALTERNATIVES, encoding="utf-8")
    options = run.BenchOptions(
        case='{"extra_args": {"bias": 1.5}}',
        hosts=("v1",),
        batches=(2,),
        vocabs=(64,),
        quick=True,
        alternatives=str(tmp_path / "others.py"),
    )
    plugin = Path(__file__).parents[1] / "suspects" / "bias.py"
    (target,) = run.run((f"{plugin}:Good",), options, tmp_path).targets
    assert target.notes == ("alternatives skipped: one is not installed here",)
    (point,) = target.points
    (other,) = [candidate for candidate in point.sides if candidate.kind == "alternative"]
    assert other.name == "bias:Good {'bias': 1.5} cpu" and other.apply is not None and not other.problem


@pytest.mark.usefixtures("no_longer_than_needed", "in_process")
def test_one_class_with_two_cases_is_two_candidates_with_launches_of_their_own(tmp_path: Path) -> None:
    plugin = tmp_path / "rules.py"
    plugin.write_text(TWO_RULES, encoding="utf-8")
    target = f"{plugin}:Rules"
    options = run.BenchOptions(
        case='{"extra_args": {"times": 1}}',
        hosts=("v2",),
        batches=(2,),
        vocabs=(64,),
        quick=True,
        against=(target,),
        against_cases=('{"extra_args": {"times": 5}}',),
    )
    (bench,) = run.run((target,), options, tmp_path).targets
    mine, other, *_ = bench.points[0].sides
    assert other.launches is not None and mine.launches == other.launches - 4
    assert other.name == f'{target} with {{"extra_args": {{"times": 5}}}} on V2' != mine.name


TWO_RULES = """
import lpkit


class Rules(lpkit.LogitsProcessor):
    class Params(lpkit.Params):
        times: int

    times = 1

    def admit(self, request):
        self.times = request.params.times
        return True

    def process(self, logits, rows):
        for _ in range(self.times):
            logits.mul_(2.0)
        return logits
"""


def test_a_run_without_a_number_of_the_target_fails() -> None:
    times = Times(1.0, 1.0, 1)
    good = TargetBench("a", points=(Point(1, 1, 4, (CandidateResult("a", "target", apply=times),)),))
    bad = TargetBench("b", points=(Point(1, 1, 4, (CandidateResult("b", "floor", apply=times),)),))
    assert Bench((good,), {}, {}).exit_code == 0
    assert Bench((good, bad), {}, {}).exit_code == Bench((), {}, {}).exit_code == 2


def test_a_quick_run_chooses_few_sizes_unless_asked() -> None:
    assert run.BenchOptions(quick=True).settings["batches"] == list(run.QUICK_BATCHES)
    assert run.BenchOptions(quick=True, batches=(3,)).settings["batches"] == [3]
    assert run.BenchOptions().settings["vocabs"] == [32_000, 128_256, 151_936]


@pytest.mark.parametrize("on_a_gpu", [False, True])
@pytest.mark.parametrize("columns", [80, WIDE, WIDE + WIDER, 200])
def test_no_number_is_cut_off_on_any_terminal(columns: int, on_a_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", str(columns))
    times = Times(1.234e-3, 1.2e-3, 5)
    names = ["lpkit-min-p on V1", "request by request (lpkit's adapter)"]
    candidates = [
        CandidateResult(
            name, "target", "v1", apply=times, churn=times, idle=times, launches=9, launch_budget=30, peak=4
        )
        for name in names
    ]
    if on_a_gpu:
        candidates = [replace(candidate, launch=times, gpu=times) for candidate in candidates]
    screen = Terminal()
    show(Bench((TargetBench("it", points=(Point(1, 1, 4, tuple(candidates)),)),), {}, {}), screen)
    assert "\u2026" not in screen.getvalue() and screen.getvalue().count("1.23 ms") >= 2 + 4 * on_a_gpu
    assert ("GPU" in screen.getvalue()) == on_a_gpu
    assert ("first call" in screen.getvalue()) == (columns >= WIDE + WIDER * on_a_gpu)
