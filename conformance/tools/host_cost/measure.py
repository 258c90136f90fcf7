"""Figures of a step: time, instructions, launches, operations, new memory, Python calls."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lpkit_conformance.instruments.operations import MeasureOperations

from host_cost.steps import Step

WARM_UP, TURNS, COLD_TURNS = 40, 250, 60


class Figures(NamedTuple):
    """Figures of a step.

    Attributes:
        hot, warm, cold, changing: microseconds, 10th percentile; warm: after what the engine does between two steps,
            hot: without it, cold: after a sweep through more memory than the caches hold; changing: warm, where
            requests leave and others come.
        launches: kernels handed to the driver.
        operations: of torch, dispatched.
        allocated: operations that made new memory.
        calls: of Python functions.
    """

    hot: float
    warm: float
    cold: float
    changing: float
    launches: int
    operations: int
    allocated: int
    calls: int


def counts(step: Step, driver: ctypes.CDLL) -> tuple[int, int, int, int]:
    """Return launches, operations, operations that allocated, and Python calls of a steady step."""
    launched = ctypes.c_long.in_dll(driver, "launches")
    with torch.inference_mode():
        for _ in range(6):
            step.prepare()
            step.call()
        step.prepare()
        before = launched.value
        operations = _Allocations()
        with operations:
            step.call()
        launches = launched.value - before
        step.prepare()
        calls = _python_calls(step.call)
    return launches, operations.counts.total(), operations.allocations, calls


class _Allocations(MeasureOperations):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.allocations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        held = len(self._held)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.allocations += len(self._held) > held
        return result


def _python_calls(call: Callable[[], Any]) -> int:
    seen = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call"

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen - 1


def figures(step: Step, driver: ctypes.CDLL) -> Figures:
    """Measure a step."""
    counted = counts(step, driver)
    return Figures(*times(step), *counted)


def times(step: Step, settle: Callable[[], Any] = lambda: None) -> tuple[float, float, float, float]:
    """Return the times hot, warm, cold and changing of a step.

    Args:
        settle: called before each step; waits for a device.
    """
    swept = torch.zeros(48 * 2**18)
    step.prepare()

    def sweep() -> None:
        swept.add_(1.0)
        settle()

    return (
        _timed(step, TURNS, step.hurry, settle),
        _timed(step, TURNS, step.prepare, settle),
        _timed(step, COLD_TURNS, step.prepare, sweep),
        _timed(step, COLD_TURNS, step.change, settle),
    )


def _timed(step: Step, turns: int, prepare: Callable[[], Any], settle: Callable[[], Any]) -> float:
    taken = []
    gc.disable()
    with torch.inference_mode():
        for turn in range(WARM_UP + turns):
            prepare()
            settle()
            begin = time.perf_counter_ns()
            step.call()
            if turn >= WARM_UP:
                taken.append(time.perf_counter_ns() - begin)
    gc.enable()
    return sorted(taken)[turns // 10] / 1e3


def under_callgrind(work: Path, arguments: Iterable[str]) -> Iterator[int]:
    """Run ``python -m host_cost --count`` under callgrind; return the instructions of each of its steps, in order."""
    folder = work / "callgrind"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("out*"):
        old.unlink()
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
    program = [sys.executable, "-W", "ignore", "-m", "host_cost", "--work", str(work), *arguments, "--count"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run([*command, *program], check=True, env=environment, stdout=sys.stderr, stderr=subprocess.DEVNULL)
    files = sorted((path for path in folder.glob("out.*")), key=lambda path: int(path.suffix[1:]))
    for path in files[1::2]:  # the second of two like steps
        totals = next(line for line in path.read_text().splitlines() if line.startswith("totals:"))
        yield int(totals.split()[1])


def count(steps: Iterable[Step], driver: ctypes.CDLL) -> None:
    """Let callgrind count each step, twice."""
    gc.disable()
    with torch.inference_mode():
        for step in steps:
            for turn in range(WARM_UP + 2):  # Python specializes functions in their first calls
                step.prepare()
                if turn >= WARM_UP:
                    driver.start_counting()
                step.call()
                if turn >= WARM_UP:
                    driver.stop_counting()
