"""What plugins cost that are installed beside the one in use, in each step, on both runners.

    python benchmarks/several_plugins.py [--batch 64] [--json FILE]

Every plugin of ``reference_plugins/`` that is installed here gets the same batch, all of whose requests use
lpkit-min-p; its calls of one step are timed, all plugins in turns, the least of many rounds. The engine's own work is
left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch
from lpkit.runtime import Request, make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.hosts.v1 import V1Driver
from lpkit_conformance.hosts.v2 import V2Driver

VOCAB = 32_000
IN_USE = "lpkit-min-p"
SIZES = (1, 4, 13)


def steps(batch: int) -> dict[str, dict[str, Callable[[], object]]]:
    """By runner and plugin, what an engine calls in a step."""
    found: dict[str, dict[str, Callable[[], object]]] = {"V1": {}, "V2": {}}
    device = torch.device("cpu")
    params = SamplingParams(temperature=1.0, extra_args={"min_p_threshold": 0.1})
    config = make_config(max_num_seqs=batch, vocab_size=VOCAB, max_model_len=256, device=device)
    for entry in entry_points(group="vllm.logits_processors"):
        name = entry.dist.name if entry.dist else entry.name
        for runner, kind in (("V1", V1Driver), ("V2", V2Driver)):
            driver = kind(entry.load(), config, device)
            requests = [Request(f"r{n}", params, [1, 2, 3], output_token_ids=[4]) for n in range(batch)]
            driver.begin(entering=requests)
            found[runner][name] = partial(step, driver.processor, torch.randn(batch, VOCAB), *driver.context(requests))
    return found


def step(plugin: Any, logits: torch.Tensor, *context: Any) -> None:
    if not context:
        plugin.update_state(None)
    plugin.apply(logits, *context)


def least(calls: dict[str, Callable[[], object]], rounds: int = 200) -> dict[str, float]:
    """Microseconds of each, all in turns."""
    best = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for _ in range(rounds):
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                best[name] = min(best[name], (time.perf_counter() - began) * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {runner: least(calls) for runner, calls in steps(options.batch).items()}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    for runner, times in found.items():
        if IN_USE not in times:
            sys.exit(f"install the plugins of reference_plugins/ here, {IN_USE} among them")
        idle = sorted(cost for name, cost in times.items() if name != IN_USE)
        each = f"{len(idle)} plugins of {idle[0]:.1f} to {idle[-1]:.1f} us"
        print(f"{runner}: {IN_USE} {times[IN_USE]:.0f} us; beside it {each}")
        for size in SIZES:
            beside = sum(idle[-(size - 1) :]) if size > 1 else 0.0
            print(f"  {size:2} installed: {beside:6.2f} us beside it, {beside / times[IN_USE]:.1%}")


if __name__ == "__main__":
    main()
