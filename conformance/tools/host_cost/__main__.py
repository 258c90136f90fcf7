"""Prints the host's part of a step for all reference plugins, next to vLLM's own processors.

Ends with 1 if a plugin takes more instructions than vLLM's own.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import torch

from host_cost.driver import build, install


def main() -> int:
    parser = argparse.ArgumentParser(prog="host_cost", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the driver and compiled kernels")
    parser.add_argument("--triton", type=Path, help="folder with Triton's package; default: the installed one")
    parser.add_argument("--only", action="append", metavar="NAME", help="measure this plugin only")
    parser.add_argument("--batch", action="append", type=int, help="number of requests; default: 8 and 256")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    driver = install(build(options.work) if not options.count else options.work / "libcuda.so.1", options.triton)

    from host_cost import measure
    from host_cost.steps import BATCHES, steps

    names = set(options.only) if options.only else None
    chosen = list(steps(names, tuple(options.batch or BATCHES)))
    if options.count:
        measure.count(chosen, driver)
        return 0
    instructions: list[int | None] = [None] * len(chosen)
    if shutil.which("valgrind"):
        for step in chosen:  # compiles all kernels
            measure.counts(step, driver)
        instructions = list(measure.under_callgrind(options.work, sys.argv[1:]))
    print(
        "| plugin | runner | requests | warm, µs | cold, µs | instructions, k | launches | operations | new | calls |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    taken = {}
    for step, number in zip(chosen, instructions, strict=True):
        found = measure.figures(step, driver)
        name = f"vLLM's {step.name}" if step.own else step.name
        taken[step.name, step.runner, step.batch, step.own] = number or 0
        thousands = "" if number is None else f"{number / 1e3:.0f}"
        parts = (f"{found.warm:.1f}", f"{found.cold:.1f}", thousands, *found[2:])
        print(f"| {name} | {step.runner.upper()} | {step.batch} | {' | '.join(map(str, parts))} |", flush=True)
    slower = [key for key, number in taken.items() if not key[3] and number > taken.get((*key[:3], True), number)]
    for name, runner, batch, _ in slower:
        print(f"{name} on {runner} at {batch} requests takes more instructions than vLLM's own", file=sys.stderr)
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
