"""Time plugins that no request uses, on both runners.

    python benchmarks/several_plugins.py [--batch 64] [--device cpu]

Every plugin of ``reference_plugins/`` gets the same batch, all of whose requests use lpkit-min-p; its calls of one step
are timed, all plugins in turns, the least of many rounds. The engine's own work is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lpkit.runtime import Request, make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.hosts.v1 import V1Driver
from lpkit_conformance.hosts.v2 import V2Driver
from plugins_here import FOLDERS, announced

VOCAB = 32_000
IN_USE = "lpkit-min-p"
SIZES = (1, 4, 13)
ROUNDS = 200

Calls = dict[str, Callable[[], object]]


def steps(batch: int, device: torch.device) -> dict[str, Calls]:
    """By runner and plugin, what an engine calls in a step."""
    found: dict[str, Calls] = {"V1": {}, "V2": {}}
    params = SamplingParams(temperature=1.0, extra_args={"min_p_threshold": 0.1})
    config = make_config(max_num_seqs=batch, vocab_size=VOCAB, max_model_len=256, device=device)
    for folder in FOLDERS:
        cls, _ = announced(folder)
        for runner, kind in (("V1", V1Driver), ("V2", V2Driver)):
            driver = kind(cls, config, device)
            requests = [Request(f"r{n}", params, [1, 2, 3], output_token_ids=[4]) for n in range(batch)]
            driver.begin(entering=requests)
            found[runner][folder.name] = partial(
                step, driver.processor, torch.randn(batch, VOCAB, device=device), *driver.context(requests)
            )
    return found


def step(plugin: Any, logits: torch.Tensor, *context: Any) -> None:
    if not context:
        plugin.update_state(None)
    plugin.apply(logits, *context)


def least(calls: Calls, clock: Clock) -> dict[str, float]:
    """Microseconds of each that the host takes, all in turns."""
    best = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, call in calls.items():
                best[name] = min(best[name], clock.time(call)[1] * 1e6)
    return best


def show_installed(batch: int, device: torch.device) -> None:
    clock = Clock(device)
    for runner, times in ((runner, least(calls, clock)) for runner, calls in steps(batch, device).items()):
        idle = sorted(cost for name, cost in times.items() if name != IN_USE)
        each = f"{len(idle)} plugins of {idle[0]:.1f} to {idle[-1]:.1f} us"
        print(f"{runner}: {IN_USE} {times[IN_USE]:.0f} us; beside it {each}")
        for size in SIZES:
            beside = sum(idle[-(size - 1) :]) if size > 1 else 0.0
            print(f"  {size:2} installed: {beside:6.2f} us beside it, {beside / times[IN_USE]:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    show_installed(options.batch, options.device)


if __name__ == "__main__":
    main()
