"""Prints what a step of each reference plugin and of vLLM's own processors takes on a GPU: of its host, and of the GPU.

The host's times are those of ``host_cost``, with a wait for the GPU before each step.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from lpkit_conformance.bench.clock import Clock

from host_cost.measure import times
from host_cost.steps import Where, steps

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
    batches = tuple(int(batch) for batch in options.batch.split(","))
    for step in steps(set(options.only) if options.only else None, batches, where):
        name = f"vLLM's {step.name}" if step.of_vllm else step.name
        row = f"| {name} | {step.runner.upper()} | {step.batch} |"
        try:
            taken = [*times(step, torch.cuda.synchronize)]
            with torch.inference_mode():
                pairs = []
                for _ in range(TURNS):
                    step.prepare()
                    whole, _ = clock.time(step.call)
                    step.prepare()
                    pairs.append((whole, clock.on_gpu(step.call) or 0.0))
            taken += [statistics.median(side) * 1e6 for side in zip(*pairs, strict=True)]
        except Exception as error:  # vLLM's compiled operations may be missing here
            print(f"{row} {type(error).__name__}: {error} |", flush=True)
            continue
        print(f"{row} {' | '.join(f'{time:.1f}' for time in taken)} |", flush=True)


if __name__ == "__main__":
    main()
