"""Measures the candidates of one size in turns, so that other work on the machine affects all of them."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.bench.launches import budget, launches
from lpkit_conformance.bench.results import CandidateResult, Point, Times
from lpkit_conformance.hosts.steady import HEADROOM, BatchChange, Candidate, ProcessorCandidate, SteadyBatch
from lpkit_conformance.instruments.operations import MeasureOperations
from lpkit_conformance.subject.calls import PluginError

IDLE_CALLS = 10
"""Steps without changes that are timed together: each takes less than a microsecond."""

MOST_ROUNDS = 200
SPARE = 1.15
"""Factor on the memory that is needed, to leave some free."""


@dataclass(frozen=True)
class Effort:
    """Measuring time of each candidate at each size, its engine's work included, and the least number of rounds."""

    seconds: float = 1.0
    rounds: int = 5


@dataclass
class _Book:
    """The times of one candidate, by round."""

    candidate: Candidate
    apply: dict[int, float] = field(default_factory=dict)
    launch: dict[int, float] = field(default_factory=dict)
    gpu: list[float] = field(default_factory=list)
    churn: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    spent: float = 0.0
    result: CandidateResult | None = None


def make_logits(batch: int, vocab: int, device: torch.device, seed: int) -> torch.Tensor:
    """Float32 ``[batch, vocab]``, normal with a deviation of 3."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.empty(batch, vocab, device=device).normal_(0.0, 3.0, generator=generator)


def free_memory(device: torch.device) -> int | None:
    """Free bytes on the device; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def shortage(batch: int, vocab: int, copies: float, device: torch.device) -> str:
    """The reason why ``copies`` tensors of logits do not fit; empty if they do."""
    free = free_memory(device)
    need = batch * vocab * 4 * copies * SPARE
    if free is None or need <= free:
        return ""
    return f"needs {need / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are free"


def measure(
    steady: SteadyBatch,
    candidates: Sequence[Candidate],
    source: torch.Tensor,
    work: torch.Tensor,
    effort: Effort,
    news: Callable[[str], None] = lambda _: None,
) -> Point:
    """Measure all candidates at one size.

    Args:
        source: the logits; never written.
        work: memory of the same shape, for the copy of the logits that each candidate gets.
    """
    device = source.device
    books = []
    change = steady.change()
    for candidate in candidates:
        book = _Book(candidate)
        books.append(book)
        problem = shortage(steady.size, steady.vocab, candidate.memory, device)
        try:
            if problem:
                book.result = CandidateResult(candidate.name, candidate.kind, candidate.host, problem=problem)
                continue
            news(f"{candidate.name}: first call")
            first = _first_call(candidate, steady, change, source, work) if candidate.kind == "target" else None
            news(f"{candidate.name}: operations")
            candidate.prepare(steady, change)  # the engine makes its processors outside inference mode
            with torch.inference_mode():
                book.result = replace(_count(candidate, source, work), first=first)
        except Exception as error:
            book.result = CandidateResult(candidate.name, candidate.kind, candidate.host, problem=one_line(error))
    if device.type != "cpu":  # on a CPU nothing is launched, and other code runs
        steady.advance()
        for book in books:
            assert book.result is not None
            if not book.result.problem:
                book.result = replace(book.result, launches=launches(book.candidate, steady, work).launches)
    clock = Clock(device)
    with torch.inference_mode():
        for number in range(min(MOST_ROUNDS, HEADROOM)):
            due = [book for book in books if _is_due(book, effort, number)]
            if not due:
                break
            steady.advance()
            change = steady.change()
            shift = number % len(due)
            for book in [*due[shift:], *due[:shift]]:
                news(f"{book.candidate.name}: round {number + 1}")
                begun = time.perf_counter()
                try:
                    _round(book, number, steady, change, source, work, clock)
                except Exception as error:
                    assert book.result is not None
                    book.result = replace(book.result, problem=one_line(error))
                book.spent += time.perf_counter() - begun
    return Point(steady.size, steady.vocab, source.nbytes, tuple(_summary(books)))


def _is_due(book: _Book, effort: Effort, number: int) -> bool:
    assert book.result is not None
    if book.result.problem:
        return False
    # A candidate that left the round cannot return: it has missed a step.
    turns = len(book.apply) + len(book.gpu)
    return turns == number and (len(book.apply) < effort.rounds or book.spent < effort.seconds)


def _first_call(
    candidate: Candidate, steady: SteadyBatch, change: BatchChange, source: torch.Tensor, work: torch.Tensor
) -> float:
    """Seconds of the first step of a new instance."""
    fresh = copy.copy(candidate)
    fresh.prepare(steady, change)
    work.copy_(source)

    def step() -> None:
        fresh.follow()
        fresh.apply(work)

    with torch.inference_mode():
        return Clock(source.device).time(step)[0]


class _DeviceMemory:
    """Peak bytes of a GPU's allocator within the context, above the bytes in use before; 0 on other devices."""

    def __init__(self, device: torch.device) -> None:
        self._device, self.peak = device, 0

    def __enter__(self) -> _DeviceMemory:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated(self._device) - self._before


def _count(candidate: Candidate, source: torch.Tensor, work: torch.Tensor) -> CandidateResult:
    """Count the operations of a first step, which also warms up."""
    candidate.follow()
    work.copy_(source)
    with MeasureOperations() as counter:
        result = candidate.apply(work)
    work.copy_(source)
    with MeasureOperations() as warm, _DeviceMemory(source.device) as memory:  # what a first call sets up is paid once
        candidate.apply(work)
    return CandidateResult(
        candidate.name,
        candidate.kind,
        candidate.host,
        operations=counter.launches,
        launch_budget=budget(getattr(candidate, "cls", None), candidate.host),
        syncs=counter.syncs,
        peak=max(warm.peak, memory.peak),
        acted=not isinstance(result, torch.Tensor) or result.shape != source.shape or not torch.equal(result, source),
    )


def launches_without_memory(device: torch.device, candidate: Candidate, steady: SteadyBatch) -> int | None:
    """Launches of a later step on ``device``, which holds no memory; None if the code reads a value on the host."""
    logits = torch.empty(steady.size, steady.vocab, device=device)
    with contextlib.suppress(Exception):
        for _ in range(2):
            candidate.prepare(steady, steady.change())
            with torch.inference_mode():
                candidate.follow()
                candidate.apply(logits)
            steady.advance()
        for _ in range(2):  # in the first, memory may grow for requests that came before it
            counted = launches(candidate, steady, logits).launches
            steady.advance()
        return counted
    return None


def _round(
    book: _Book, number: int, steady: SteadyBatch, change: Any, source: torch.Tensor, work: torch.Tensor, clock: Clock
) -> None:
    candidate = book.candidate
    candidate.prepare(steady, change)
    if isinstance(candidate, ProcessorCandidate):
        book.churn.append(clock.time(candidate.follow)[0])
        book.idle.append(clock.time(lambda: _repeat(candidate.rest))[0] / IDLE_CALLS)
    work.copy_(source)
    if number % 2 and (took := clock.on_gpu(lambda: candidate.apply(work))) is not None:
        book.gpu.append(took)  # in rounds of its own: an engine asks once per step
        return
    book.apply[number], book.launch[number] = clock.time(lambda: candidate.apply(work))


def _repeat(call: Callable[[], None]) -> None:
    for _ in range(IDLE_CALLS):
        call()


def _summary(books: Sequence[_Book]) -> Iterator[CandidateResult]:
    targets = [book for book in books if book.candidate.kind == "target" and book.apply]
    floors = [book for book in books if book.candidate.kind == "floor" and book.apply]
    for book in books:
        assert book.result is not None
        yield replace(
            book.result,
            apply=_times(book.apply.values()),
            launch=_times(book.launch.values()),
            gpu=_times(book.gpu),
            churn=_times(book.churn),
            idle=_times(book.idle),
            versus_target=_ratio(book, targets[0]) if targets else None,
            versus_floor=_ratio(book, floors[-1]) if floors else None,
        )


def _times(values: Any) -> Times | None:
    seconds = list(values)
    return Times(statistics.median(seconds), min(seconds), len(seconds)) if seconds else None


def _ratio(book: _Book, other: _Book) -> float | None:
    """Median over the rounds that have both candidates."""
    common = book.apply.keys() & other.apply.keys()
    return statistics.median(book.apply[n] / other.apply[n] for n in common) if common else None


def one_line(error: BaseException) -> str:
    """An error in one line, with the plugin's line if the plugin raised it."""
    if isinstance(error, PluginError):
        return f"{error}" + (f" ({error.location})" if error.location else "")
    return f"{type(error).__name__}: {error}"[:300]
