"""What several plugins in one engine cost in each step, on both runners.

    python benchmarks/several_plugins.py [--batch 64] [--context 512] [--device cpu]

*Installed*: every plugin of ``reference_plugins/`` gets the same batch, all of whose requests use lpkit-min-p; its
calls of one step are timed, all plugins in turns, the least of many rounds. The engine's own work is left out.

*In use*: all requests use the plugin. ``apply`` is timed as it is, and with a rule that only reads what the plugin
declares of the history: which rows are whose, their slots, lengths and tokens. That is all that plugins could find out
once for all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lpkit.runtime import Request, make_config
from lpkit.sampling_params import SamplingParams
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.bench.clock import Clock
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.hosts.v1 import V1Candidate, V1Driver
from lpkit_conformance.hosts.v2 import V2Candidate, V2Driver
from plugins_here import FOLDERS, announced

VOCAB = 32_000
IN_USE = "lpkit-min-p"
SIZES = (1, 4, 13)
ROUNDS = 200
STEPS = 50

Calls = dict[str, Callable[[], object]]


# -- installed ---------------------------------------------------------------------------------------------------


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


# -- in use ------------------------------------------------------------------------------------------------------


def reader_like(cls: Any) -> Any:
    """The plugin without its rule."""

    def read(rows: Any) -> None:
        if cls.history != "none":
            assert rows.total_len is not None
        if cls.history == "tokens":
            assert rows.tokens is not None

    def process(self: Any, logits: torch.Tensor, rows: Any) -> torch.Tensor:
        read(rows)
        return logits

    def edit(self: Any, logits: Any, rows: Any) -> None:
        read(rows)

    sparse = "edit" in vars(cls)
    return type(cls.__name__, (cls,), {"edit": edit} if sparse else {"process": process})


def of_a_step(
    cls: Any, case: dict[str, Any], batch: int, context: int, device: torch.device
) -> dict[str, tuple[float, float]]:
    """By runner, microseconds of ``apply``: as it is, and without the rule."""
    steady = SteadyBatch(batch, VOCAB, context, 1.0, device)
    parameters = Parameters(case)
    candidates = {
        (runner, which): kind(which, made, parameters, device)
        for runner, kind in (("V1", V1Candidate), ("V2", V2Candidate))
        for which, made in (("whole", cls), ("shared", reader_like(cls)))
    }
    best = dict.fromkeys(candidates, float("inf"))
    logits, clock = torch.randn(batch, VOCAB, device=device), Clock(device)
    with torch.inference_mode():
        for _ in range(STEPS):
            change = steady.change()
            for key, candidate in candidates.items():
                candidate.prepare(steady, change)
                candidate.follow()
                best[key] = min(best[key], clock.time(partial(candidate.apply, logits.clone()))[0] * 1e6)
            steady.advance()
    return {runner: (best[runner, "whole"], best[runner, "shared"]) for runner in ("V1", "V2")}


def show_in_use(batch: int, context: int, device: torch.device) -> None:
    print("\n| plugin | V1 | of it shareable | V2 | of it shareable |\n|---|---:|---:|---:|---:|")
    for folder in FOLDERS:
        found = of_a_step(*announced(folder), batch, context, device)
        cells = [f"{whole:,.0f} us | {shared:,.0f} us, {shared / whole:.0%}" for whole, shared in found.values()]
        print(f"| {folder.name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--context", type=int, default=512, help="tokens of a request when it enters")
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    show_installed(options.batch, options.device)
    show_in_use(options.batch, options.context, options.device)


if __name__ == "__main__":
    main()
