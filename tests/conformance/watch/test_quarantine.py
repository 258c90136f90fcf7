"""With a quarantine, an engine goes on without a processor that raises, and serves all other requests as before."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lpkit
import lpkit.v1
import lpkit.v2
import pytest
import torch
from lpkit.runtime import Request, Scheduler, V1Engine, V2Engine
from lpkit.sampling_params import SamplingParams
from lpkit_conformance import traces
from lpkit_conformance.engine import process
from lpkit_conformance.testing import compute_check
from lpkit_conformance.vllm_api.runners import Runner
from lpkit_conformance.watch import QUARANTINE
from lpkit_conformance.watch.install import watch
from lpkit_conformance.watch.numbers import ProcessCounts, ProcessorCounts, prometheus
from lpkit_conformance.watch.settings import WatchSettings

RUNNERS = pytest.mark.parametrize("runner", ["v1", "v2"])
ENGINES: dict[str, Any] = {"v1": V1Engine, "v2": V2Engine}
SECRET = "words of a user"


class Push(lpkit.LogitsProcessor):
    """Correct: adds `push` to the logit of token 5."""

    history = "none"

    class Params(lpkit.Params):
        push: float

    push = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 5] += self.push[rows]
        return logits


class RaisesInProcess(Push):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 7] = 1e4  # what it leaves behind when it raises must not be sampled from
        if (self.push[rows] == 13.0).any():
            raise KeyError(SECRET)
        logits[:, 7] = 0.0
        return super().process(logits, rows)


def pushed(params: Any) -> float:
    """Return the argument; raise for 13."""
    push: float = (params.extra_args or {}).get("push", 0.0)
    if push == 13.0:
        raise KeyError(SECRET)
    return push


class RaisesInUpdate(lpkit.v1.LogitsProcessor):
    """Raises in the middle of an update, after the batch was changed in part."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.push: dict[int, float] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        lpkit.v1.process_dict_updates(self.push, batch_update, lambda params, prompt, outputs: pushed(params))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, push in self.push.items():
            logits[row, 5] += push
        return logits


class RaisesInAddRequest(lpkit.v2.LogitsProcessor):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.push: dict[int, float] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.push[req_idx] = pushed(params)
        return bool(self.push[req_idx])

    def apply_staged_writes(self) -> None:
        pass

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            logits[row, 5] += self.push[slot]
        return logits


class RaisesInFlush(RaisesInAddRequest):
    """Notes a request's value, and looks at it with the next flush."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.entering: dict[int, Any] = {}

    def add_request(self, req_idx: int, params: Any) -> bool:
        self.entering[req_idx] = params
        return True

    def apply_staged_writes(self) -> None:
        while self.entering:
            slot, params = self.entering.popitem()
            self.push[slot] = pushed(params)


class AlwaysRaises(Push):
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> Any:
        raise RuntimeError(SECRET)


class ReturnsNothing(Push):
    def apply(self, logits: torch.Tensor, ctx: Any = None) -> Any:
        super().apply(logits, ctx)


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "the watcher's thread did nothing"
        time.sleep(0.01)


def serve(
    cls: type, runner: Runner, arguments: list[float | None], folder: Path | None = None, quarantined: bool = True
) -> tuple[dict[str, list[int]], ProcessorCounts, ProcessCounts]:
    """Serve a request per argument, arriving one per step, with preemption; return their tokens and the counts."""
    counts: list[ProcessCounts] = []

    def factory(config: Any, *rest: Any) -> Any:
        processor = cls(config, *rest)
        settings = WatchSettings(budget=1.0, rows=64, quarantine_after=4, interval=0.1)
        counts.append(watch(runner, [processor], (config, *rest), settings, folder, "0.0.0", quarantined))
        return processor

    engine = ENGINES[runner]([factory], vocab_size=128, max_num_seqs=4, device="cpu")
    scheduler = Scheduler(engine, num_blocks=8, block_size=2)
    for number, push in enumerate(arguments):
        extra = None if push is None else {"push": push}
        scheduler.submit(Request(f"q{number}", SamplingParams(temperature=0.7, extra_args=extra), [1, 2], 6), number)
    said = scheduler.run()
    assert scheduler.num_preemptions
    (seen,) = counts[0].processors.values()
    return said, seen, counts[0]


TRAFFIC = [3.0, None, 13.0, 4.0, None, 2.5, 3.5]
GOOD: list[float | None] = [3.0, None, None, 4.0, None, 2.5, 3.5]


@pytest.mark.parametrize(
    ("cls", "runner"),
    [
        (RaisesInProcess, "v1"),
        (RaisesInProcess, "v2"),
        (RaisesInUpdate, "v1"),
        (RaisesInAddRequest, "v2"),
        (RaisesInFlush, "v2"),
    ],
)
def test_only_the_request_at_fault_is_served_without_the_processor(
    cls: type, runner: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said, seen, counts = serve(cls, runner, TRAFFIC, tmp_path)
    assert said == serve(Push, runner, GOOD)[0]
    assert (seen.quarantined, seen.off) == (seen.exceptions, False) != (0, False)
    assert set(seen.violations) == {"exception"}
    until(lambda: counts.violations)
    violation = counts.violations[0]
    assert violation.arguments == {"push": "<float>"}
    assert violation.then == "this request is served without it"
    assert traces.load(violation.trace).settings["watch"]["kind"] == "exception"
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "this request is served without it" in line
    assert SECRET not in line + Path(violation.trace).read_text()
    metrics = prometheus({"1": counts.as_json()})
    assert f'lpkit_watch_quarantined_total{{process="1",processor="{__name__}:{cls.__name__}"}} ' in metrics


@RUNNERS
@pytest.mark.parametrize("cls", [AlwaysRaises, ReturnsNothing])
def test_a_processor_that_always_raises_is_off_for_good_after_some_exceptions(
    cls: type, runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    said, seen, counts = serve(cls, runner, GOOD)
    assert said == serve(Push, runner, [None] * len(GOOD))[0]
    assert (seen.exceptions, seen.off) == (4, True)
    until(lambda: len(counts.violations) == 3)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert ["the processor is off from now on" in line for line in lines] == [False, True]


@RUNNERS
def test_a_correct_processor_gives_the_same_tokens_with_a_quarantine(runner: Runner) -> None:
    said, seen, _ = serve(Push, runner, GOOD)
    assert said == serve(Push, runner, GOOD, quarantined=False)[0]
    assert (seen.exceptions, seen.violations) == (0, {})


@RUNNERS
def test_without_a_quarantine_the_engine_gets_the_exception(runner: Runner) -> None:
    with pytest.raises(KeyError):
        serve(RaisesInProcess, runner, TRAFFIC, quarantined=False)


def test_conformance_knows_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUARANTINE, "1")
    assert compute_check("LP301", AlwaysRaises, case={"extra_args": {"push": 2.5}}).status == "failed"
    given: list[Any] = []

    class Stop(Exception):
        pass

    def child(entry: str, env: Any, log: Any) -> Any:
        given.append(env)
        raise Stop

    monkeypatch.setattr(process, "Child", child)
    with pytest.raises(Stop):
        process.EngineProcess("v1")
    assert given[0][QUARANTINE] == ""
