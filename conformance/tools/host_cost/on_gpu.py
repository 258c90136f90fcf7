"""Prints what a step of each reference plugin and of vLLM's own processors takes on a GPU: of its host, and of the GPU.

The host's times are those of ``host_cost``, with a wait for the GPU before each step.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable

import torch
from lpkit_conformance.bench.clock import Clock

from host_cost.measure import times
from host_cost.steps import COUNTERPARTS, Step, Where, of_plugin, plugins, vllms_own

TURNS = 15


def main() -> None:
    parser = argparse.ArgumentParser(prog="host_cost.on_gpu", description=__doc__)
    parser.add_argument("--batch", default="8,64,256", help="numbers of requests")
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--only", action="append", metavar="NAME", help="measure this plugin only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    where, clock = Where(torch.device("cuda"), options.vocab), Clock(torch.device("cuda"))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.vocab:,} tokens; microseconds\n")
    print("| plugin | runner | requests | hot | warm | cold | changing | until done | the GPU's work |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, cls, case in plugins(set(options.only) if options.only else None):
        for batch in map(int, options.batch.split(",")):
            show((of_plugin(name, cls, case, runner, batch, where) for runner in ("v1", "v2")), name, clock)
            if name in COUNTERPARTS:
                show(vllms_own(name, batch, where), f"vLLM's {name}", clock)


def show(steps: Iterable[Step], name: str, clock: Clock) -> None:
    """Print a row for each step, and the reason where there is none: vLLM's compiled operations may be missing."""
    try:
        for step in steps:
            cells = " | ".join(f"{time:.1f}" for time in (*times(step, torch.cuda.synchronize), *on_gpu(step, clock)))
            print(f"| {name} | {step.runner.upper()} | {step.batch} | {cells} |", flush=True)
    except Exception as error:
        print(f"| {name} | {type(error).__name__}: {error} |", flush=True)


def on_gpu(step: Step, clock: Clock) -> tuple[float, float]:
    """Return microseconds until the result is there, and of the GPU's own work."""
    taken = []
    with torch.inference_mode():
        for _ in range(TURNS):
            step.prepare()
            whole, _ = clock.time(step.call)
            step.prepare()
            taken.append((whole, clock.on_gpu(step.call) or 0.0))
    whole, work = (statistics.median(side) * 1e6 for side in zip(*taken, strict=True))
    return whole, work


if __name__ == "__main__":
    main()
