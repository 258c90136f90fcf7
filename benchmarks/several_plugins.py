"""Time plugins that no request uses, and several rules as one document beside their plugins, on both runners.

    python benchmarks/several_plugins.py [--batch 64] [--device cpu]

Every plugin of ``reference_plugins/`` gets the same batch, all of whose requests use lpkit-min-p; its calls of one
step are timed, all plugins in turns, the least of many rounds. So are the plugins of a chain, and lpkit-rules with the
same chain in the requests. The engine's own work is left out.
"""

from __future__ import annotations

import argparse
import json
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

CHAIN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lpkit-logit-bias": (
        {"logit_bias_ids": [3, 90, 0], "logit_bias_values": [5.0, -100.0, 2.5]},
        {"rule": "bias", "ids": [3, 90, 0], "values": [5.0, -100.0, 2.5]},
    ),
    "lpkit-penalties": (
        {"penalties_repetition": 1.3, "penalties_frequency": 0.4},
        {"rule": "penalties", "repetition": 1.3, "frequency": 0.4},
    ),
    "lpkit-top-n-sigma": ({"top_n_sigma": 1.0}, {"rule": "top_n_sigma", "n": 1.0}),
    IN_USE: ({"min_p_threshold": 0.1}, {"rule": "min_p", "threshold": 0.1}),
}
"""By plugin, in the order of the chain: its request's arguments, and the step of a document that says the same."""

Calls = dict[str, Callable[[], object]]
Arguments = dict[str, Any]


def steps(arguments: dict[str, list[Arguments]], batch: int, device: torch.device) -> dict[str, Calls]:
    """By runner and name, what an engine calls in a step if requests have these ``extra_args`` in turns.

    A name is that of a plugin, and may go on behind a space.
    """
    calls: dict[str, Calls] = {"V1": {}, "V2": {}}
    config = make_config(max_num_seqs=batch, vocab_size=VOCAB, max_model_len=256, device=device)
    folders = {folder.name: folder for folder in FOLDERS}
    for name, given in arguments.items():
        cls, _ = announced(folders[name.partition(" ")[0]])
        params = [SamplingParams(temperature=1.0, extra_args=args) for args in given]
        for runner, kind in (("V1", V1Driver), ("V2", V2Driver)):
            driver = kind(cls, config, device)
            requests = [
                Request(f"r{n}", params[n % len(params)], [1, 2, 3], output_token_ids=[4]) for n in range(batch)
            ]
            driver.begin(entering=requests)
            calls[runner][name] = partial(
                step, driver.processor, torch.randn(batch, VOCAB, device=device), *driver.context(requests)
            )
    return calls


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
    in_use = {folder.name: [CHAIN[IN_USE][0]] for folder in FOLDERS}
    for runner, times in ((runner, least(calls, clock)) for runner, calls in steps(in_use, batch, device).items()):
        idle = sorted(cost for name, cost in times.items() if name != IN_USE)
        each = f"{len(idle)} plugins of {idle[0]:.1f} to {idle[-1]:.1f} us"
        print(f"{runner}: {IN_USE} {times[IN_USE]:.0f} us; beside it {each}")
        for size in SIZES:
            beside = sum(idle[-(size - 1) :]) if size > 1 else 0.0
            print(f"  {size:2} installed: {beside:6.2f} us beside it, {beside / times[IN_USE]:.1%}")


def show_document(batch: int, device: torch.device) -> None:
    clock = Clock(device)
    chain = [rule for _, rule in CHAIN.values()]
    documents = {
        "as one document": [chain],
        "as a document of its own for each request": [
            [{**rule, **({"threshold": (n + 1) / 1000} if rule["rule"] == "min_p" else {})} for rule in chain]
            for n in range(batch)
        ],
        "in two orders": [chain, chain[::-1]],
    }
    arguments = {name: [given] for name, (given, _) in CHAIN.items()}
    for name, texts in documents.items():
        arguments[f"lpkit-rules {name}"] = [{"rules": json.dumps(text)} for text in texts]
    for runner, times in ((runner, least(calls, clock)) for runner, calls in steps(arguments, batch, device).items()):
        wholes = [f"{name} {times.pop(f'lpkit-rules {name}'):.0f} us" for name in documents]
        each = ", ".join(f"{name.removeprefix('lpkit-')} {cost:.0f}" for name, cost in times.items())
        print(f"{runner}: {len(times)} plugins {sum(times.values()):.0f} us ({each}); {', '.join(wholes)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    show_installed(options.batch, options.device)
    show_document(options.batch, options.device)


if __name__ == "__main__":
    main()
