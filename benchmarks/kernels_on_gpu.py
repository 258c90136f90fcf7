"""Time the kernels of ``lpkit.kernels`` on a GPU, and count the launches of each reference plugin's step.

    python benchmarks/kernels_on_gpu.py [--rows 8,64,256] [--vocab 151936]

*Functions*: the GPU's work on each, on a copy of the same logits, as a rule calls it: the median of many turns, and the
time of each of its kernels by torch's profiler, next to a read and a write of the same logits. *Steps*: the GPU's own
count of kernels, copies and fills in a step in which no request comes or goes, next to the count by what is dispatched,
which ``make launches`` makes without a GPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from lpkit import kernels
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.bench.launches import launches
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.steady import SteadyBatch
from plugins_here import FOLDERS, announced
from torch.profiler import ProfilerActivity, profile

DEVIATION, LIMIT, DISTANCE = 3.0, 6.0, 2.3
"""The logits' deviation; a limit of two deviations; the distance to a tenth of the highest probability."""

ROUNDS = 15
BATCH, CONTEXT = 8, 100
RUNNERS = ("v1", "v2")

Calls = dict[str, Callable[[], Any]]


def make(rows: int, vocab: int, device: torch.device) -> torch.Tensor:
    """Logits, normally distributed."""
    return (torch.randn(rows, vocab, generator=torch.Generator().manual_seed(3)) * DEVIATION).to(device)


def calls(work: torch.Tensor) -> Calls:
    """Each function as a rule calls it, and a read and a write of the logits."""
    rows, device = len(work), work.device

    def column(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((rows, 1), value, dtype=dtype, device=device)

    distance, ones = column(DISTANCE), column(1)
    deviations, never = column(DISTANCE / DEVIATION, torch.float64), column(math.inf)
    nearer = -distance
    seeds, share = column(7, torch.int32), column(0, torch.int32)
    ids = torch.arange(3, device=device).expand(rows, 3).contiguous()
    return {
        "(read)": lambda: work.amax(-1),
        "(read and write)": lambda: work.mul_(1.0),
        "mask_far_below_top_": lambda: kernels.mask_far_below_top_(work, distance, ones),
        "mask_deviations_below_top_": lambda: kernels.mask_deviations_below_top_(work, deviations),
        "mask_unlikely_": lambda: kernels.mask_unlikely_(work, ones, nearer, ones, never),
        "exclude_top_choices_": lambda: kernels.exclude_top_choices_(work, ones, nearer, ids),
        "dynamic_temperature_": lambda: kernels.dynamic_temperature_(work, *(ones,) * 6),
        "add_where_hashed_": lambda: kernels.add_where_hashed_(work, seeds, share, ones),
        "keep_ids_": lambda: kernels.keep_ids_(work, ids),
    }


def seconds(call: Callable[[], Any], logits: torch.Tensor, work: torch.Tensor) -> float:
    """GPU time of a call on a copy of the logits; the copy leaves the cache as empty as an engine does."""
    clock, times = Clock(work.device), []
    for _ in range(ROUNDS):
        work.copy_(logits)
        times.append(clock.on_gpu(call) or clock.time(call)[0])
    return statistics.median(times)


def on_device(call: Callable[[], Any]) -> list[tuple[str, float]]:
    """(name, microseconds) of what the GPU did, in order: kernels, copies, fills."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    done = [event for event in seen.events() or [] if event.device_type == torch.autograd.DeviceType.CUDA]
    return [(event.name, event.device_time_total) for event in sorted(done, key=lambda event: event.time_range.start)]


def show_functions(rows: int, vocab: int, device: torch.device) -> None:
    logits = make(rows, vocab, device)
    work = torch.empty_like(logits)
    print(f"\n{rows} x {vocab:,}\n\n| function | measured | kernels |\n|---|---:|---|")
    for function, call in calls(work).items():
        took = seconds(call, logits, work)
        work.copy_(logits)
        kernels_of_it = ", ".join(f"`{name.strip('_')}` {time:.0f}" for name, time in on_device(call) if _ours(name))
        print(f"| `{function}` | {took * 1e6:.0f} us | {kernels_of_it} |", flush=True)


def _ours(name: str) -> bool:
    """Torch's kernels are C++ functions."""
    return name.startswith("_")


def show_steps(device: torch.device, vocab: int) -> None:
    print("\n| plugin | runner | counted | by the GPU | work | kernels |\n|---|---|---:|---:|---:|---|")
    for folder in FOLDERS:
        cls, case = announced(folder)
        for runner in RUNNERS:
            requests = SteadyBatch(BATCH, vocab, CONTEXT, 1.0, device)
            candidate = parts_of(runner).candidate("plugin", cls, Parameters(case), device)
            candidate.prepare(requests, requests.change())
            candidate.follow()
            logits = make(BATCH, vocab, device)
            for _ in range(2):
                counted = launches(candidate, requests, logits).launches
                requests.advance()
            candidate.prepare(requests, requests.no_change())

            def step(candidate: Any = candidate, logits: torch.Tensor = logits) -> None:
                with torch.inference_mode():
                    candidate.rest()
                    candidate.apply(logits)

            seen = on_device(step)
            kernels_of_it = Counter(name.strip("_") for name, _ in seen if _ours(name))
            named = ", ".join(f"`{name}`" + f" x{times}" * (times > 1) for name, times in sorted(kernels_of_it.items()))
            took = sum(time for _, time in seen)
            print(f"| {folder.name} | {runner} | {counted} | {len(seen)} | {took:.0f} us | {named} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="8,64,256")
    parser.add_argument("--vocab", type=int, default=151_936)
    options = parser.parse_args()
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for rows in options.rows.split(","):
        show_functions(int(rows), options.vocab, device)
    show_steps(device, options.vocab)


if __name__ == "__main__":
    main()
