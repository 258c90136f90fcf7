"""Prints the host's part of a step for all reference plugins, next to vLLM's own processors, and the goals.

Ends with 1 if a goal is missed, except for reasons that are known. The time needs an idle machine.
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
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the section of this page that shows the figures"
    )
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    driver = install(build(options.work) if not options.count else options.work / "libcuda.so.1", options.triton)

    from host_cost import measure, page
    from host_cost.steps import BATCHES, COUNTERPARTS, PLAIN, steps

    names = set(options.only) if options.only else None
    chosen = list(steps(names, tuple(options.batch or BATCHES)))
    counted = [step for step in chosen if names or step.name in (*COUNTERPARTS, *PLAIN)]
    if options.count:
        measure.count(counted, driver)
        return 0
    instructions: dict[int, int] = {}
    if shutil.which("valgrind"):
        for step in counted:  # compiles all kernels
            measure.counts(step, driver)
        numbers = measure.under_callgrind(options.work, sys.argv[1:])
        instructions = {id(step): number for step, number in zip(counted, numbers, strict=True)}
    print(
        "| plugin | runner | requests | hot, µs | warm, µs | cold, µs | changing, µs | instructions, k "
        "| launches | operations | new | calls |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    measured = {}
    for step in chosen:
        of_it, number = measure.figures(step, driver), instructions.get(id(step))
        quantities = {"hot": of_it.hot, "warm": of_it.warm, "cold": of_it.cold, "changing": of_it.changing}
        if number is not None:
            quantities["instructions"] = number / 1e3
        if not step.of_vllm:
            quantities |= {"launches": of_it.launches, "operations": of_it.operations + of_it.allocated}
        if step.budget is not None:
            quantities["budget"] = step.budget
        measured[page.Key(step.name, step.runner, step.batch, step.of_vllm)] = quantities
        times = (f"{time:.1f}" for time in of_it[:4])
        parts = (*times, "" if number is None else f"{number / 1e3:.0f}", *of_it[4:])
        name = f"vLLM's {step.name}" if step.of_vllm else step.name
        print(f"| {name} | {step.runner.upper()} | {step.batch} | {' | '.join(map(str, parts))} |", flush=True)
    goals = list(page.goals(measured))
    for goal in goals:
        result = "pass" if goal.holds else "FAIL" if goal.missed else f"known ({goal.exempt})"
        print(f"{result}: {goal.name}: {goal.text}")
    if options.page:
        page.write(options.page, measured)
    return any(goal.missed for goal in goals)


if __name__ == "__main__":
    sys.exit(main())
