"""On a simulated engine, the watcher counts calls and violations, and changes nothing for the engine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lpkit
import pytest
import torch
from lpkit.interfaces.v1_interface import BatchUpdate
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine, V2Row, make_context
from lpkit.sampling_params import SamplingParams
from lpkit_conformance import traces
from lpkit_conformance.vllm_api.runners import Runner
from lpkit_conformance.watch import watcher as watchers
from lpkit_conformance.watch.install import watch
from lpkit_conformance.watch.numbers import ProcessCounts
from lpkit_conformance.watch.run_directory import read_numbers
from lpkit_conformance.watch.settings import WatchSettings

VOCAB = 128
EVERY_STEP = WatchSettings(budget=1.0, interval=0.1, rows=64)


class Ban(lpkit.LogitsProcessor):
    """Correct: rules out the token that a request names."""

    history = "none"

    class Params(lpkit.Params):
        ban: int

    ban = lpkit.column(torch.int64)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.scatter_(1, self.ban[rows].unsqueeze(1), float("-inf"))


@dataclass
class Watched:
    """A simulated engine with one processor, and the counts of its watcher."""

    scheduler: Scheduler
    tally: ProcessCounts
    processor: Any

    def run(self, *arguments: dict[str, Any] | None) -> dict[str, list[int]]:
        """Serve requests with these arguments, which arrive one per step; return the tokens of each."""
        for number, extra_args in enumerate(arguments):
            name = f"q{len(self.scheduler.finished)}-{number}"
            request = Request(name, SamplingParams(temperature=0.5, extra_args=extra_args), [1, 2], 3 + number % 4)
            self.scheduler.submit(request, self.scheduler.num_steps + number)
        return self.scheduler.run()


def make(
    cls: Any, runner: Runner, settings: WatchSettings = EVERY_STEP, folder: Path | None = None, **options: Any
) -> Watched:
    made: list[tuple[ProcessCounts, Any]] = []

    def factory(config: Any, *rest: Any) -> Any:
        processor = cls(config, *rest)
        made.append((watch(runner, [processor], (config, *rest), settings, folder, "0.0.0"), processor))
        return processor

    engine = {"v1": V1Engine, "v2": V2Engine}[runner]([factory], vocab_size=VOCAB, max_num_seqs=4, device="cpu")
    return Watched(Scheduler(engine, **options), *made[0])


def found(watched: Watched) -> dict[str, int]:
    (seen,) = watched.tally.processors.values()
    return seen.violations


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "the watcher's thread did nothing"
        time.sleep(0.01)


ON = {"ban": 4}
TRAFFIC = (ON, None, {"ban": 5}, None, None, ON, ON, None, {"ban": 3}, None)

RUNNERS = pytest.mark.parametrize("runner", ["v1", "v2"])


@RUNNERS
def test_a_correct_processor_is_not_blamed_and_its_rows_are_counted(runner: Runner) -> None:
    watched = make(Ban, runner)
    said = watched.run(*TRAFFIC)
    assert found(watched) == {}
    assert watched.tally.errors == 0
    (seen,) = watched.tally.processors.values()
    assert seen.rows == sum(map(len, said.values()))  # every token came of a row that was compared


@RUNNERS
def test_the_engine_says_what_it_says_without_a_watcher(runner: Runner) -> None:
    plain = {"v1": V1Engine, "v2": V2Engine}[runner]([Ban], vocab_size=VOCAB, max_num_seqs=4, device="cpu")
    unwatched = Watched(Scheduler(plain), ProcessCounts(), None)
    assert make(Ban, runner).run(*TRAFFIC) == unwatched.run(*TRAFFIC)


@RUNNERS
def test_a_watched_instance_keeps_its_class_and_what_the_engine_asks_it(runner: Runner) -> None:
    processor = make(Ban, runner).processor
    assert type(processor) is Ban
    assert processor.is_argmax_invariant() is False


class Nan(Ban):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 7] = float("nan")
        return logits


class Everything(Ban):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.fill_(float("-inf"))


class Revives(Ban):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.nan_to_num_(neginf=-1e4)


class Neighbours(Ban):
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        return logits.add_(torch.arange(VOCAB))


class Half(Ban):
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        return logits.half()


class Nothing(Ban):
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> Any:
        super().apply(logits, ctx)


BROKEN = [
    (Nan, "nan"),
    (Everything, "no-token"),
    (Revives, "revived"),
    (Neighbours, "touched"),
    (Half, "dtype"),
    (Nothing, "shape"),
]


@RUNNERS
@pytest.mark.parametrize(("cls", "kind"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_each_broken_rule_is_counted_by_its_kind_and_its_evidence_is_kept(
    cls: type, kind: str, runner: Runner, tmp_path: Path
) -> None:
    watched = make(cls, runner, folder=tmp_path)
    logits = torch.randn(2, VOCAB)
    logits[:, 9] = float("-inf")
    with torch.inference_mode():
        if runner == "v1":
            added = [(row, SamplingParams(extra_args=args), [1, 2], []) for row, args in enumerate((ON, None))]
            watched.processor.update_state(BatchUpdate(2, [], added, []))
            watched.processor.apply(logits)
        else:
            slots = watched.scheduler.engine.slots  # type: ignore[attr-defined]
            rows = []
            for row, args in enumerate((ON, None)):
                request = Request(f"q{row}", SamplingParams(extra_args=args), [1, 2])
                rows.append(V2Row(slots.add(request), 1, 2))
                watched.processor.add_request(rows[-1].slot, request.params)
            slots.flush()
            watched.processor.apply_staged_writes()
            watched.processor.apply(logits, make_context(rows))
    assert list(found(watched)) == [kind]
    until(lambda: watched.tally.violations)
    violation = watched.tally.violations[0]
    assert violation.kind == kind
    trace = traces.load(violation.trace)
    assert trace.settings["watch"]["kind"] == kind
    assert trace.settings["watch"]["step"] == len(trace.steps) - 1


@RUNNERS
def test_the_rows_of_one_step_are_one_report(runner: Runner, tmp_path: Path) -> None:
    watched = make(Nan, runner, folder=tmp_path)
    watched.run(ON, ON, ON, ON)
    until(lambda: len(watched.tally.violations) == 2)
    first, second = watched.tally.violations
    assert first.step < second.step
    assert found(watched)["nan"] > 2


class Raises(Ban):
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        raise KeyError("row 0")


@RUNNERS
def test_an_exception_is_counted_and_goes_on_to_the_engine(runner: Runner) -> None:
    watched = make(Raises, runner)
    with pytest.raises(KeyError, match="row 0"):
        watched.run(ON)
    assert found(watched) == {"exception": 1}
    assert re.fullmatch(r"apply raised KeyError at test_watching.py:\d+", watched.tally.violations[0].got)  # at once


@pytest.mark.parametrize(("values", "shown"), [(False, {"ban": "<int>"}), (True, {"ban": 4})])
def test_arguments_are_shown_by_type_unless_values_are_asked_for(values: bool, shown: dict[str, Any]) -> None:
    watched = make(Nan, "v1", WatchSettings(budget=1.0, values=values))
    watched.run(ON)
    until(lambda: watched.tally.violations)
    assert watched.tally.violations[0].arguments == shown


class LateNan(Ban):
    """Wrong from its fifteenth call on."""

    calls = 0

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        self.calls += 1
        logits = super().apply(logits, ctx)
        if self.calls >= 15:
            logits[-1, 7] = float("nan")
        return logits


@RUNNERS
def test_a_trace_tells_the_last_steps_and_who_used_the_processor(runner: Runner, tmp_path: Path) -> None:
    watched = make(LateNan, runner, WatchSettings(budget=1.0, steps=6), tmp_path)
    watched.run(*TRAFFIC * 2)
    until(lambda: watched.tally.violations)
    trace = traces.load(watched.tally.violations[0].trace)
    assert len(trace.steps) == 6 + 1  # the first stands for what came before
    recording = trace.settings["watch"]
    assert recording["request"] in trace.requests
    assert set(recording["uses"].values()) == {True, False}
    assert {bool(arguments) for arguments in recording["arguments"].values()} == {True, False}
    assert {token for request in trace.requests.values() for token in request.prompt or ()} != {1, 2}


@RUNNERS
def test_whatever_the_scheduler_does_the_steps_before_a_violation_are_a_valid_trace(
    runner: Runner, tmp_path: Path
) -> None:
    """Serve with prompt chunks, preemption and resumption, and reused rows and slots."""
    settings = WatchSettings(budget=1.0, steps=9, traces=1000)
    watched = make(LateNan, runner, settings, tmp_path, max_num_batched_tokens=5, num_blocks=5, block_size=2)
    watched.run(*TRAFFIC * 4)
    assert watched.scheduler.num_preemptions
    tally = watched.tally  # a busy machine may leave some unwritten
    until(lambda: tally.traces + tally.traces_dropped == found(watched)["nan"])
    assert tally.traces > 10
    assert {violation.note for violation in watched.tally.violations} == {""}


@pytest.fixture
def broken_watcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(watchers.RowSample, "flags", fail)
    yield


@RUNNERS
@pytest.mark.usefixtures("broken_watcher")
def test_a_watcher_that_fails_leaves_serving_alone_and_stops_after_a_few_errors(runner: Runner) -> None:
    watched = make(Ban, runner)
    said = watched.run(*TRAFFIC)
    assert sorted(map(len, said.values())) == sorted(3 + number % 4 for number in range(len(TRAFFIC)))
    assert watched.tally.errors == watchers.MOST_ERRORS
    assert watched.tally.active is False


def test_a_folder_that_cannot_be_written_costs_the_files_and_nothing_else(tmp_path: Path) -> None:
    watched = make(Nan, "v1", folder=tmp_path / "gone")
    watched.run(ON)
    until(lambda: watched.tally.violations)
    assert watched.tally.violations[0].note.startswith("no trace: ")
    assert watched.tally.traces_dropped
    assert watched.tally.active


def test_files_stay_below_their_bound(tmp_path: Path) -> None:
    watched = make(Nan, "v1", WatchSettings(budget=1.0, max_bytes=100), tmp_path)
    watched.run(ON)
    until(lambda: watched.tally.violations)
    assert "has no room" in watched.tally.violations[0].note
    assert not list(tmp_path.glob("*.jsonl"))


def test_only_the_first_violations_of_a_kind_write_files_and_the_log_has_one_line_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = make(Nan, "v1", WatchSettings(budget=1.0, traces=2), tmp_path)
    watched.run(ON, ON, ON)
    assert found(watched)["nan"] > 3
    until(lambda: len(watched.tally.violations) == 2)
    assert len(list(tmp_path.glob("nan-*.jsonl"))) == 2
    (message,) = (record.getMessage() for record in caplog.records if "broke a rule" in record.getMessage())
    assert "{'ban': '<int>'}" in message
    assert str(tmp_path) in message


def test_the_numbers_of_the_process_are_in_its_file(tmp_path: Path) -> None:
    watched = make(Ban, "v1", folder=tmp_path)
    watched.run(*TRAFFIC)
    until(lambda: [found for found in read_numbers(tmp_path).values() if found["steps"] == watched.tally.steps])
    (numbers,) = read_numbers(tmp_path).values()
    assert numbers["processors"][f"{__name__}:Ban"]["violations"] == {}


def test_two_engines_of_one_process_do_not_overwrite_each_others_numbers_and_traces(tmp_path: Path) -> None:
    pair = [make(Nan, "v1", WatchSettings(budget=1.0, traces=1), tmp_path) for _ in range(2)]
    for watched in pair:
        watched.run(ON)
        until(lambda watched=watched: watched.tally.violations)
    assert len({watched.tally.violations[0].trace for watched in pair}) == 2
    until(lambda: len(read_numbers(tmp_path)) == 2)
